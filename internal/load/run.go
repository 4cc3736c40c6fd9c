// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"slices"
	"time"

	"narthex/internal/lab"
)

// Run is clients at work. Its methods may be called from several goroutines.
type Run struct {
	tally *tally
	done  chan struct{}

	// Valid once done is closed.
	err   error
	ended time.Time
}

// Done is closed when the run has ended.
func (r *Run) Done() <-chan struct{} { return r.done }

// Interval returns what happened since the last call of Interval, Total or Wait, or
// since the start.
func (r *Run) Interval() *Report { return r.tally.cut(r.now()) }

// Total returns what has happened since the start.
func (r *Run) Total() *Report { return r.tally.total(r.now()) }

// Wait waits for the end of the run and returns what happened in all of it.
func (r *Run) Wait() (*Report, error) {
	<-r.done
	return r.Total(), r.err
}

// now is the time on the run's clock, which stops when it ends.
func (r *Run) now() time.Time {
	select {
	case <-r.done:
		return r.ended
	default:
		return time.Now()
	}
}

// start runs the loop on a thread of its own.
func (l *loop) start(ctx context.Context) *Run {
	r := &Run{tally: l.tally, done: make(chan struct{})}
	l.client.Sources = slices.Clone(l.client.Sources)
	go func() {
		defer close(r.done)
		pinned := func() error {
			return lab.Pinned(l.client.CPUs, func() error { return l.run(ctx) })
		}
		if l.client.NS == nil {
			r.err = pinned()
		} else {
			r.err = l.client.NS.Do(pinned)
		}
		r.ended = time.Now()
	}()
	return r
}
