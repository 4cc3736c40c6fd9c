// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/load"
)

// warmUp is what clients get before they are measured, unless a part gives them more.
const warmUp = time.Second

// Shares of time that make a run invalid.
const (
	saturated = 0.95 // less than this of the server's core, which then is not the bottleneck if
	exhausted = 0.97 // more than this of its clients' is taken
)

// starter is either kind of load.
type starter interface {
	Start(context.Context) (*load.Run, error)
}

// crowd is clients at work.
type crowd struct {
	runs []*load.Run
	end  func()
}

// start starts clients that end with end.
func start(ctx context.Context, clients ...starter) (*crowd, error) {
	ctx, cancel := context.WithCancel(ctx)
	c := &crowd{}
	c.end = func() {
		cancel()
		for _, r := range c.runs {
			<-r.Done()
		}
	}
	for _, s := range clients {
		r, err := s.Start(ctx)
		if err != nil {
			c.end()
			return nil, err
		}
		c.runs = append(c.runs, r)
	}
	return c, nil
}

// sample is what happened in a stretch of time.
type sample struct {
	reports                []*load.Report // of the clients, in the order in which they were started
	work                   time.Duration  // of the server's core for its workers and what they receive
	serverBusy, clientBusy float64        // shares of time of the cores
	others                 float64        // of the server's, what was not for its workers
	overflows              uint64         // of the server's accept queues
}

// measure measures clients for a time after they have had time to settle.
func (st *stage) measure(ctx context.Context, c *crowd, settle, length time.Duration) (s *sample, err error) {
	if err := bench.Sleep(ctx, settle); err != nil {
		return nil, err
	}
	s = &sample{}
	overflows, err := bench.ListenDrops(st.lab.Server)
	if err != nil {
		return nil, err
	}
	for _, r := range c.runs {
		r.Interval()
	}
	begun, server, clients := time.Now(), st.core.Busy(), st.clients.Busy()
	work, err := st.core.Spent(st.workers)
	if err != nil {
		return nil, err
	}
	if err := bench.Sleep(ctx, length); err != nil {
		return nil, err
	}
	worked, err := st.core.Spent(st.workers)
	if err != nil {
		return nil, err
	}
	for _, r := range c.runs {
		s.reports = append(s.reports, r.Interval())
	}
	took := time.Since(begun).Seconds()
	s.work = worked - work
	s.serverBusy, s.clientBusy = (st.core.Busy()-server).Seconds()/took, (st.clients.Busy()-clients).Seconds()/took
	s.others = s.serverBusy - s.work.Seconds()/took
	drops, err := bench.ListenDrops(st.lab.Server)
	s.overflows = drops - overflows
	return s, err
}

// once starts clients, measures them and ends them.
func (st *stage) once(ctx context.Context, settle, length time.Duration, clients ...starter) (*sample, error) {
	c, err := start(ctx, clients...)
	if err != nil {
		return nil, err
	}
	defer c.end()
	return st.measure(ctx, c, settle, length)
}

// invalid says why the sample gives no figure, or nothing. Bottleneck is whether the server's
// core is meant to be what everything waits for.
func (s *sample) invalid(bottleneck bool) string {
	why := s.broken()
	if bottleneck && s.serverBusy < saturated && s.clientBusy > exhausted {
		why = append(why, fmt.Sprintf("the server was busy for %.0f %% of the time, its clients for %.0f %%", 100*s.serverBusy, 100*s.clientBusy))
	}
	if s.others > *foreign {
		why = append(why, fmt.Sprintf("others took %.0f %% of the server's core", 100*s.others))
	}
	return strings.Join(why, ", ")
}

// broken says what went wrong with the clients' connections.
func (s *sample) broken() (why []string) {
	if s.overflows > 0 {
		why = append(why, fmt.Sprintf("the accept queue overflowed %d times", s.overflows))
	}
	for _, r := range s.reports {
		if n := r.Outcomes[load.Failed] + r.Outcomes[load.Unsent]; n > 0 {
			why = append(why, fmt.Sprintf("clients ran out of ports or connections %d times", n))
		}
	}
	return why
}

// answered is how many requests of all clients were OK.
func (s *sample) answered() (n uint64) {
	for _, r := range s.reports {
		n += r.Outcomes[load.OK]
	}
	return n
}

// rate is how many requests of all clients were OK per second.
func (s *sample) rate() (sum float64) {
	for _, r := range s.reports {
		sum += r.Rate()
	}
	return sum
}

// perAnswer is the work of the server's core per request that was OK, in microseconds.
func (s *sample) perAnswer() float64 { return s.work.Seconds() * 1e6 / float64(s.answered()) }

// failed is how many requests of a client have come to a bad end.
func failed(r *load.Report) (n uint64) {
	for o, count := range r.Outcomes {
		if o := load.Outcome(o); o != load.OK && o != load.Unfinished {
			n += count
		}
	}
	return n
}

// milliseconds is a duration as figures have it.
func milliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }
