// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab"
	"narthex/internal/lab/origin"
)

// slowly is a way to become slower: a server whose work takes longer needs the same limit, one
// that waits longer for others needs a higher one.
type slowly struct {
	name, parameters string
	config           origin.Config
	fast, slow       int // fixed limits with which it does about as much as it can
}

var slowlies = []slowly{
	{"2 ms of work, 20 ms", "work=10", origin.Config{Work: 2 * time.Millisecond}, 4, 4},
	{"0.5 ms of work and 5 ms of waiting, 50 ms", "sleep=10", origin.Config{Work: 500 * time.Microsecond, Sleep: 5 * time.Millisecond}, 24, 160},
}

// worth is which share of what the server can do it must do with a limit that has settled: one
// that is far too low settles at once.
const worth = 0.9

// phase is how long the server stays as it is.
func phase() time.Duration { return pick(8*time.Second, 5*time.Second) }

// slower: the server becomes ten times slower in the middle of an overload, and then fast again.
func (b suite) slower(ctx context.Context) (figures []bench.Figure, err error) {
	for _, s := range slowlies {
		f, err := b.slowed(ctx, s)
		figures = append(figures, f...)
		if err != nil {
			return figures, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return figures, nil
}

func (b suite) slowed(ctx context.Context, s slowly) (figures []bench.Figure, err error) {
	st, err := b.prepare(ctx, server{name: "slower", start: func(st *stage) (*lab.Server, error) { return st.origin(s.config) }})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	fast, slow, err := st.references(ctx, s)
	if err != nil {
		return nil, err
	}
	figures = []bench.Figure{
		{What: s.name + ": time until settled, slower", Unit: "s", Wanted: bench.AtMost(2)},
		{What: s.name + ": time until settled, fast again", Unit: "s", Wanted: bench.AtMost(2)},
		{What: s.name + ": limit before, 0 for none"},
		{What: s.name + ": limit while slower"},
		{What: s.name + ": limit when fast again"},
		{What: s.name + ": answers before / with a good fixed limit", Wanted: bench.AtLeast(worth)},
		{What: s.name + ": answers while slower / the same", Wanted: bench.AtLeast(worth)},
		{What: s.name + ": answers when fast again / the same", Wanted: bench.AtLeast(worth)},
	}
	figures[0].Note, err = repeat(func(round int) (invalid string, err error) {
		values, invalid, err := st.thrice(ctx, s, fmt.Sprintf("slower %s %d", s.parameters, round+1))
		if err != nil || invalid != "" {
			return invalid, err
		}
		values[5], values[6], values[7] = values[5]/fast, values[6]/slow, values[7]/fast
		for i, v := range values {
			figures[i].Samples = append(figures[i].Samples, v)
		}
		return "", nil
	})
	return figures, err
}

// references are the answers/s with good fixed limits, fast and slow.
func (st *stage) references(ctx context.Context, s slowly) (fast, slow float64, err error) {
	if fast, err = st.most(ctx, crowded, fixed(s.fast)); err != nil {
		return 0, 0, err
	}
	if err := st.pace(ctx, s.parameters); err != nil {
		return 0, 0, err
	}
	slow, err = st.most(ctx, crowded, fixed(s.slow))
	return fast, slow, err
}

// thrice goes through the phases: fast, slow, fast. The second half of each is measured.
func (st *stage) thrice(ctx context.Context, s slowly, name string) (values []float64, invalid string, err error) {
	if err := st.set(ctx, auto); err != nil {
		return nil, "", err
	}
	c, err := bench.Gather(ctx, st.closed(crowded, 0))
	if err != nil {
		return nil, "", err
	}
	defer func() { c.End(); err = errors.Join(err, st.rest(ctx)) }()
	w := st.watch(ctx, stepWatch, name)
	defer func() { err = errors.Join(err, w.end()) }()
	var answers []float64
	var at []time.Duration
	for _, parameters := range []string{"", s.parameters, ""} {
		at = append(at, time.Since(w.begun))
		if err := st.pace(ctx, parameters); err != nil {
			return nil, "", err
		}
		m, err := st.measure(ctx, c, phase()/2, phase()/2)
		if err != nil {
			return nil, "", err
		}
		if invalid == "" {
			invalid = m.invalid()
		}
		answers = append(answers, m.reports.Rate())
	}
	at = append(at, time.Since(w.begun))
	if err := w.end(); err != nil {
		return nil, "", err
	}
	var after, limits [3]float64
	for i := range after {
		settled, final := w.settled(at[i], at[i+1])
		after[i], limits[i] = settled.Seconds(), finite(final)
	}
	st.Progress("  %s: settled at %.0f, at %.0f after %s s, at %.0f after %s s; %s/s, %s/s, %s/s", s.name, limits[0],
		limits[1], bench.Number(after[1]), limits[2], bench.Number(after[2]), bench.Number(answers[0]), bench.Number(answers[1]), bench.Number(answers[2]))
	return append(append(after[1:], limits[:]...), answers...), invalid, nil
}

// pace tells the server how slow to be.
func (st *stage) pace(ctx context.Context, parameters string) error {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: st.dial}, Timeout: patience}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/slower?%s", st.control(), parameters), nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("tell the server to be slower: %w", err)
	}
	return resp.Body.Close()
}

// dial connects from within the server's namespace.
func (st *stage) dial(_ context.Context, network, address string) (conn net.Conn, err error) {
	err = st.rig.Server.Do(func() error {
		conn, err = net.DialTimeout(network, address, patience)
		return err
	})
	return conn, err
}
