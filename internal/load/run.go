// SPDX-License-Identifier: Apache-2.0

package load

import "time"

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
