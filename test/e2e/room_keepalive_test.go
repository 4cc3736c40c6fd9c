// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

// Every request on a connection counts and takes its turn.
func TestRoomKeepAlive(t *testing.T) {
	t.Parallel()
	for _, server := range roomServers {
		if server.name == "python-1.0" {
			continue
		}
		t.Run(server.name, func(t *testing.T) {
			s := sharedScene(t, plain, false)
			srv := server.start(s)
			r := s.enforce(roomPolicy{})
			v := r.visit(bronze)
			for i := range 5 {
				v.get(lab.File)
				if _, body := v.wants(http.StatusOK); len(body) != lab.FileBytes {
					t.Errorf("request %d: %d bytes", i, len(body))
				}
			}
			r.await(0, 0)
			if got := r.class(bronze); got.Arrived != 5 || got.Admitted != 5 {
				t.Errorf("%+v, want 5 arrived and admitted", got)
			}
			// Its sixth waits, like anybody's.
			resume := r.pause(srv)
			g := r.visit(gold)
			g.get("/")
			r.await(1, 0)
			v.get(lab.File)
			r.await(1, 1)
			resume()
			g.wants(http.StatusOK)
			v.wants(http.StatusOK)
			v.get(lab.File)
			v.wants(http.StatusOK)
			v.conn.Close()
			g.conn.Close()
			r.calm()
		})
	}
}

// Clients whose connections are ended after so many requests lose none: they ask again on another.
func TestRoomRequestsPerConnection(t *testing.T) {
	t.Parallel()
	for _, server := range roomServers {
		if server.name == "python-1.0" {
			continue
		}
		t.Run(server.name, func(t *testing.T) {
			s := sharedScene(t, plain, false)
			server.start(s)
			r := s.enforce(roomPolicy{service: "concurrency: 4, requests_per_connection: 2"})
			url := "http://" + s.to.String() + lab.File
			args := []string{"-sS", "--max-time", "30", "--interface", s.addr(bronze).String(), "-w", "%{http_code} %{num_connects}\n"}
			for range 6 {
				args = append(args, "-o", "/dev/null", url)
			}
			out, err := s.client.Command("curl", args...).CombinedOutput()
			if want := strings.Repeat("200 1\n200 0\n", 3); err != nil || string(out) != want {
				t.Errorf("curl: %q, error %v, want %q", out, err, want)
			}
			r.await(0, 0)
			if got := r.class(bronze); got.Admitted != 6 {
				t.Errorf("%+v, want 6 admitted", got)
			}
			r.calm()
		})
	}
}

// A connection that has been served goes to the end of the queue with its next request.
func TestRoomKeepAliveOrder(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, plain, false)
	s.origin(origin.Config{})
	r := s.enforce(roomPolicy{})
	kept := r.visit(bronze)
	kept.get("/1")
	kept.wants(http.StatusOK)
	first := r.visit(bronze)
	first.get("/wait?for=first")
	r.await(1, 0)
	b := r.queue(bronze, "/b", 1)
	kept.get("/2")
	r.await(1, 2)
	g := r.queue(gold, "/g", 3)
	r.letGo("first")
	for _, v := range []*visitor{first, b, kept, g} {
		v.wants(http.StatusOK)
	}
	r.wasAsked("/1", "/wait?for=first", "/g", "/b", "/2")
	r.calm()
}

// Requests in one segment are told apart: the second waits for its turn.
func TestRoomPipelined(t *testing.T) {
	t.Parallel()
	r, first := blocked(t, roomPolicy{}, origin.Config{})
	v := r.visit(gold)
	v.send(getRequest(v.host, "/wait?for=second") + getRequest(v.host, "/third"))
	r.await(1, 1)
	b := r.queue(bronze, "/b", 2)
	r.letGo("first")
	first.wants(http.StatusOK)
	eventually(t, "the second is in service", func() bool { return len(r.asked()) == 2 })
	r.letGo("second")
	v.wants(http.StatusOK)
	v.wants(http.StatusOK)
	b.wants(http.StatusOK)
	if got := r.class(gold); got.Arrived != 2 {
		t.Errorf("%+v, want 2 arrived", got)
	}
	r.calm()
}

