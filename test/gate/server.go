// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"bytes"
	"strconv"
	"strings"
)

// read gives the server's process bytes of a connection.
func (w *world) read(c *conn, b []byte) {
	at := len(c.got)
	if !c.liar && (at+len(b) > len(c.stream) || !bytes.Equal(b, c.stream[at:at+len(b)])) {
		w.fail("connection %d: the server reads what the client has not said, from byte %d on", c.number, at)
		return
	}
	c.got = append(c.got, b...)
	w.begins(c)
	w.look(c)
}

// begins notes it if the server has read the first byte of a request, before which there may be
// empty lines.
func (w *world) begins(c *conn) {
	if c.exempt() || c.begun || c.tunnel || c.closing || len(bytes.Trim(c.got[c.done:], "\r\n")) == 0 {
		return
	}
	c.begun = true
	w.begun++
}

// exempt says whether the policy has the connection go by the waiting room.
func (c *conn) exempt() bool { return c.ends.from[1] == 255 }

// framing is what a reader says of the first request of some bytes.
type framing struct {
	whole, lost            bool
	head                   int // bytes of the head, if that is whole
	end                    int // of the request, if it is whole
	closes, chunked, waits bool
	tunnel                 bool
	need                   int // bytes without which it is not whole
}

// frame reads a request as RFC 9112 says, and takes what two readers could read differently for
// lost.
func frame(b []byte) (f framing) {
	var lines []string
	at := 0
	if len(b) > 0 && (b[0] < 'A' || b[0] > 'Z') && b[0] != '\r' && b[0] != '\n' {
		f.lost = true
		return f
	}
	for {
		n := bytes.IndexByte(b[at:], '\n')
		if n < 0 {
			f.need = len(b) + 1
			return f
		}
		line := strings.TrimSuffix(string(b[at:at+n]), "\r")
		at += n + 1
		if line == "" && len(lines) == 0 {
			continue
		}
		if line == "" {
			break
		}
		lines = append(lines, line)
	}
	f.head = at
	first := strings.Split(lines[0], " ")
	if len(first) != 3 || first[2] != "HTTP/1.1" && first[2] != "HTTP/1.0" {
		f.lost = true
		return f
	}
	f.closes = first[2] == "HTTP/1.0"
	length, lengths := 0, 0
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ":")
		value = strings.ToLower(strings.TrimSpace(value))
		switch strings.ToLower(name) {
		case "content-length":
			n, err := strconv.ParseUint(value, 10, 31)
			ok = ok && err == nil && lengths == 0
			length, lengths = int(n), lengths+1
		case "transfer-encoding":
			ok = ok && value == "chunked" && !f.chunked
			f.chunked = true
		case "connection":
			f.closes = f.closes || value == "close"
			f.tunnel = f.tunnel || value == "upgrade"
		case "expect":
			f.waits = value == "100-continue"
		}
		f.lost = f.lost || !ok
	}
	f.tunnel = f.tunnel || first[0] == "CONNECT"
	f.lost = f.lost || f.chunked && lengths > 0
	if f.lost {
		return f
	}
	if f.chunked {
		return f.chunks(b)
	}
	f.end = f.head + length
	f.need = f.end
	f.whole = len(b) >= f.end
	return f
}

// chunks goes on with a body in chunks, without trailers.
func (f framing) chunks(b []byte) framing {
	at := f.head
	for {
		line := bytes.Index(b[at:], []byte("\r\n"))
		if line < 0 {
			f.need = len(b) + 1
			return f
		}
		n, err := strconv.ParseUint(string(b[at:at+line]), 16, 30)
		if err != nil {
			f.lost = true
			return f
		}
		at += line + 2 + int(n) + 2
		if len(b) < at {
			f.need = at
			return f
		}
		if n == 0 {
			f.whole, f.end = true, at
			return f
		}
	}
}

// look has the server read on in the request at hand.
func (w *world) look(c *conn) {
	b := c.got[c.done:]
	if len(b) >= c.at.need {
		c.at = frame(b)
	}
}

// busy says whether the server works on a request of the connection, all of which it has.
func (c *conn) busy() bool {
	takes := c.state == established || c.state == closeWait
	return takes && !c.fin && !c.tunnel && !c.closing && len(c.got) > c.done && (c.at.whole || c.at.lost)
}

// answering says whether the server has begun to answer a request of the connection, and goes on.
func (c *conn) answering() bool {
	return (c.state == established || c.state == closeWait) && !c.fin && len(c.more) > 0
}

// accept has the server take connections from the queue.
func (w *world) accept(c *conn) {
	if c.waiting {
		c.waiting = false
		w.backlogged--
		w.showListener()
	}
}

// serve has the server do something for a connection.
func (w *world) serve(c *conn, d *dice) {
	if c.state != established && c.state != closeWait {
		return
	}
	w.accept(c)
	if len(c.more) > 0 {
		w.goOn(c)
		return
	}
	if c.tunnel {
		w.write(c, []byte("tunnel"), 1448)
		if c.state == closeWait || d.in(4) {
			w.finish(c)
		}
		return
	}
	if c.state == closeWait && !c.at.whole && !c.at.lost {
		w.finish(c)
		return
	}
	if len(c.got) == c.done {
		if d.in(20) && !w.quiet {
			w.finish(c) // an idle connection
		}
		return
	}
	w.reply(c, d)
}

// reply answers the request at hand, if there is one to be answered.
func (w *world) reply(c *conn, d *dice) {
	f := &c.at
	early := !f.whole && !f.lost && f.head > 0 && d.in(10) && !w.quiet
	if f.waits && f.head > 0 && !c.interim && (!f.whole || d.in(2)) {
		c.interim = true
		w.write(c, interim, of(d, 1448, 4, 1))
		return
	}
	if !f.whole && !f.lost && !early {
		return
	}
	a := answers[d.n(len(answers))]
	if w.quiet && !d.in(4) {
		a = answers[d.n(2)]
	}
	text := a.text
	c.closing = a.closes || f.closes || f.lost || early
	if f.tunnel {
		text, c.tunnel, c.closing = switched, true, false
	}
	c.beyond = early && w.hasPaused(c)
	if f.whole {
		c.done += f.end
	} else {
		c.done = len(c.got)
	}
	c.at = framing{}
	c.interim, c.begun = false, false
	c.answered++
	first := len(text)
	if d.in(3) && (pauseAnswers || !w.cfg.pipelining) {
		first = 1 + d.n(len(text))
	}
	c.more = append(c.more[:0], text[first:]...)
	w.write(c, text[:first], of(d, 1448, 1448, 100, 16, 3))
	if len(c.more) == 0 || !d.in(3) {
		w.goOn(c)
	}
	if !c.tunnel && len(c.got) > c.done {
		w.begins(c)
		w.look(c)
	}
}

// hasPaused says whether the request at hand has given its place up, for its client leaves out its body. Nobody
// can keep a server from answering that all the same, which takes its place again, be there room or not.
func (w *world) hasPaused(c *conn) bool {
	k, ok := w.flow(&c.key)
	return ok && (int(k.state) == paused || int(k.state) == held)
}

// goOn says the rest of the answer at hand.
func (w *world) goOn(c *conn) {
	w.write(c, c.more, 1448)
	c.more = c.more[:0]
	if c.closing {
		w.finish(c)
	}
}
