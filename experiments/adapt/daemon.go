// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab"
)

// daemonRate is how many requests/s the daemon is measured at, at least. They come from clients
// that keep their connections and think, so that the server has no trouble with them.
const (
	daemonRate    = 10_000
	daemonClients = 280
	daemonThink   = 20 * time.Millisecond
)

// daemon: its CPU time with nothing to do and beside many requests. Nobody asks for the status.
func (b suite) daemon(ctx context.Context) (figures []bench.Figure, err error) {
	st, err := b.prepare(ctx, serverNamed("nginx"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	figures = []bench.Figure{
		{What: "the daemon's CPU time, idle", Unit: "% of a core", Wanted: bench.AtMost(0.5)},
		{What: "the daemon's CPU time at 10,000 requests/s", Unit: "% of a core", Wanted: bench.AtMost(2)},
		{What: "answers", Unit: "/s", Wanted: bench.AtLeast(daemonRate)},
	}
	if err := bench.Sleep(ctx, 3*time.Second); err != nil {
		return nil, err
	}
	length := pick(20*time.Second, 6*time.Second)
	note, err := repeat(func(round int) (invalid string, err error) {
		idle, err := st.used(func() error { return bench.Sleep(ctx, length) })
		if err != nil {
			return "", err
		}
		clients := st.closed(daemonClients, daemonThink)
		clients.KeepAlive = true
		c, err := bench.Gather(ctx, clients)
		if err != nil {
			return "", err
		}
		defer c.End()
		if err := bench.Sleep(ctx, settle()); err != nil {
			return "", err
		}
		var s *sample
		atWork, err := st.used(func() error { s, err = st.measure(ctx, c, 0, length); return err })
		if err != nil {
			return "", err
		}
		st.Progress("  idle %s %%, at %s/s %s %%; cores %.0f %% and %.0f %%, others %.2f", bench.Number(idle), bench.Number(s.reports.Rate()),
			bench.Number(atWork), 100*s.serverBusy, 100*s.clientBusy, s.others)
		if why := s.invalid(); why != "" {
			return why, nil
		}
		for i, v := range []float64{idle, atWork, s.reports.Rate()} {
			figures[i].Samples = append(figures[i].Samples, v)
		}
		return "", nil
	})
	figures[0].Note = note
	return figures, err
}

// used is the daemon's CPU time while something goes on, in percent of a core.
func (st *stage) used(meanwhile func() error) (share float64, err error) {
	begun := time.Now()
	before, err := lab.ProcessCPU(st.daemon.PID())
	if err != nil {
		return 0, err
	}
	if err := meanwhile(); err != nil {
		return 0, err
	}
	after, err := lab.ProcessCPU(st.daemon.PID())
	return 100 * (after - before).Seconds() / time.Since(begun).Seconds(), err
}