// A request that comes byte by byte is one request, and waits.
func TestRoomByteByByte(t *testing.T) {
	t.Parallel()
	for _, free := range []bool{true, false} {
		t.Run(fmt.Sprintf("room=%v", free), func(t *testing.T) {
			r, first := blocked(t, roomPolicy{}, origin.Config{})
			if free {
				r.letGo("first")
				first.wants(http.StatusOK)
				r.await(0, 0)
			}
			v := r.visit(gold)
			conn, err := tcpConn(v.conn)
			nettest.Check(t, err)
			nettest.Check(t, conn.SetNoDelay(true))
			for _, c := range getRequest(v.host, "/bytes") {
				v.send(string(c))
				time.Sleep(2 * time.Millisecond)
			}
			if !free {
				r.await(1, 1)
				r.wasAsked("/wait?for=first")
				r.letGo("first")
				first.wants(http.StatusOK)
			}
			v.wants(http.StatusOK)
			r.wasAsked("/wait?for=first", "/bytes")
			if got := r.class(gold); got.Arrived != 1 {
				t.Errorf("%+v, want 1 arrived", got)
			}
			r.calm()
		})
	}
}

// A head of several segments is held and served whole.
func TestRoomLongHead(t *testing.T) {
	t.Parallel()
	for _, segmented := range []bool{true, false} {
		t.Run(fmt.Sprintf("segmented=%v", segmented), func(t *testing.T) {
			s := newScene(t, plain, false)
			if segmented {
				for _, o := range []lab.Offload{lab.TSO, lab.GSO} {
					nettest.Check(t, s.client.SetOffload(lab.Dev, o, false))
				}
				nettest.Check(t, s.server.SetOffload(lab.Dev, lab.GRO, false))
			}
			s.origin(origin.Config{})
			r := s.enforce(roomPolicy{})
			var want []string
			for _, length := range []int{1400, 3000, 6000, 12000} {
				unblock := r.block(bronze)
				v := r.visit(gold)
				path := fmt.Sprintf("/%d", length)
				v.send(cookies(path, length))
				r.await(1, 1)
				unblock()
				v.wants(http.StatusOK)
				v.get("/next")
				v.wants(http.StatusOK)
				r.await(0, 0)
				want = append(want, path, "/next")
			}
			r.wasNew(want...)
			r.calm()
		})
	}
}

// Bodies come through as they were sent, whenever their segments come.
func TestRoomBodies(t *testing.T) {
	t.Parallel()
	small := strings.Repeat("0123456789", 30)
	t.Run("with the head", func(t *testing.T) {
		r, first := blocked(t, roomPolicy{}, origin.Config{})
		v := r.visit(gold)
		v.post("/echo", small)
		r.await(1, 1)
		r.letGo("first")
		first.wants(http.StatusOK)
		v.echoed(small)
		v.post("/echo", small)
		v.echoed(small)
		r.calm()
	})
	t.Run("while it is held", func(t *testing.T) {
		r, first := blocked(t, roomPolicy{}, origin.Config{})
		v := r.visit(gold)
		v.send(postHead(v.host, "/echo", len(small)))
		r.await(1, 1)
		for i := 0; i < len(small); i += 100 {
			v.send(small[i : i+100])
			time.Sleep(50 * time.Millisecond)
		}
		r.letGo("first")
		first.wants(http.StatusOK)
		v.echoed(small)
		v.get("/")
		v.wants(http.StatusOK)
		r.calm()
	})
	t.Run("after it is released", func(t *testing.T) {
		r, first := blocked(t, roomPolicy{}, origin.Config{})
		v := r.visit(gold)
		v.send(postHead(v.host, "/echo", len(small)))
		r.await(1, 1)
		r.letGo("first")
		first.wants(http.StatusOK)
		v.send(small)
		v.echoed(small)
		r.calm()
	})
	t.Run("large", func(t *testing.T) {
		s := sharedScene(t, plain, false)
		s.origin(origin.Config{})
		s.enforce(roomPolicy{}).echoes(1 << 20)
	})
	t.Run("expects 100", func(t *testing.T) {
		s := sharedScene(t, plain, false)
		s.origin(origin.Config{})
		r := s.enforce(roomPolicy{})
		v := r.visit(gold)
		v.send(strings.Replace(postHead(v.host, "/echo", len(small)), "\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n", 1))
		v.wants(http.StatusContinue)
		r.await(1, 0) // an interim answer ends nothing
		v.send(small)
		v.echoed(small)
		r.calm()
	})
	t.Run("large while it is held", func(t *testing.T) {
		r, first := blocked(t, roomPolicy{}, origin.Config{})
		large := strings.Repeat("abcdefgh", 1<<15)
		v := r.visit(gold)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			_, _ = v.conn.Write([]byte(postHead(v.host, "/echo", len(large)) + large))
		}()
		r.await(1, 1)
		r.letGo("first")
		first.wants(http.StatusOK)
		<-sent
		v.echoed(large)
		r.calm()
	})
}

