// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// loop drives all connections of one run, on one thread.
type loop struct {
	client  Client
	target  unix.Sockaddr
	request []byte
	tally   *tally

	// A closed loop has clients.
	clients   int
	keepAlive bool

	// An open loop opens a burst of connections at each interval.
	burst       int
	every       time.Duration
	maxOpen     int
	connectOnly bool
	nextBurst   time.Time

	replay *replay // of a trace; nil otherwise

	ep     int
	conns  []*conn // by id
	spare  []*conn // without a request; not of a closed loop
	opened int     // connections begun, to take sources in turn
	buf    []byte

	connecting, asking, thinking, pausing fifo
}

// pause is how long a client waits after an error that may come back at once, so that a
// server that is gone does not make it spin.
const pause = 10 * time.Millisecond

// maxWait is how long the loop sleeps at most before it looks whether it is to end.
const maxWait = 20 * time.Millisecond

func newLoop(c Client, keepAlive bool) (*loop, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	l := &loop{
		client:  c,
		target:  sockaddr(c.Target),
		request: c.request(keepAlive),
		tally:   newTally(c.Record),
		buf:     make([]byte, 64<<10),
	}
	l.connecting.after = c.ConnectTimeout
	l.asking.after = c.Timeout
	l.pausing.after = pause
	return l, nil
}

// run makes the connections until the time is up or the context ends.
func (l *loop) run(ctx context.Context) (err error) {
	l.ep, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("run clients: %w", err)
	}
	defer unix.Close(l.ep)
	now := time.Now()
	end := now.Add(l.client.Duration)
	l.tally.begin(now)
	l.nextBurst = now
	if l.replay != nil {
		l.replay.start = now
	}
	for range l.clients {
		l.begin(l.add(), now)
	}
	defer func() { l.abandon(time.Now()) }()
	for ctx.Err() == nil && now.Before(end) {
		now = l.act(now)
		if err := l.wait(min(l.next().Sub(now), end.Sub(now))); err != nil {
			return fmt.Errorf("run clients: %w", err)
		}
		now = time.Now()
	}
	return nil
}

// add makes a client.
func (l *loop) add() *conn {
	c := &conn{fd: -1, id: int32(len(l.conns))}
	l.conns = append(l.conns, c)
	return c
}

// act does what is due by now.
func (l *loop) act(now time.Time) time.Time {
	for l.every > 0 && !l.nextBurst.After(now) {
		for range l.burst {
			l.offer(time.Now())
		}
		l.nextBurst = l.nextBurst.Add(l.every)
	}
	l.expire(&l.connecting, now, func(c *conn) { l.end(c, NoConnection, now) })
	l.expire(&l.asking, now, func(c *conn) { l.end(c, NoAnswer, now) })
	l.expire(&l.thinking, now, func(c *conn) { l.begin(c, now) })
	l.expire(&l.pausing, now, func(c *conn) { l.begin(c, now) })
	if l.replay != nil {
		l.arrive(now)
		l.serve(now)
	}
	return time.Now()
}

// expire takes out of a fifo whose time is up.
func (l *loop) expire(f *fifo, now time.Time, do func(*conn)) {
	for {
		at, ok := f.due()
		if !ok || at.After(now) {
			return
		}
		c := f.first
		c.leave()
		do(c)
	}
}

// next returns when the loop has something to do at the latest.
func (l *loop) next() time.Time {
	at := time.Now().Add(maxWait)
	if l.every > 0 && l.nextBurst.Before(at) {
		at = l.nextBurst
	}
	if l.replay != nil {
		if due, ok := l.replay.due(); ok && due.Before(at) {
			at = due
		}
	}
	for _, f := range []*fifo{&l.connecting, &l.asking, &l.thinking, &l.pausing} {
		if due, ok := f.due(); ok && due.Before(at) {
			at = due
		}
	}
	return at
}

// wait sleeps until something happens on a connection, and handles it.
func (l *loop) wait(timeout time.Duration) error {
	var events [256]unix.EpollEvent
	ts := unix.NsecToTimespec(max(0, timeout.Nanoseconds()))
	// Not EpollWait, which knows milliseconds only.
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(l.ep), uintptr(unsafe.Pointer(&events)),
		uintptr(len(events)), uintptr(unsafe.Pointer(&ts)), 0, 0)
	if errno != 0 && errno != unix.EINTR {
		return errno
	}
	if errno == unix.EINTR {
		return nil
	}
	for _, e := range events[:n] {
		// A process that was forked while the connection's predecessor was open keeps that
		// open, and in the epoll, until it executes another program.
		if c := l.conns[e.Fd]; c.serial == e.Pad {
			l.handle(c)
		}
	}
	return nil
}
