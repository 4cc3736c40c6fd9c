// SPDX-License-Identifier: Apache-2.0

package daemontest

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"

	"narthex/internal/datapath"
)

// reader is somebody who listens to events.
type reader struct {
	kernel *Kernel
	events chan datapath.Event
	broken chan error
	closed chan struct{}
	once   sync.Once
	alone  atomic.Bool
}

// Refusals has Tell tell of refusals alone.
func (r *reader) Refusals(alone bool) error {
	r.alone.Store(alone)
	return nil
}

// Events listens to what Tell tells. Two at once are an error.
func (p *Path) Events() (datapath.EventReader, error) {
	p.kernel.mu.Lock()
	defer p.kernel.mu.Unlock()
	if p.kernel.reader != nil {
		return nil, errors.New("somebody listens already")
	}
	p.kernel.reader = &reader{
		kernel: p.kernel, events: make(chan datapath.Event), broken: make(chan error), closed: make(chan struct{}),
	}
	p.kernel.listened++
	return p.kernel.reader, nil
}

// Next waits for Tell.
func (r *reader) Next() (datapath.Event, error) {
	select {
	case e := <-r.events:
		return e, nil
	case err := <-r.broken:
		return datapath.Event{}, err
	case <-r.closed:
		return datapath.Event{}, os.ErrClosed
	}
}

// Close makes room for another.
func (r *reader) Close() error {
	r.once.Do(func() {
		r.kernel.mu.Lock()
		defer r.kernel.mu.Unlock()
		close(r.closed)
		r.kernel.reader = nil
	})
	return nil
}

// Tell tells whoever listens of an event, and reports whether anybody does. It returns when
// that one has it.
func (k *Kernel) Tell(e datapath.Event) bool {
	r := k.listening()
	if r == nil {
		return false
	}
	refusal := e.Kind == datapath.EventDrop || e.Kind == datapath.EventReject || e.Kind == datapath.EventDemote
	if r.alone.Load() && !refusal {
		return false
	}
	select {
	case r.events <- e:
		return true
	case <-r.closed:
		return false
	}
}

// Break makes reading events fail.
func (k *Kernel) Break(err error) {
	if r := k.listening(); r != nil {
		select {
		case r.broken <- err:
		case <-r.closed:
		}
	}
}

// Listened returns how often somebody began to listen to events, and whether one does now.
func (k *Kernel) Listened() (times int, now bool) {
	r := k.listening()
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.listened, r != nil
}

func (k *Kernel) listening() *reader {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.reader
}
