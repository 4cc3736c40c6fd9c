// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Dir is where named network namespaces live, as ip-netns(8) has it.
const Dir = "/run/netns"

// Namespace is a network namespace with a name in Dir. Its methods may be called from
// several goroutines.
type Namespace struct {
	name   string
	handle netns.NsHandle
	links  *netlink.Handle

	mu      sync.Mutex
	closers []func() error
	closed  bool
}

var (
	serial    atomic.Int64
	sweepOnce sync.Once
	sweepErr  error
)

// NewNamespace makes a namespace called narthex-PURPOSE-PID-N with its loopback device up. The
// first call of a process removes what dead processes left behind.
func NewNamespace(purpose string) (*Namespace, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("make network namespace: only root can; run this with sudo")
	}
	sweepOnce.Do(func() { _, sweepErr = sweep(deadOrSelf) })
	if sweepErr != nil {
		return nil, sweepErr
	}
	n := &Namespace{name: fmt.Sprintf("narthex-%s-%d-%d", purpose, os.Getpid(), serial.Add(1))}
	if err := n.create(); err != nil {
		return nil, fmt.Errorf("make network namespace %q: %w", n.name, err)
	}
	if err := n.open(); err != nil {
		return nil, fmt.Errorf("set up network namespace %q: %w", n.name, errors.Join(err, n.Close()))
	}
	return n, nil
}

// create makes the namespace and mounts it under its name.
func (n *Namespace) create() error {
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		return err
	}
	return onThread(func() error {
		handle, err := netns.NewNamed(n.name)
		n.handle = handle
		if err != nil {
			os.Remove(n.Path())
		}
		return err
	})
}

// open connects to the namespace's netlink and brings its loopback device up.
func (n *Namespace) open() error {
	links, err := netlink.NewHandleAt(n.handle, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	n.links = links
	return n.SetUp("lo")
}

// Name is the namespace's name in Dir.
func (n *Namespace) Name() string { return n.name }

// Path is the file that stands for the namespace.
func (n *Namespace) Path() string { return filepath.Join(Dir, n.name) }

// Do calls fn on a thread that is in the namespace. Sockets that fn makes stay in it;
// goroutines that fn starts are not in it.
func (n *Namespace) Do(fn func() error) error {
	return onThread(func() error {
		if err := netns.Set(n.handle); err != nil {
			return fmt.Errorf("enter network namespace %q: %w", n.name, err)
		}
		return fn()
	})
}

// onThread calls fn on a locked thread and puts the thread's network namespace back. A
// thread that cannot be put back stays locked, so that it ends with its goroutine.
func onThread(fn func() error) error {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open the network namespace of this thread: %w", err)
	}
	defer func() {
		if netns.Set(home) == nil {
			runtime.UnlockOSThread()
		}
		home.Close()
	}()
	return fn()
}

// OnClose has Close call fn first; what was registered last is called first.
func (n *Namespace) OnClose(fn func() error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closers = append(n.closers, fn)
}

// Close stops what was started in the namespace through this package and removes it.
// Closing twice is no error.
func (n *Namespace) Close() error {
	n.mu.Lock()
	closers := n.closers
	n.closers = nil
	first := !n.closed
	n.closed = true
	n.mu.Unlock()

	var errs []error
	for _, fn := range slices.Backward(closers) {
		errs = append(errs, fn())
	}
	if !first {
		return errors.Join(errs...)
	}
	if n.links != nil {
		n.links.Close()
	}
	if err := remove(n.Path()); !errors.Is(err, errCovered) {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, n.handle.Close())...)
}
