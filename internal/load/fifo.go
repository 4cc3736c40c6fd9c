// SPDX-License-Identifier: Apache-2.0

package load

import "time"

// fifo holds connections that something happens to a fixed time after they came, such
// as a timeout. Because the time is the same for all of them they leave in the order in
// which they came, and any can leave early.
type fifo struct {
	after       time.Duration
	first, last *conn
}

// push appends a connection that is in no fifo.
func (f *fifo) push(c *conn, now time.Time) {
	c.in, c.since = f, now
	c.prev, c.next = f.last, nil
	if f.last != nil {
		f.last.next = c
	} else {
		f.first = c
	}
	f.last = c
}

// due returns when the first connection's time is up; ok is false if there is none.
func (f *fifo) due() (at time.Time, ok bool) {
	if f.first == nil {
		return time.Time{}, false
	}
	return f.first.since.Add(f.after), true
}

// leave takes the connection out of the fifo that it is in, if any.
func (c *conn) leave() {
	f := c.in
	if f == nil {
		return
	}
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		f.first = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		f.last = c.prev
	}
	c.in, c.prev, c.next = nil, nil, nil
}
