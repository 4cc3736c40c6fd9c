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

// starter is either kind of load.
type starter interface {
	Start(context.Context) (*load.Run, error)
}

// crowd is clients at work.
type crowd struct {
	ctx    context.Context // they end with it
	cancel context.CancelFunc
	runs   []*load.Run
}

// start starts clients that end with end.
func start(ctx context.Context, clients ...starter) (*crowd, error) {
	ctx, cancel := context.WithCancel(ctx)
	c := &crowd{ctx: ctx, cancel: cancel}
	return c, c.add(clients...)
}

// add adds clients. If that fails all end.
func (c *crowd) add(clients ...starter) error {
	for _, s := range clients {
		r, err := s.Start(c.ctx)
		if err != nil {
			c.end()
			return err
		}
		c.runs = append(c.runs, r)
	}
	return nil
}

// end ends all clients.
func (c *crowd) end() {
	c.cancel()
	for _, r := range c.runs {
		<-r.Done()
	}
}

// sample is what happened in a stretch of time.
type sample struct {
	reports                []*load.Report // of the clients, in the order in which they were started
	serverBusy, clientBusy float64        // shares of time of the cores
	others                 float64        // cores that others on the machine took
	overflows              uint64         // of the server's accept queues
}

// gauge is what is read before and after a measurement.
type gauge struct {
	at                       time.Time
	server, clients, foreign time.Duration
	drops                    uint64
}

func (st *stage) gauge() (g gauge, err error) {
	g.at = time.Now() // what comes last takes long where there are many processes
	if g.server, err = coreBusy(st.ServerCPUs[0]); err != nil {
		return g, err
	}
	if g.clients, err = coreBusy(st.ClientCPUs[0]); err != nil {
		return g, err
	}
	if g.drops, err = bench.ListenDrops(st.lab.Server); err != nil {
		return g, err
	}
	g.foreign, err = foreignTime()
	return g, err
}

// measure measures clients for a time after they have had time to settle.
func (st *stage) measure(ctx context.Context, c *crowd, settle, length time.Duration) (*sample, error) {
	if err := bench.Sleep(ctx, settle); err != nil {
		return nil, err
	}
	before, err := st.gauge()
	if err != nil {
		return nil, err
	}
	for _, r := range c.runs {
		r.Interval()
	}
	if err := bench.Sleep(ctx, length); err != nil {
		return nil, err
	}
	s := &sample{}
	for _, r := range c.runs {
		s.reports = append(s.reports, r.Interval())
	}
	after, err := st.gauge()
	if err != nil {
		return nil, err
	}
	took := after.at.Sub(before.at).Seconds()
	s.serverBusy = (after.server - before.server).Seconds() / took
	s.clientBusy = (after.clients - before.clients).Seconds() / took
	s.others = max(0, (after.foreign-before.foreign).Seconds()/took)
	s.overflows = after.drops - before.drops
	return s, nil
}

// invalid says why the sample gives no figure, or nothing. With -quick all do.
func (s *sample) invalid() string {
	if *quick {
		return ""
	}
	var why []string
	if s.others > *foreign {
		why = append(why, fmt.Sprintf("others took %.2f cores", s.others))
	}
	if s.overflows > 0 {
		why = append(why, fmt.Sprintf("the accept queue overflowed %d times", s.overflows))
	}
	for _, r := range s.reports {
		if n := r.Outcomes[load.Failed] + r.Outcomes[load.Unsent]; n > 0 {
			why = append(why, fmt.Sprintf("clients ran out of ports or connections %d times", n))
		}
	}
	return strings.Join(why, ", ")
}

// rate is how many requests of all clients were OK per second.
func (s *sample) rate() (sum float64) {
	for _, r := range s.reports {
		sum += r.Rate()
	}
	return sum
}

// outcomes lists how requests of several clients ended.
func outcomes(reports []*load.Report) string {
	var all load.Report
	for _, r := range reports {
		all.Begun += r.Begun
		for o, n := range r.Outcomes {
			all.Outcomes[o] += n
		}
	}
	return bench.Outcomes(&all)
}

// failed is how many requests of a client have come to a bad end.
func failed(r *load.Report) (n uint64) {
	for o, count := range r.Outcomes {
		if o := load.Outcome(o); o != load.OK && o != load.Unfinished {
			n += count
		}
	}
	return n
}

// quantile is a response time in milliseconds that the given share of requests did not
// exceed. Those that failed count as the longest.
func quantile(r *load.Report, share float64) float64 {
	ok := float64(r.Outcomes[load.OK])
	share *= (ok + float64(failed(r))) / max(1, ok)
	if ok == 0 || share > 1 {
		return milliseconds(patience)
	}
	return milliseconds(r.Quantile(share))
}

// milliseconds is a duration as figures have it.
func milliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }

// repeat calls run until enough of its calls were valid, or it is clear that there will not be.
// It returns why the others were not.
func repeat(run func(round int) (invalid string, err error)) (note string, err error) {
	var invalid []string
	for round := 0; round < rounds()+min(len(invalid), 2*rounds()); round++ {
		why, err := run(round)
		if err != nil {
			return strings.Join(invalid, "; "), err
		}
		if why != "" {
			invalid = append(invalid, why)
		}
	}
	if len(invalid) == 0 {
		return "", nil
	}
	return fmt.Sprintf("%d invalid runs: %s", len(invalid), strings.Join(invalid, "; ")), nil
}
