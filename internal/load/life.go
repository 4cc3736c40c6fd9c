// SPDX-License-Identifier: Apache-2.0

package load

import (
	"net/netip"
	"time"
)

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
	if err := c.send(c.request); err != nil {
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
		l.tally.ended(&conn{source: l.source(), begun: now}, now, Unsent)
		return
	}
	l.begin(l.add(), now)
}

// begin begins a request, on the connection that there is or on a new one.
func (l *loop) begin(c *conn, now time.Time) {
	l.tally.begun()
	c.request = l.request
	l.launch(c, now, now)
}

// launch begins a request that has been counted, and whose time was since.
func (l *loop) launch(c *conn, since, now time.Time) {
	c.begun, c.connected, c.answer = since, time.Time{}, answer{}
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
	l.tally.ended(c, now, o)
	reuse := l.keepAlive && (o == OK || o == OtherStatus) && !c.answer.close
	if !reuse {
		c.close(o != OK && o != OtherStatus)
	}
	switch {
	case l.every > 0, l.replay != nil:
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
			c.answer = answer{}
			l.tally.ended(c, now, Unfinished)
		}
		c.leave()
		c.close(true)
	}
	l.conns, l.spare = nil, nil
	if l.replay != nil {
		l.abandonWaiting(now)
	}
}
