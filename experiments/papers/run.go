// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"narthex/experiments/internal/evidence"
)

// options are those of the command line.
type options struct {
	program, only, out string
	runs               int
	seconds            float64
	quick              bool
}

// command is what does it again, some experiments or, if ids is empty, those that were chosen.
func (o options) command(ids ...string) string {
	text := "make experiments"
	if len(ids) == 0 && o.only != "" {
		ids = []string{o.only}
	}
	if len(ids) > 0 {
		text += " ONLY=" + strings.Join(ids, ",")
	}
	if o.quick {
		text += " QUICK=1"
	}
	var more []string
	if usual := map[bool]int{false: 3, true: 1}[o.quick]; o.runs != usual {
		more = append(more, fmt.Sprintf("-runs %d", o.runs))
	}
	if o.seconds != 1.2 {
		more = append(more, fmt.Sprintf("-seconds %g", o.seconds))
	}
	if len(more) > 0 {
		text += fmt.Sprintf(" EXPERIMENTARGS=%q", strings.Join(more, " "))
	}
	return text
}

// paper is the report being written.
type paper struct {
	options
	machine *evidence.Machine
	begun   time.Time
}

// write has the report hold a result more, or none if r is nil.
func (p *paper) write(r *evidence.Result) error {
	p.machine.Took = time.Since(p.begun).Round(time.Second)
	if r != nil {
		if err := evidence.Save(p.out, r, p.machine); err != nil {
			return err
		}
	}
	if err := evidence.SaveMachine(p.out, p.machine); err != nil {
		return err
	}
	return evidence.Write(p.out, order)
}

// doAll does experiments one after the other and reports whether all of them hold. The report has
// each as soon as it is done, so that it holds what there is when it is interrupted.
func (s *suite) doAll(ctx context.Context, chosen []experiment, p *paper) (ok bool, err error) {
	ok = len(chosen) > 0
	for i, e := range chosen {
		s.Progress("%s (%d of %d), %s remain", e.id, i+1, len(chosen), p.remaining(chosen[i:]))
		r := s.do(ctx, e, p.options)
		if interrupted(ctx) {
			return false, fmt.Errorf("interrupted in %s: the report has what was done before", e.id)
		}
		if err := p.write(r); err != nil {
			return false, err
		}
		s.Progress("%s %s, after %s", e.id, r.Verdict(), evidence.Took(r.Took))
		for _, finding := range r.Findings() {
			s.Progress("  %s", finding)
		}
		ok = ok && r.Verdict() == evidence.Holds
		if err := ctx.Err(); err != nil {
			return false, fmt.Errorf("no time left after %s, of %v: %w", e.id, timeLimit, err)
		}
	}
	if p.only != "" {
		return ok, nil
	}
	return ok, p.complete()
}

// complete returns an error if the report lacks experiments.
func (p *paper) complete() error {
	r, err := evidence.Open(p.out, order)
	if err == nil && len(r.Missing) > 0 {
		err = fmt.Errorf("the report lacks %s", strings.Join(r.Missing, ", "))
	}
	return err
}

// interrupted reports whether somebody wants it to end. When its time is up, it is not.
func interrupted(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// do does one experiment. One that fails gives a result that says so.
func (s *suite) do(ctx context.Context, e experiment, o options) *evidence.Result {
	begun := time.Now()
	r, err := e.run(s, ctx)
	if r == nil {
		r = &evidence.Result{Title: "could not be done"}
	}
	if err != nil {
		r.Invalid = append(r.Invalid, "it failed: "+err.Error())
	}
	r.ID, r.Command, r.Runs, r.Quick = e.id, o.command(e.id), s.runs, s.quick
	r.Took = time.Since(begun).Round(time.Second)
	return r
}

// remaining estimates how long experiments take: as long as the last time that they were done
// here, or as those that have been done just now.
func (p *paper) remaining(of []experiment) string {
	var sum time.Duration
	unknown := 0
	for _, e := range of {
		last, err := evidence.Load(p.out, e.id)
		if err != nil || last.Quick != p.quick || last.Runs == 0 {
			unknown++
			continue
		}
		sum += last.Took * time.Duration(p.runs) / time.Duration(last.Runs)
	}
	if known := len(of) - unknown; unknown > 0 && known > 0 {
		sum += sum / time.Duration(known) * time.Duration(unknown)
	}
	if sum == 0 {
		return "an unknown time"
	}
	return "about " + evidence.Took(sum)
}
