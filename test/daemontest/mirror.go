// SPDX-License-Identifier: Apache-2.0

package daemontest

import (
	"errors"
	"os"
	"sync"

	"narthex/internal/datapath"
)

// mirror is somebody who takes copies of what is decided.
type mirror struct {
	kernel *Kernel
	copies chan datapath.Mirrored
	broken chan error
	closed chan struct{}
	once   sync.Once
}

// Mirror takes what Copy gives. Two at once are an error.
func (p *Path) Mirror() (datapath.MirrorReader, error) {
	p.kernel.mu.Lock()
	defer p.kernel.mu.Unlock()
	if p.kernel.mirror != nil {
		return nil, errors.New("somebody takes copies already")
	}
	p.kernel.mirror = &mirror{
		kernel: p.kernel, copies: make(chan datapath.Mirrored), broken: make(chan error), closed: make(chan struct{}),
	}
	return p.kernel.mirror, nil
}

// Next waits for Copy.
func (m *mirror) Next() (datapath.Mirrored, error) {
	select {
	case c := <-m.copies:
		return c, nil
	case err := <-m.broken:
		return datapath.Mirrored{}, err
	case <-m.closed:
		return datapath.Mirrored{}, os.ErrClosed
	}
}

// Close makes room for another.
func (m *mirror) Close() error {
	m.once.Do(func() {
		m.kernel.mu.Lock()
		defer m.kernel.mu.Unlock()
		close(m.closed)
		m.kernel.mirror = nil
	})
	return nil
}

// Copy gives whoever takes copies one, and reports whether anybody does.
func (k *Kernel) Copy(c datapath.Mirrored) bool {
	m := k.copied()
	if m == nil {
		return false
	}
	select {
	case m.copies <- c:
		return true
	case <-m.closed:
		return false
	}
}

// BreakMirror makes taking copies fail.
func (k *Kernel) BreakMirror(err error) {
	if m := k.copied(); m != nil {
		select {
		case m.broken <- err:
		case <-m.closed:
		}
	}
}

func (k *Kernel) copied() *mirror {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mirror
}
