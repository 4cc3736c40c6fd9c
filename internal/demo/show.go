// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
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
	{"gold alone", "The gold clients have the server to themselves."},
	{"overload", "The bronze clients join. The server takes requests as they come."},
	{"overload, Narthex", "Narthex lets two requests at a time in, gold ones first; the others wait."},
}

// Figures are what clients of one kind got.
type Figures struct {
	Rate   float64 `json:"requests_per_second"`
	Median float64 `json:"median_ms"` // 0 if nothing was answered
}

func figuresOf(r *load.Report) Figures {
	return Figures{Rate: math.Round(r.Rate()*10) / 10, Median: milliseconds(r.Median())}
}

// Phase is what clients got in one phase.
type Phase struct {
	Gold   Figures  `json:"gold"`
	Bronze *Figures `json:"bronze,omitempty"` // nil if there were none
}

// show measures the clients and puts the figures on the screen.
type show struct {
	out          *screen
	gold, bronze *load.Run
	tick         time.Duration
	phases       [phases]Phase
}

// phase shows the figures of each tick, and in the end those of all ticks after the
// clients have settled.
func (s *show) phase(ctx context.Context, id phaseID, settle, length time.Duration) error {
	s.out.caption(phaseTexts[id].caption)
	s.cut()
	ticker := time.NewTicker(s.tick)
	defer ticker.Stop()
	var gold, bronze *load.Report
	for left := settle + length - s.tick; left >= 0; left -= s.tick {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.gold.Done():
			_, err := s.gold.Wait()
			return errors.Join(errors.New("the gold clients ended early"), err)
		case <-ticker.C:
		}
		g, b := s.cut()
		if left < length {
			gold, bronze = sum(gold, g), sum(bronze, b)
		}
		if left > 0 {
			s.out.row(id, phaseOf(g, b), left)
		}
		if s.out.err != nil {
			return s.out.err // nobody watches
		}
	}
	s.phases[id] = phaseOf(gold, bronze)
	s.out.row(id, s.phases[id], 0)
	return nil
}

// cut returns what clients got since the last cut.
func (s *show) cut() (gold, bronze *load.Report) {
	if s.bronze != nil {
		bronze = s.bronze.Interval()
	}
	return s.gold.Interval(), bronze
}

func phaseOf(gold, bronze *load.Report) Phase {
	p := Phase{Gold: figuresOf(gold)}
	if bronze != nil {
		f := figuresOf(bronze)
		p.Bronze = &f
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
