// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab/origin"
	"narthex/test/attack"
)

// tlsCases are attacks on a service that speaks TLS.
var tlsCases = []hostileCase{
	{name: "idle TLS connections, 10 × the limit", limit: roomy, start: func(_ *stage, ctx context.Context, c attack.Crowd) (*attack.Run, error) {
		c.Clients = 10 * roomy
		return attack.TLSIdlers{Crowd: c}.Start(ctx)
	}},
	{name: "ClientHellos that never end, 300 clients", limit: roomy, start: func(_ *stage, ctx context.Context, c attack.Crowd) (*attack.Run, error) {
		c.Clients = 300
		return attack.SlowHeads{Crowd: c, Begin: "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", Every: 100 * time.Millisecond}.Start(ctx)
	}},
}

// tls: gold clients that speak TLS, beside those who would keep all places. Each attacker's
// first request takes the server as long as any.
func (b suite) tls(ctx context.Context) (figures []bench.Figure, err error) {
	for _, c := range tlsCases {
		f, err := b.tlsCase(ctx, c)
		figures = append(figures, f...)
		if err != nil {
			return figures, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return figures, nil
}

func (b suite) tlsCase(ctx context.Context, c hostileCase) (figures []bench.Figure, err error) {
	st, err := b.stage("tls")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	st.secure = true
	if err := st.origin(origin.Config{Work: work, TLS: true}); err != nil {
		return nil, err
	}
	if err := st.enforce(ctx, fmt.Sprintf("protocol: tls, concurrency: %d, queue: {max_wait: 5s}", c.limit)); err != nil {
		return nil, err
	}
	t := caseTable(c)
	for t.Next() {
		if err := st.compare(ctx, t, st.goldTLS, c); err != nil {
			return t.Done(), err
		}
	}
	return t.Done(), nil
}

// goldTLS measures gold clients that speak TLS, on connections that they keep.
func (st *stage) goldTLS(ctx context.Context) (had having, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var answers, longest atomic.Uint64
	var all sync.WaitGroup
	failed := make(chan error, goldCount)
	defer func() { cancel(); all.Wait() }()
	for range goldCount {
		all.Go(func() {
			if err := st.askTLS(ctx, &answers, &longest); err != nil && ctx.Err() == nil {
				failed <- err
			}
		})
	}
	if err := bench.Sleep(ctx, 2*warmUp); err != nil {
		return had, err
	}
	longest.Store(0)
	before, begun := answers.Load(), time.Now()
	had.invalid, err = st.watched(ctx)
	had.longest = float64(longest.Load()) / 1000
	had.rate = float64(answers.Load()-before) / time.Since(begun).Seconds()
	select {
	case why := <-failed:
		err = errors.Join(err, fmt.Errorf("a gold client: %w", why))
	default:
	}
	return had, err
}

// askTLS asks again and again on one connection until the context ends. The longest that an answer takes is in
// microseconds, and may miss one where two end at once.
func (st *stage) askTLS(ctx context.Context, answers, longest *atomic.Uint64) error {
	v, err := st.visit(ctx, st.rig.ClientsV4[0])
	if err != nil {
		return err
	}
	defer v.tcp.Close()
	stop := context.AfterFunc(ctx, func() { _ = v.tcp.SetDeadline(time.Now()) })
	defer stop()
	for ctx.Err() == nil {
		begun := time.Now()
		if err := cheap(v); err != nil {
			return err
		}
		answers.Add(1)
		longest.Store(max(longest.Load(), uint64(time.Since(begun).Microseconds())))
	}
	return nil
}
