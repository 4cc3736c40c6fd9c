// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Counts is what an attack has done so far. Which of them an attack counts follows from
// what it does.
type Counts struct {
	Sent      uint64 // frames that the device took
	Answered  uint64 // handshakes that were completed for clients without a kernel
	Lost      uint64 // frames that the device did not take
	Connected uint64 // connections of clients with a kernel
	Refused   uint64 // connections that failed
	Asked     uint64 // requests begun, whether they are ever whole or not
	Served    uint64 // answers with a status below 400
	Rejected  uint64 // answers with another status
	Ended     uint64 // connections that the other side ended
	Open      int64  // connections that are there now
}

// counters are Counts under way.
type counters struct {
	sent, answered, lost, connected, refused, asked, served, rejected, ended atomic.Uint64
	open                                                                     atomic.Int64
}

// Run is an attack under way.
type Run struct {
	counters
	cancel context.CancelFunc
	done   chan struct{}
	ask    func() uint64 // has the count of answered, if somebody else counts them

	mu    sync.Mutex
	err   error
	close []func() error
}

// begin starts an attack. Its function returns when the context ends, or before.
func begin(ctx context.Context, what string, attack func(ctx context.Context, r *Run) error) *Run {
	ctx, cancel := context.WithCancel(ctx)
	r := &Run{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		defer cancel()
		if err := attack(ctx, r); err != nil {
			r.fail(fmt.Errorf("%s: %w", what, err))
		}
	}()
	return r
}

// fail remembers an error. The attack goes on.
func (r *Run) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
}

// atEnd has Stop call fn, once.
func (r *Run) atEnd(fn func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.close = append(r.close, fn)
}

// Done is closed once nothing more is sent.
func (r *Run) Done() <-chan struct{} { return r.done }

// Wait waits until the attack has ended by itself or with its context, and returns what
// kept it from being one. Stop has still to be called.
func (r *Run) Wait() error {
	<-r.done
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Stop ends the attack and waits for its end. Connections that it has with a kernel are
// closed; clients without one are gone without a word. Stopping twice is no error.
func (r *Run) Stop() error {
	r.cancel()
	<-r.done
	r.Counts() // keeps what others count
	r.mu.Lock()
	defer r.mu.Unlock()
	errs := []error{r.err}
	for _, fn := range r.close {
		errs = append(errs, fn())
	}
	r.close, r.ask = nil, nil
	return errors.Join(errs...)
}

// Counts returns what was done so far, also after the end.
func (r *Run) Counts() Counts {
	r.mu.Lock()
	if r.ask != nil {
		r.answered.Store(r.ask())
	}
	r.mu.Unlock()
	return Counts{
		Sent: r.sent.Load(), Answered: r.answered.Load(), Lost: r.lost.Load(),
		Connected: r.connected.Load(), Refused: r.refused.Load(), Asked: r.asked.Load(),
		Served: r.served.Load(), Rejected: r.rejected.Load(), Ended: r.ended.Load(), Open: r.open.Load(),
	}
}
