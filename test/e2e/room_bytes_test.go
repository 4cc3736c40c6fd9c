// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"narthex/internal/api"
	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

// counted counts what a client has written and read.
type counted struct {
	net.Conn
	written, read *atomic.Uint64
}

func (c counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(uint64(n))
	return n, err
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(uint64(n))
	return n, err
}

// carried is how many bytes the clients of a class have sent and got.
type carried struct{ in, out atomic.Uint64 }

// visitCounted is visit, with what is sent and got counted.
func (s *scene) visitCounted(w who, t *carried) *visitor {
	s.t.Helper()
	v := s.visit(w)
	v.conn = counted{v.conn, &t.in, &t.out}
	v.r.Reset(v.conn)
	return v
}

// counts waits until the status says what the clients of each class have sent and got.
func (r *room) counts(of map[who]*carried) {
	r.t.Helper()
	for w, want := range of {
		var got api.RoomClassStatus
		same := func() bool {
			got = r.class(w)
			return got.BytesIn == want.in.Load() && got.BytesOut == want.out.Load()
		}
		if !within(patience, same) {
			r.t.Errorf("%s: %d bytes in and %d out are counted, want %d and %d", w, got.BytesIn, got.BytesOut, want.in.Load(), want.out.Load())
		}
	}
}

// TestRoomBytes counts the bytes of requests and answers of each class: of those that enter at once and of those
// that wait, of long bodies, of many on one connection, of what is lost and sent again, and of lines of which nobody
// knows what they are.
func TestRoomBytes(t *testing.T) {
	t.Parallel()
	const long = 3 << 20
	for name, test := range map[string]struct {
		service string
		losses  float64
	}{
		"places are plenty": {service: "concurrency: 100"},
		"one place":         {service: "concurrency: 1"},
		"unlimited":         {service: "concurrency: unlimited"},
		"losses":            {service: "concurrency: 100", losses: 0.02},
		"losses, one place": {service: "concurrency: 1", losses: 0.02},
	} {
		t.Run(name, func(t *testing.T) {
			s := sharedScene(t, plain, false)
			s.origin(origin.Config{Body: long})
			r := s.enforce(roomPolicy{service: test.service})
			if test.losses > 0 {
				nettest.Check(t, s.client.LosePackets(lab.Dev, test.losses))
				s.changed = true
			}
			of := map[who]*carried{gold: {}, bronze: {}}
			a, b := s.visitCounted(gold, of[gold]), s.visitCounted(bronze, of[bronze])
			for i := range 12 { // the long form becomes the short one meanwhile, where it may
				a.get("/")
				a.wants(http.StatusOK)
				if i%4 == 0 {
					b.post("/", strings.Repeat("x", 200<<10)) // as much as its server reads behind the answer
					b.wants(http.StatusOK)
				}
			}
			r.counts(of)
		})
	}
	t.Run("held", func(t *testing.T) {
		s := sharedScene(t, plain, false)
		s.origin(origin.Config{})
		r := s.enforce(roomPolicy{})
		of := map[who]*carried{gold: {}, bronze: {}}
		first, next := s.visitCounted(bronze, of[bronze]), s.visitCounted(gold, of[gold])
		first.get("/wait?for=first")
		r.await(1, 0)
		next.get("/")
		r.await(1, 1)
		r.letGo("first")
		first.wants(http.StatusOK)
		next.wants(http.StatusOK)
		r.counts(of)
	})
	t.Run("lines", func(t *testing.T) {
		s := sharedScene(t, plain, false)
		s.origin(origin.Config{Lines: true, Banner: "hello"})
		r := s.enforce(roomPolicy{service: "protocol: tcp"})
		of := map[who]*carried{gold: {}, bronze: {}}
		v := s.visitCounted(gold, of[gold])
		v.hears("hello")
		for range 3 {
			v.says("a line")
		}
		r.counts(of)
	})
}
