// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab/origin"
)

// few is the limit that the attacks are up against, wideners how many clients there are of them.
const (
	few      = 4
	wideners = 40
)

// widening is a way to have more requests at the server than the limit says.
type widening struct {
	name string
	// before the daemon is there, and then again and again until ctx is done
	before func(v *visit) error
	attack func(ctx context.Context, st *stage, v *visit, i int)
}

var widenings = []widening{
	{"cheap requests, then expensive ones that are reset", cheap, func(ctx context.Context, st *stage, _ *visit, i int) {
		v, err := st.visit(ctx, st.bronze[i%len(st.bronze)])
		if err != nil {
			return
		}
		defer v.conn.Close()
		if i%4 == 0 {
			_ = cheap(v)
			return
		}
		_ = v.ask("/wait?ms=2000")
		_ = bench.Sleep(ctx, 20*time.Millisecond)
		_ = v.tcp.SetLinger(0)
	}},
	{"heads cut in two, on connections older than the limit", cheap, func(_ context.Context, _ *stage, v *visit, i int) {
		path := "/denied"
		if i%2 == 0 {
			path = "/wait?ms=200"
		}
		for _, piece := range []string{"GET " + path[:4], path[4:] + " HTTP/1.1\r\nHost: x\r\n\r\n"} {
			if _, err := v.conn.Write([]byte(piece)); err != nil {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		_, _ = v.answer()
	}},
}

// cheap is a request that takes no time.
func cheap(v *visit) error {
	if err := v.ask("/"); err != nil {
		return err
	}
	_, err := v.answer()
	return err
}

// limit: each attack, and what the server saw of it.
func (b suite) limit(ctx context.Context) (figures []bench.Figure, err error) {
	for _, c := range widenings {
		t := bench.NewTable(*runs,
			bench.Figure{What: c.name + ": most at once at the server", Wanted: bench.Always(1, few)},
			bench.Figure{What: "  requests that passed the rule", Wanted: bench.Always(0, 0)},
			bench.Figure{What: "  in service, waiting, gathering and slots taken after it", Wanted: bench.Always(0, 0)},
		)
		for t.Next() {
			samples, err := b.widen(ctx, c)
			if err != nil {
				return append(figures, t.Done()...), fmt.Errorf("%s: %w", c.name, err)
			}
			b.Progress("  %s: %.0f at once, %.0f passed, %.0f left", c.name, samples[0], samples[1], samples[2])
			t.Add(samples...)
		}
		figures = append(figures, t.Done()...)
	}
	return figures, nil
}

// widen measures one attack.
func (b suite) widen(ctx context.Context, c widening) (samples []float64, err error) {
	st, err := b.stage("limit")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	if err := st.origin(origin.Config{}); err != nil {
		return nil, err
	}
	var all []*visit
	defer func() {
		for _, v := range all {
			v.conn.Close()
		}
	}()
	for i := range wideners {
		v, err := st.visit(ctx, st.bronze[i%len(st.bronze)])
		if err != nil {
			return nil, err
		}
		all = append(all, v)
		if err := c.before(v); err != nil {
			return nil, err
		}
	}
	rules := "\nrequests: [{name: denied, path: \"/denied*\", action: drop}]"
	if err := st.enforceWith(ctx, fmt.Sprintf("concurrency: %d", few), rules); err != nil {
		return nil, err
	}
	st.attackFor(ctx, length(), c, all)
	if _, _, err := st.until(ctx, calmLimit, state.zero); err != nil {
		return nil, err
	}
	s, err := st.state(ctx)
	if err != nil {
		return nil, err
	}
	body, err := st.tell(ctx, "/most")
	if err != nil {
		return nil, err
	}
	var most float64
	if err := json.Unmarshal(body, &most); err != nil {
		return nil, err
	}
	passed, err := st.asked(ctx, "/denied")
	return []float64{most, float64(len(passed)), s.left()}, errors.Join(err, ctx.Err())
}

// attackFor has all of them attack for a while.
func (st *stage) attackFor(ctx context.Context, d time.Duration, c widening, all []*visit) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var running sync.WaitGroup
	for i, v := range all {
		running.Go(func() {
			for ctx.Err() == nil {
				c.attack(ctx, st, v, i)
				_ = bench.Sleep(ctx, time.Millisecond)
			}
		})
	}
	running.Wait()
}
