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

// sample is what happened in a stretch of time.
type sample struct {
	reports                bench.Reports // of the clients, in the order in which they were started
	serverBusy, clientBusy float64       // shares of time of the cores
	others                 float64       // cores that others on the machine took
	overflows              uint64        // of the server's accept queues
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
	if g.drops, err = bench.ListenDrops(st.rig.Server); err != nil {
		return g, err
	}
	g.foreign, err = foreignTime()
	return g, err
}

// measure measures clients for a time after they have had time to settle.
func (st *stage) measure(ctx context.Context, c *bench.Crowd, settle, length time.Duration) (*sample, error) {
	if err := bench.Sleep(ctx, settle); err != nil {
		return nil, err
	}
	before, err := st.gauge()
	if err != nil {
		return nil, err
	}
	c.Interval()
	if err := bench.Sleep(ctx, length); err != nil {
		return nil, err
	}
	s := &sample{reports: c.Interval()}
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
	return strings.Join(append(why, s.reports.RanOut()...), ", ")
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
