// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"io"
	"net/http"
	"syscall"
	"testing"

	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

// A client's reset is no reason to let in more than the limit: the server may still be at work, also when other
// requests take no time, and when many of them are reset meanwhile.
func TestRoomResetsDoNotWidenTheLimit(t *testing.T) {
	t.Parallel()
	t.Run("requests before them took no time", func(t *testing.T) {
		s := sharedScene(t, plain, false)
		s.origin(origin.Config{})
		r := s.enforce(roomPolicy{})
		for range 3 {
			v := r.visit(bronze)
			v.get("/")
			v.wants(http.StatusOK)
		}
		for i := range uint64(10) {
			v := r.visit(bronze)
			v.get("/wait?ms=1500")
			eventually(t, "it has come", func() bool { return r.class(bronze).Arrived == 4+i })
			v.reset()
		}
		if got := len(r.asked()); got > 3+3 {
			t.Errorf("the server was asked %d times by clients that reset at once, with a limit of 1", got-3)
		}
		r.calm()
	})
	t.Run("others are reset and closed meanwhile", func(t *testing.T) {
		s := sharedScene(t, plain, false)
		s.origin(origin.Config{})
		r := s.enforce(roomPolicy{service: "concurrency: 2"})
		long := r.visit(bronze)
		long.get("/wait?for=first")
		r.await(1, 0)
		long.reset()
		for range 300 {
			v := r.visit(gold)
			v.get("/wait?ms=1")
			v.reset()
		}
		r.await(1, 0)
		r.letGo("first")
		r.calm()
	})
}

// A reset in the middle of an answer that ends its connection frees no place: the server is still at it.
func TestRoomResetWithinAnswer(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, plain, false)
	s.origin(origin.Config{})
	r := s.enforce(roomPolicy{})
	v := r.visit(bronze)
	v.send("GET /stream?for=first HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	resp, err := http.ReadResponse(v.r, nil)
	nettest.Check(t, err)
	// All that is said at first: a server that is still writing then closes the connection (net/http does).
	_, err = io.ReadFull(resp.Body, make([]byte, lab.FileBytes))
	nettest.Check(t, err)
	v.reset()
	g := r.queue(gold, "/g", 1)
	r.wasAsked("/stream?for=first")
	r.letGo("first")
	g.wants(http.StatusOK)
	r.calm()
}

// Connections that end in the accept queue with their listener leave nothing behind, whether their clients are
// still there or have reset them.
func TestRoomListenerEndsBeforeAccept(t *testing.T) {
	t.Parallel()
	for name, leaves := range map[string]bool{"reset before": true, "still there": false} {
		t.Run(name, func(t *testing.T) {
			s := sharedScene(t, plain, false)
			server := s.origin(origin.Config{})
			r := s.enforce(roomPolicy{service: "concurrency: 3"})
			if err := server.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				v := r.visit(bronze)
				v.get("/gone")
				if leaves {
					v.reset()
				}
			}
			r.await(3, 0) // they wait to be accepted, which makes work
			if err := server.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			r.await(0, 0)
			s.origin(origin.Config{})
			r.calm()
		})
	}
}
