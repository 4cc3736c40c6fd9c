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

// Shares of time that make a run invalid.
const (
	saturated = 0.97 // more than this of the clients' core: the generator is the bottleneck
	foreign   = 0.08 // more than this of the server's, taken by others than its workers and its packets
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

// begin starts clients that end with end.
func begin(ctx context.Context, clients ...starter) (*crowd, error) {
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
	took                   time.Duration
	work                   time.Duration // of the server's core for its workers and what they receive
	serverBusy, clientBusy float64       // shares of time of the cores
	others                 float64       // of the server's, what was not for its workers
	overflows              uint64        // of the server's accept and SYN queues
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
	work, err := st.spent()
	if err != nil {
		return nil, err
	}
	if err := bench.Sleep(ctx, length); err != nil {
		return nil, err
	}
	worked, err := st.spent()
	if err != nil {
		return nil, err
	}
	for _, r := range c.runs {
		s.reports = append(s.reports, r.Interval())
	}
	s.took = time.Since(begun)
	took := s.took.Seconds()
	s.work = worked - work
	s.serverBusy, s.clientBusy = (st.core.Busy()-server).Seconds()/took, (st.clients.Busy()-clients).Seconds()/took
	s.others = s.serverBusy - s.work.Seconds()/took
	drops, err := bench.ListenDrops(st.lab.Server)
	s.overflows = drops - overflows
	return s, err
}

// spent is the time of the server's core that its workers and what they receive have taken.
func (st *stage) spent() (time.Duration, error) {
	return st.core.Spent(append(st.workers[:len(st.workers):len(st.workers)], st.receiver))
}

// once starts clients, measures them and ends them.
func (st *stage) once(ctx context.Context, clients ...starter) (*sample, error) {
	c, err := begin(ctx, clients...)
	if err != nil {
		return nil, err
	}
	defer c.end()
	return st.measure(ctx, c, st.settle, st.length)
}

// check is what a run has to be free of, besides clients that ran out of ports or connections.
type check struct {
	overflows bool // of the listener, which nothing protects in some variants: that is what they show
	generator bool // the clients' core has to have time left
	machine   bool // nobody else works on the server's core; not where short-lived processes do, such as CGI programs
}

// invalid says why the sample gives no figure, or nothing.
func (s *sample) invalid(c check) string {
	var why []string
	for _, r := range s.reports {
		if n := r.Outcomes[load.Failed] + r.Outcomes[load.Unsent]; n > 0 {
			why = append(why, fmt.Sprintf("clients ran out of ports or connections %d times", n))
		}
	}
	if c.overflows && s.overflows > 0 {
		why = append(why, fmt.Sprintf("the listener's queues overflowed %d times", s.overflows))
	}
	if c.generator && s.clientBusy > saturated {
		why = append(why, fmt.Sprintf("the clients' core was busy for %.0f %% of the time, the server's for %.0f %%", 100*s.clientBusy, 100*s.serverBusy))
	}
	if c.machine && s.others > foreign {
		why = append(why, fmt.Sprintf("others took %.0f %% of the server's core", 100*s.others))
	}
	return strings.Join(why, ", ")
}

// milliseconds is a duration as a number.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
