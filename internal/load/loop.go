// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"narthex/internal/testnet"
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

	ep     int
	conns  []*conn // by id
	spare  []*conn // without a request, open loop only
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
		l.handle(l.conns[e.Fd])
	}
	return nil
}

// handle goes on with a connection on which something has happened.
func (l *loop) handle(c *conn) {
	if c.in == &l.connecting {
		if !l.connect(c) {
			return
		}
	}
	if c.in != &l.asking {
		l.idle(c)
		return
	}
	complete, err := c.receive(l.buf)
	switch {
	case err != nil:
		l.end(c, outcomeOf(err), time.Now())
	case complete && c.answer.status < 300:
		l.end(c, OK, time.Now())
	case complete:
		l.end(c, OtherStatus, time.Now())
	}
}

// connect completes a handshake and sends the request. It reports whether there may be
// an answer.
func (l *loop) connect(c *conn) bool {
	err := c.finish()
	now := time.Now()
	if err != nil {
		l.end(c, outcomeOf(err), now)
		return false
	}
	c.connected = now
	l.tally.connected()
	if l.connectOnly {
		l.end(c, OK, now)
		return false
	}
	return l.ask(c, now)
}

// ask sends the request on an open connection. It reports whether that succeeded.
func (l *loop) ask(c *conn, now time.Time) bool {
	c.leave()
	l.asking.push(c, now)
	if err := c.send(l.request); err != nil {
		l.end(c, outcomeOf(err), now)
		return false
	}
	return true
}

// idle handles what happens on a connection that waits for its next request: a server
// may close it.
func (l *loop) idle(c *conn) {
	if c.fd < 0 {
		return
	}
	if _, err := c.receive(l.buf); err != nil {
		c.close(false)
	}
}

// offer begins a connection of an open loop.
func (l *loop) offer(now time.Time) {
	if n := len(l.spare); n > 0 {
		c := l.spare[n-1]
		l.spare = l.spare[:n-1]
		l.begin(c, now)
		return
	}
	if len(l.conns) >= l.maxOpen {
		l.tally.begun()
		l.tally.ended(l.source(), now, time.Time{}, now, Unsent, 0)
		return
	}
	l.begin(l.add(), now)
}

// begin begins a request, on the connection that there is or on a new one.
func (l *loop) begin(c *conn, now time.Time) {
	l.tally.begun()
	c.begun, c.connected, c.answer = now, time.Time{}, answer{}
	if c.fd >= 0 {
		l.ask(c, now)
		return
	}
	c.source = l.source()
	l.connecting.push(c, now)
	if err := c.open(l.ep, l.target); err != nil {
		l.end(c, outcomeOf(err), now)
	}
}

// source returns the next address that a connection comes from.
func (l *loop) source() (s netip.Addr) {
	if n := len(l.client.Sources); n > 0 {
		s = l.client.Sources[l.opened%n]
	}
	l.opened++
	return s
}

// end counts the end of a request and has the client go on.
func (l *loop) end(c *conn, o Outcome, now time.Time) {
	c.leave()
	l.tally.ended(c.source, c.begun, c.connected, now, o, c.answer.status)
	reuse := l.keepAlive && (o == OK || o == OtherStatus) && !c.answer.close
	if !reuse {
		c.close(o != OK && o != OtherStatus)
	}
	switch {
	case l.every > 0:
		l.spare = append(l.spare, c)
	case o == Refused || o == Failed:
		l.pausing.push(c, now)
	default:
		// Through the list even without a time to think: handling one client's events
		// must not go on with its next request before the others had their turn.
		l.thinking.push(c, now)
	}
}

// abandon ends what is under way.
func (l *loop) abandon(now time.Time) {
	for _, c := range l.conns {
		if c.in == &l.connecting || c.in == &l.asking {
			l.tally.ended(c.source, c.begun, c.connected, now, Unfinished, 0)
		}
		c.leave()
		c.close(true)
	}
	l.conns, l.spare = nil, nil
}

// start runs the loop on a thread of its own.
func (l *loop) start(ctx context.Context) *Run {
	r := &Run{tally: l.tally, done: make(chan struct{})}
	l.client.Sources = slices.Clone(l.client.Sources)
	go func() {
		defer close(r.done)
		pinned := func() error {
			return testnet.Pinned(l.client.CPUs, func() error { return l.run(ctx) })
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
