// SPDX-License-Identifier: Apache-2.0

package netif

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// settle is how long changes are gathered, for they come in bursts.
	settle = 75 * time.Millisecond
	// retry is when to read again after reading failed.
	retry = time.Second

	groups = 1<<(unix.RTNLGRP_LINK-1) |
		1<<(unix.RTNLGRP_IPV4_IFADDR-1) | 1<<(unix.RTNLGRP_IPV6_IFADDR-1) |
		1<<(unix.RTNLGRP_IPV4_ROUTE-1) | 1<<(unix.RTNLGRP_IPV6_ROUTE-1)

	receiveBuffer = 1 << 20
)

// Watcher follows the interfaces and local addresses of a network namespace.
type Watcher struct {
	ns     *Namespace
	log    *slog.Logger
	socket *os.File
}

// Watch subscribes to the changes of a namespace. What changes from now on is delivered
// by Run, so that a snapshot taken after Watch misses nothing.
func Watch(ns *Namespace, log *slog.Logger) (*Watcher, error) {
	w := &Watcher{ns: ns, log: log}
	err := ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		// Without the privilege for more the default has to do: an overrun costs a snapshot.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer)
		w.socket = os.NewFile(uintptr(fd), "rtnetlink")
		return unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups})
	})
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("watch interfaces: %w", err)
	}
	return w, nil
}

// Close ends the subscription, and Run.
func (w *Watcher) Close() error {
	if w.socket == nil {
		return nil
	}
	return w.socket.Close()
}

// Snapshot reads the state as it is now.
func (w *Watcher) Snapshot() (Snapshot, error) { return TakeSnapshot(w.ns) }

// Run sends a snapshot whenever something has happened, until ctx is done or the watcher
// is closed. It may say the same as the one before: who takes snapshots beside may know
// what was between. Run does not fall behind: a receiver that is late gets one snapshot
// for all that happened.
func (w *Watcher) Run(ctx context.Context, changed chan<- Snapshot) {
	dirty := make(chan struct{}, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.listen(dirty)
	}()
	for {
		select {
		case <-dirty:
		case <-ended:
			return
		case <-ctx.Done():
			return
		}
		if !sleep(ctx, settle) {
			return
		}
		snap, err := w.Snapshot()
		if err != nil {
			w.log.Warn("cannot read the interfaces, will try again", "error", err)
			mark(dirty)
			if !sleep(ctx, retry) {
				return
			}
			continue
		}
		select {
		case changed <- snap:
		case <-ctx.Done():
			return
		}
	}
}

// listen marks what it hears until the socket is closed. An overrun is heard, too: the
// messages are lost, but that something has changed is not.
func (w *Watcher) listen(dirty chan<- struct{}) {
	buf := make([]byte, 1<<16)
	for {
		n, err := w.socket.Read(buf)
		switch {
		case errors.Is(err, unix.ENOBUFS):
			w.log.Debug("lost messages on interfaces: reading all of them again")
			mark(dirty)
		case err != nil:
			return
		case matters(buf[:n]):
			mark(dirty)
		}
	}
}

// matters reports whether one of the messages is on a link, an address or a local route.
// The routes of a busy router are none of our business.
func matters(messages []byte) bool {
	parsed, err := syscall.ParseNetlinkMessage(messages)
	if err != nil {
		return true
	}
	for _, m := range parsed {
		switch m.Header.Type {
		case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
			const typeOffset = 7 // of rtm_type in struct rtmsg
			if len(m.Data) > typeOffset && m.Data[typeOffset] == unix.RTN_LOCAL {
				return true
			}
		default:
			return true
		}
	}
	return false
}

func mark(dirty chan<- struct{}) {
	select {
	case dirty <- struct{}{}:
	default:
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