// echoed reads an answer that must be what was sent.
func (v *visitor) echoed(body string) {
	v.t.Helper()
	if _, got := v.wants(http.StatusOK); string(got) != body {
		v.t.Errorf("%s: %d bytes came back of %d, or others", v.who, len(got), len(body))
	}
}

// A server that closes an idle connection whose next request is held: the client is told.
func TestRoomServerClosesIdleConnection(t *testing.T) {
	t.Parallel()
	r, first := blocked(t, roomPolicy{service: "concurrency: 2"}, origin.Config{IdleTimeout: 500 * time.Millisecond})
	v := r.visit(gold)
	v.get("/")
	v.wants(http.StatusOK)
	second := r.visit(bronze)
	second.get("/wait?for=first")
	r.await(2, 0)
	v.get("/never")
	r.await(2, 1)
	v.isRejected()
	r.letGo("first")
	first.wants(http.StatusOK)
	second.wants(http.StatusOK)
	for _, uri := range r.asked() {
		if uri == "/never" {
			t.Error("the request reached the server after all")
		}
	}
	if n := r.class(gold).Rejected["closed"]; n != 1 {
		t.Errorf("%d rejected as closed, want 1", n)
	}
	r.calm()
}

// The same with servers that close after a second.
func TestRoomIdleTimeouts(t *testing.T) {
	t.Parallel()
	for _, mpm := range []lab.ApacheMPM{lab.Prefork, lab.Event} {
		t.Run(string(mpm), func(t *testing.T) {
			s := sharedScene(t, plain, false)
			s.serve(s.server.StartApache(lab.ApacheConfig{Listen: s.listen(), MPM: mpm, Workers: 16, IdleTimeout: time.Second}))
			r := s.enforce(roomPolicy{})
			v := r.visit(gold)
			v.get("/")
			v.wants(http.StatusOK)
			v.isClosed() // idle, and nothing held: a plain end
			r.calm()
		})
	}
}

// A server with fewer processes than connections: those that are idle occupy its processes
// while those that were let in wait for one. Nobody waits for ever.
func TestRoomFewerProcessesThanConnections(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, plain, false)
	s.serve(s.server.StartApache(lab.ApacheConfig{Listen: s.listen(), MPM: lab.Prefork, Workers: 2, IdleTimeout: time.Second}))
	r := s.enforce(roomPolicy{})
	var all []*visitor
	for i := range 6 {
		v := r.visit(who(2 + i%2))
		v.get("/")
		all = append(all, v)
	}
	served := 0
	for _, v := range all {
		resp, _, err := v.answer()
		if err != nil || resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s: %v, error %v; want 200 or 503", v.who, resp, err)
			continue
		}
		if resp.StatusCode == http.StatusOK {
			served++
		}
	}
	if served < 2 {
		t.Errorf("%d of %d were served", served, len(all))
	}
	r.calm()
}

// A server that is restarted while requests wait: they are rejected or served by the next.
func TestRoomServerRestarts(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, plain, false)
	server := s.origin(origin.Config{})
	r := s.enforce(roomPolicy{})
	first := r.visit(bronze)
	first.get("/wait?for=first")
	r.await(1, 0)
	kept := []*visitor{r.queue(bronze, "/b", 1), r.queue(gold, "/g", 2)}
	nettest.Check(t, server.Close())
	first.conn.Close()
	s.origin(origin.Config{})
	inTheDoor := 0
	for _, v := range kept {
		resp, _, err := v.answer()
		if errors.Is(err, syscall.ECONNRESET) {
			inTheDoor++ // let in when the dying server had closed a connection, but not yet its listener
			continue
		}
		if err != nil || resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s: %v, error %v; want 200 or 503", v.who, resp, err)
		}
	}
	if inTheDoor > 1 {
		t.Errorf("%d clients were let in to a dying server, with a limit of 1", inTheDoor)
	}
	r.calm()
}
