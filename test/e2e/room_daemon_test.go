// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

// Who waits when the daemon is killed keeps its place, whether a new daemon comes or not.
func TestRoomOutlivesTheDaemon(t *testing.T) {
	t.Parallel()
	for _, adopted := range []bool{true, false} {
		t.Run(fmt.Sprintf("adopted=%v", adopted), func(t *testing.T) {
			r, first := blocked(t, roomPolicy{service: "queue: {max_wait: 50s}"}, origin.Config{})
			b1 := r.queue(bronze, "/b1", 1)
			b2 := r.queue(bronze, "/b2", 2)
			r.stop(syscall.SIGKILL)
			// Nobody counts for us now.
			g1 := r.visit(gold)
			g1.get("/g1")
			g1.silent(200 * time.Millisecond)
			if adopted {
				r.instance.start()
				if !r.status().Adopted {
					t.Error("the daemon did not adopt what it found")
				}
				r.await(1, 3)
			}
			r.letGo("first")
			for _, v := range []*visitor{first, g1, b1, b2} {
				v.wants(http.StatusOK)
			}
			r.wasAsked("/wait?for=first", "/g1", "/b1", "/b2")
			if !adopted {
				r.instance.start()
			}
			r.calm()
		})
	}
}

// A reload takes nobody's place, and new priorities count at once.
func TestRoomReload(t *testing.T) {
	t.Parallel()
	r, first := blocked(t, roomPolicy{service: "queue: {max_wait: 50s}"}, origin.Config{})
	b1 := r.queue(bronze, "/b1", 1)
	g1 := r.queue(gold, "/g1", 2)
	b2 := r.queue(bronze, "/b2", 3)
	swapped := strings.NewReplacer("gold, priority: 1", "gold, priority: 2", "bronze, priority: 2", "bronze, priority: 1")
	r.reload(swapped.Replace(roomPolicy{service: "queue: {max_wait: 50s}"}.String()))
	r.await(1, 3)
	r.letGo("first")
	for _, v := range []*visitor{first, b1, b2, g1} {
		v.wants(http.StatusOK)
	}
	r.wasAsked("/wait?for=first", "/b1", "/b2", "/g1")
	r.calm()
}

