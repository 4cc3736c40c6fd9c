// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"narthex/internal/load"
)

// phaseID numbers the phases, which are the rows of the table.
type phaseID int

const (
	alone phaseID = iota
	without
	with
	phases
)

// A phase's name in the table, and what a newcomer should know of it.
var phaseTexts = [phases]struct{ name, caption string }{
	{"alone", "The preferred client has the server to itself."},
	{"overload", fmt.Sprintf("The greedy client joins: %s new connections/s, whatever the answers.", number(greedyRate))},
	{"overload, Narthex", "Narthex drops the greedy client's SYNs beyond the rate, before the server sees them."},
}

// Figures are what one client got.
type Figures struct {
	Rate   float64 `json:"requests_per_second"`
	Median float64 `json:"median_ms"` // 0 if nothing was answered
}

func figuresOf(r *load.Report) Figures {
	return Figures{Rate: math.Round(r.Rate()*10) / 10, Median: milliseconds(r.Median())}
}

// Phase is what both clients got in one phase.
type Phase struct {
	Preferred Figures  `json:"preferred"`
	Greedy    *Figures `json:"greedy,omitempty"` // nil if it was not there
}

// show measures the clients and puts the figures on the screen.
type show struct {
	out               *screen
	preferred, greedy *load.Run
	tick              time.Duration
	phases            [phases]Phase
}

// phase shows the figures of each tick, and in the end those of all ticks after the
// clients have settled.
func (s *show) phase(ctx context.Context, id phaseID, settle, length time.Duration) error {
	s.out.caption(phaseTexts[id].caption)
	s.cut()
	ticker := time.NewTicker(s.tick)
	defer ticker.Stop()
	var preferred, greedy *load.Report
	for left := settle + length - s.tick; left >= 0; left -= s.tick {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.preferred.Done():
			_, err := s.preferred.Wait()
			return errors.Join(errors.New("the preferred client ended early"), err)
		case <-ticker.C:
		}
		p, g := s.cut()
		if left < length {
			preferred, greedy = sum(preferred, p), sum(greedy, g)
		}
		if left > 0 {
			s.out.row(id, phaseOf(p, g), left)
		}
		if s.out.err != nil {
			return s.out.err // nobody watches
		}
	}
	s.phases[id] = phaseOf(preferred, greedy)
	s.out.row(id, s.phases[id], 0)
	return nil
}

// cut returns what both clients got since the last cut.
func (s *show) cut() (preferred, greedy *load.Report) {
	if s.greedy != nil {
		greedy = s.greedy.Interval()
	}
	return s.preferred.Interval(), greedy
}

func phaseOf(preferred, greedy *load.Report) Phase {
	p := Phase{Preferred: figuresOf(preferred)}
	if greedy != nil {
		f := figuresOf(greedy)
		p.Greedy = &f
	}
	return p
}

// sum adds a report to what there is already, nil at first.
func sum(all, r *load.Report) *load.Report {
	if all == nil || r == nil {
		return r
	}
	all.Add(r)
	return all
}
