// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

// secure has the client speak TLS from here on. The handshake is done with the first byte.
func (v *visitor) secure(change ...func(*tls.Config)) {
	cfg := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}
	for _, c := range change {
		c(cfg)
	}
	v.conn = tls.Client(v.conn, cfg)
	v.r = bufio.NewReader(v.conn)
}

// says sends a line, which has to come back.
func (v *visitor) says(line string) {
	v.t.Helper()
	v.send(line + "\n")
	v.hears(line)
}

// hears reads a line; none if it is empty.
func (v *visitor) hears(line string) {
	v.t.Helper()
	if line == "" {
		return
	}
	if got, err := v.r.ReadString('\n'); err != nil || got != line+"\n" {
		v.t.Fatalf("%s: heard %q, error %v; want %q", v.who, got, err, line)
	}
}

// outcome is how a request went that somebody else asked.
type outcome struct {
	status int
	body   string
	err    error
}

// later asks for a path on another goroutine, also where that has to wait for a handshake
// first.
func (v *visitor) later(path string) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		if _, err := io.WriteString(v.conn, getRequest(v.host, path)); err != nil {
			done <- outcome{err: err}
			return
		}
		resp, body, err := v.answer()
		if err != nil {
			done <- outcome{err: err}
			return
		}
		done <- outcome{resp.StatusCode, string(body), nil}
	}()
	return done
}

// isOK waits for the outcome, which has to be 200.
func isOK(t *testing.T, done <-chan outcome) {
	t.Helper()
	if o := <-done; o.err != nil || o.status != http.StatusOK {
		t.Errorf("status %d, error %v; want 200", o.status, o.err)
	}
}

// pieces sends text cut at the given places, one piece after the other.
func (v *visitor) pieces(text string, cuts ...int) {
	v.t.Helper()
	from := 0
	for _, cut := range cuts {
		v.send(text[from:cut])
		from = cut
		time.Sleep(3 * time.Millisecond) // so that the kernel does not put them together
	}
	v.send(text[from:])
}

// everywhere are all places at which a text can be cut in single bytes.
func everywhere(text string) (cuts []int) {
	for i := 1; i < len(text); i++ {
		cuts = append(cuts, i)
	}
	return cuts
}

// cookies is a request with so many bytes of them.
func cookies(path string, n int) string {
	return "GET " + path + " HTTP/1.1\r\nHost: x\r\nCookie: a=" + strings.Repeat("b", n) + "\r\n\r\n"
}

// sendLater sends what may not fit into the buffers at once.
func (v *visitor) sendLater(text string) (sent <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.WriteString(v.conn, text)
	}()
	return done
}

// longSlots has whole heads of the longest kind wait.
var longSlots = []string{"--slot-size", "16064"}

// blockedBy is blocked with a server in any protocol: one connection is in service until the
// server is told to go for "first".
func blockedBy(t *testing.T, p roomPolicy, cfg origin.Config) (r *room, unblock func()) {
	t.Helper()
	s := sharedScene(t, plain, false)
	s.origin(cfg)
	r = s.enforce(p)
	return r, r.block(bronze)
}

// block takes a place in service until it is told to let go of it.
func (r *room) block(w who) (unblock func()) {
	r.t.Helper()
	r.blocks++
	name := fmt.Sprintf("block%d", r.blocks)
	before := r.read().InService
	first := r.visit(w)
	var done <-chan outcome
	switch r.cfg.speaks() {
	case "lines":
		first.hears(r.cfg.Banner)
		first.send("wait " + name + "\n")
	case "tls":
		first.secure()
		fallthrough
	default:
		done = first.later("/wait?for=" + name)
	}
	eventually(r.t, "the server works", func() bool {
		asked := r.asked()
		return len(asked) > 0 && strings.HasSuffix(asked[len(asked)-1], name)
	})
	r.await(before+1, 0)
	return func() {
		r.t.Helper()
		r.letGo(name)
		if done != nil {
			isOK(r.t, done)
		} else {
			first.hears("wait " + name)
		}
	}
}

// nagle has the client's kernel put small pieces together.
func (v *visitor) nagle() {
	v.t.Helper()
	conn, err := tcpConn(v.conn)
	nettest.Check(v.t, err)
	nettest.Check(v.t, conn.SetNoDelay(false))
}

// cutConn changes what is written first, and sends it in pieces.
type cutConn struct {
	net.Conn
	cut func(first []byte) (pieces [][]byte)
}

func (c *cutConn) NetConn() net.Conn { return c.Conn }

func (c *cutConn) Write(b []byte) (int, error) {
	if c.cut == nil {
		return c.Conn.Write(b)
	}
	pieces := c.cut(b)
	c.cut = nil
	for _, p := range pieces {
		if _, err := c.Conn.Write(p); err != nil {
			return 0, err
		}
		time.Sleep(2 * time.Millisecond)
	}
	return len(b), nil
}

// isBack has a client come back that has left by vanishing, and give up what it was about.
func (r *room) isBack(v *visitor) {
	r.t.Helper()
	if slices.Contains(r.gone, v.who) {
		r.comesBack(v.who)
		_ = v.conn.SetDeadline(time.Now())
		v.reset()
	}
}