// A reload that takes the waiting room away, or the service, leaves nobody waiting.
func TestRoomIsTakenAway(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, service string }{
		{"unlimited", "concurrency: unlimited"},
		{"shadow", "concurrency: 1, mode: shadow"},
		{"another port", `concurrency: 1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, first := blocked(t, roomPolicy{}, origin.Config{})
			v := r.queue(bronze, "/b", 1)
			next := roomPolicy{service: c.service}.String()
			if c.name == "another port" {
				next = strings.Replace(next, "*:80", "*:82", 1)
			}
			r.reload(next)
			resp, _, err := v.answer()
			if err != nil || resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("who waited: %v, error %v; want 200 or 503", resp, err)
			}
			r.letGo("first")
			first.wants(http.StatusOK)
			g := r.visit(gold)
			g.get("/")
			g.wants(http.StatusOK)
		})
	}
}

// More room lets in at once those who wait; less room holds back.
func TestRoomSetConcurrency(t *testing.T) {
	t.Parallel()
	r, first := blocked(t, roomPolicy{service: "queue: {max_wait: 50s}"}, origin.Config{})
	b1 := r.queue(bronze, "/wait?for=b1", 1)
	g1 := r.queue(gold, "/wait?for=g1", 2)
	b2 := r.queue(bronze, "/b2", 3)
	must(t, r.command("set", "services.web.concurrency", "3")...)
	r.await(3, 1)
	must(t, r.command("set", "services.web.concurrency", "1")...)
	r.letGo("first")
	first.wants(http.StatusOK)
	r.await(2, 1)
	r.letGo("g1")
	g1.wants(http.StatusOK)
	r.await(1, 1)
	if got := len(r.asked()); got != 3 {
		t.Errorf("the server was asked %d times, want 3", got)
	}
	r.letGo("b1")
	b1.wants(http.StatusOK)
	b2.wants(http.StatusOK)
	r.calm()
}

// At the end of the daemon those who wait are let in, or answered.
func TestRoomStop(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		r, first := blocked(t, roomPolicy{}, origin.Config{})
		waiting := []*visitor{r.queue(bronze, "/b", 1), r.queue(gold, "/g", 2)}
		if code := r.stop(signal); code != 0 {
			t.Errorf("exit code %d", code)
		}
		for _, v := range waiting {
			v.wants(http.StatusOK)
		}
		r.letGo("first")
		first.wants(http.StatusOK)
		v := r.visit(gold)
		v.get("/")
		v.wants(http.StatusOK)
	}
}

// Whom the server has no room for at the end is answered all the same.
func TestRoomStopWithAFullAcceptQueue(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, plain, false)
	server := s.origin(origin.Config{Backlog: 2, Workers: 1})
	r := s.enforce(roomPolicy{})
	first := r.visit(bronze)
	first.get("/wait?for=first")
	r.await(1, 0)
	var waiting []*visitor
	for i := range 6 {
		v := r.visit(gold)
		v.send(string(ask("/"))) // the answer ends the connection: the next one gets the worker
		r.await(1, i+1)
		waiting = append(waiting, v)
	}
	resume := r.pause(server)
	r.stop(syscall.SIGTERM)
	resume()
	r.letGo("first")
	first.wants(http.StatusOK)
	first.conn.Close()
	for _, v := range waiting {
		resp, _, err := v.answer()
		if err != nil || resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("who waited: %v, error %v; want 200 or 503", resp, err)
		}
		v.conn.Close()
	}
}

// What a start on lo changes there goes with it, however the daemon ends.
func TestRoomRestoresLoopback(t *testing.T) {
	t.Parallel()
	keys := []string{"ipv4/conf/lo/route_localnet", "ipv4/conf/lo/accept_local"}
	for _, c := range []struct {
		name string
		was  string
		end  func(r *room)
	}{
		{"stop", "0", func(r *room) { r.stop(syscall.SIGTERM) }},
		{"detach", "0", func(r *room) {
			r.stop(syscall.SIGKILL)
			must(r.t, r.command("detach")...)
		}},
		{"stop, as it was", "1", func(r *room) { r.stop(syscall.SIGTERM) }},
		{"adopted", "0", func(r *room) {
			r.stop(syscall.SIGKILL)
			r.instance.start()
			r.stop(syscall.SIGTERM)
		}},
		{"another interface", "0", func(r *room) {
			r.reload(strings.Replace(roomPolicy{}.String(), "concurrency: 1", "concurrency: unlimited", 1))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t, lo, false)
			for _, key := range keys {
				nettest.Check(t, s.server.Sysctl(key, c.was))
			}
			s.origin(origin.Config{})
			r := s.enforce(roomPolicy{})
			for _, key := range keys {
				if got, err := s.server.ReadSysctl(key); err != nil || got != "1" {
					t.Errorf("%s is %q while attached (error: %v)", key, got, err)
				}
			}
			had := r.programs()
			c.end(r)
			for _, key := range keys {
				if got, err := s.server.ReadSysctl(key); err != nil || got != c.was {
					t.Errorf("%s is %q afterwards (error: %v), want %q", key, got, err, c.was)
				}
			}
			if r.cmd == nil {
				r.nothingLeft(had)
			}
			v := s.visit(gold)
			v.get("/")
			v.wants(http.StatusOK)
		})
	}
}

// Connections that were there before the daemon came are served, and take their turn.
func TestRoomFindsConnections(t *testing.T) {
	t.Parallel()
	s := newScene(t, plain, false)
	s.origin(origin.Config{})
	idle, busy := s.visit(gold), s.visit(bronze)
	idle.get("/")
	idle.wants(http.StatusOK)
	busy.get("/wait?for=busy")
	eventually(t, "the server works", func() bool { return len(s.asked()) == 2 })
	r := s.enforce(roomPolicy{})
	for _, v := range []*visitor{idle, idle} {
		v.get("/")
		v.wants(http.StatusOK)
	}
	s.letGo("busy")
	busy.wants(http.StatusOK)
	busy.get("/")
	busy.wants(http.StatusOK)
	r.calm()
}
