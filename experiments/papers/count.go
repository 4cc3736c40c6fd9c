// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"narthex/experiments/internal/bench"
)

// count measures clients as measure does, but not for how long the server's core is busy if
// nothing soaks up its idle time.
func (st *stage) count(ctx context.Context, c *crowd, settle, length time.Duration) (s *sample, err error) {
	if st.core != nil {
		return st.measure(ctx, c, settle, length)
	}
	if err := bench.Sleep(ctx, settle); err != nil {
		return nil, err
	}
	drops, err := bench.ListenDrops(st.lab.Server)
	if err != nil {
		return nil, err
	}
	for _, r := range c.runs {
		r.Interval()
	}
	s = &sample{}
	begun, busy := time.Now(), st.clients.Busy()
	if err := bench.Sleep(ctx, length); err != nil {
		return nil, err
	}
	for _, r := range c.runs {
		s.reports = append(s.reports, r.Interval())
	}
	s.took = time.Since(begun)
	s.clientBusy = (st.clients.Busy() - busy).Seconds() / s.took.Seconds()
	after, err := bench.ListenDrops(st.lab.Server)
	s.overflows = after - drops
	return s, err
}
