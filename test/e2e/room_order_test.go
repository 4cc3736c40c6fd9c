// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"narthex/internal/lab/origin"
	"narthex/internal/load"
	"narthex/test/nettest"
)

// The higher class goes first; within a class, who came first.
func TestRoomOrder(t *testing.T) {
	t.Parallel()
	for _, w := range []struct {
		wire wire
		v6   bool
	}{{plain, false}, {plain, true}, {vlan, false}, {lo, false}, {lo, true}} {
		t.Run(fmt.Sprintf("%s/v6=%v", w.wire, w.v6), func(t *testing.T) {
			s := sharedScene(t, w.wire, w.v6)
			s.origin(origin.Config{})
			r := s.enforce(roomPolicy{})
			first := r.visit(bronze)
			first.get("/wait?for=first")
			r.await(1, 0)
			b1 := r.queue(bronze, "/b1", 1)
			b2 := r.queue(bronze, "/b2", 2)
			g1 := r.queue(gold, "/g1", 3)
			r.wasAsked("/wait?for=first")
			r.letGo("first")
			for _, v := range []*visitor{first, g1, b1, b2} {
				v.wants(http.StatusOK)
			}
			r.wasAsked("/wait?for=first", "/g1", "/b1", "/b2")
			r.calm()
		})
	}
}

// A full queue rejects the newcomer, unless it ranks higher than somebody who waits.
func TestRoomQueueFull(t *testing.T) {
	t.Parallel()
	r, first := blocked(t, roomPolicy{service: "queue: {size: 2}"}, origin.Config{})
	b1 := r.queue(bronze, "/b1", 1)
	b2 := r.queue(bronze, "/b2", 2)

	b3 := r.visit(bronze)
	b3.get("/b3")
	b3.isRejected()
	g1 := r.visit(gold)
	g1.get("/g1")
	b1.isRejected()
	r.await(1, 2)
	g2 := r.visit(gold)
	g2.get("/g2")
	b2.isRejected()
	g3 := r.visit(gold)
	g3.get("/g3")
	g3.isRejected()

	out, err := r.client.Command("curl", "-sS", "-i", "--max-time", "10", "--interface", r.addr(bronze).String(), "http://"+r.to.String()+"/").CombinedOutput()
	if head := strings.ToLower(string(out)); err != nil || !strings.HasPrefix(head, "http/1.1 503 ") ||
		!strings.Contains(head, "retry-after: 1") || !strings.Contains(head, "connection: close") {
		t.Errorf("curl: %v\n%s", err, out)
	}
	r.letGo("first")
	for _, v := range []*visitor{first, g1, g2} {
		v.wants(http.StatusOK)
	}
	r.wasAsked("/wait?for=first", "/g1", "/g2")
	got := r.read()
	if b, g := got.class(bronze).Rejected, got.class(gold).Rejected; b["displaced"] != 2 || b["queue_full"] != 2 || g["queue_full"] != 1 {
		t.Errorf("rejected: bronze %v, gold %v", b, g)
	}
	r.calm()
}

func TestRoomWithoutAQueue(t *testing.T) {
	t.Parallel()
	r, first := blocked(t, roomPolicy{service: "queue: {size: 0}"}, origin.Config{})
	for range 3 {
		v := r.visit(gold)
		v.get("/")
		v.isRejected()
	}
	r.letGo("first")
	first.wants(http.StatusOK)
	r.calm()
}

func TestRoomRejectsAsToldTo(t *testing.T) {
	t.Parallel()
	t.Run("reset", func(t *testing.T) {
		r, first := blocked(t, roomPolicy{service: "queue: {size: 1}, reject: {reset: true}"}, origin.Config{})
		waiting := r.queue(bronze, "/", 1)
		newcomer := r.visit(bronze)
		newcomer.get("/")
		newcomer.isReset()
		g := r.visit(gold)
		g.get("/")
		waiting.isReset()
		r.letGo("first")
		first.wants(http.StatusOK)
		g.wants(http.StatusOK)
		r.calm()
	})
	t.Run("status", func(t *testing.T) {
		r, first := blocked(t, roomPolicy{service: "queue: {size: 0}, reject: {status: 429, retry_after: 7s}"}, origin.Config{})
		v := r.visit(gold)
		v.get("/")
		if resp, _ := v.wants(http.StatusTooManyRequests); resp.Header.Get("Retry-After") != "7" {
			t.Errorf("header: %v", resp.Header)
		}
		v.isClosed()
		r.letGo("first")
		first.wants(http.StatusOK)
		r.calm()
	})
}

// Who has waited for max_wait is answered, though nothing is released.
func TestRoomMaxWait(t *testing.T) {
	t.Parallel()
	t.Run("alone", func(t *testing.T) {
		r, first := blocked(t, roomPolicy{service: "queue: {max_wait: 500ms}"}, origin.Config{})
		began := time.Now()
		v := r.queue(bronze, "/", 1)
		v.isRejected()
		if took := time.Since(began); took < 400*time.Millisecond {
			t.Errorf("rejected after %v", took)
		}
		r.letGo("first")
		first.wants(http.StatusOK)
		if n := r.class(bronze).Rejected["max_wait"]; n != 1 {
			t.Errorf("%d rejected for max_wait, want 1", n)
		}
		r.calm()
	})
	// Without a daemon somebody's packet must bring it about.
	t.Run("without a daemon", func(t *testing.T) {
		r, first := blocked(t, roomPolicy{service: "queue: {max_wait: 1s}"}, origin.Config{})
		v := r.queue(bronze, "/", 1)
		r.stop(9)
		time.Sleep(1200 * time.Millisecond)
		other := r.visit(gold)
		other.get("/")
		v.isRejected()
		r.letGo("first")
		first.wants(http.StatusOK)
		other.wants(http.StatusOK)
		r.instance.start()
		r.calm()
	})
}

// Shadow mode holds nobody and counts whom it would have held.
func TestRoomShadow(t *testing.T) {
	t.Parallel()
	r, first := blocked(t, roomPolicy{service: "mode: shadow"}, origin.Config{})
	const more = 4
	for i := range more {
		v := r.visit(who(2 + i%2))
		v.get("/")
		v.wants(http.StatusOK)
	}
	got := r.read().sum()
	if got.Held != 0 || got.WouldHold != more || got.Admitted != more+1 {
		t.Errorf("%+v, want %d admitted and would_hold for %d", got, more+1, more)
	}
	r.letGo("first")
	first.wants(http.StatusOK)
	r.calm()
}

// A source that passes by every control is neither held nor counted.
func TestRoomPass(t *testing.T) {
	t.Parallel()
	r, first := blocked(t, roomPolicy{}, origin.Config{})
	b := r.queue(bronze, "/b", 1)
	before := r.read().sum()
	for range 3 {
		v := r.visit(free)
		v.get("/free")
		v.wants(http.StatusOK)
		v.get("/free")
		v.wants(http.StatusOK)
	}
	if got := r.read().sum(); got.Arrived != before.Arrived {
		t.Errorf("%d arrived, want the %d from before", got.Arrived, before.Arrived)
	}
	r.letGo("first")
	first.wants(http.StatusOK)
	b.wants(http.StatusOK)
	r.calm()
}

// A class at its own bound waits, and those below go by it.
func TestRoomClassMax(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, plain, false)
	s.origin(origin.Config{})
	r := s.enforce(roomPolicy{service: "concurrency: 2", gold: "max: 1"})
	g1 := r.visit(gold)
	g1.get("/wait?for=g1")
	r.await(1, 0)
	g2 := r.visit(gold)
	g2.get("/g2")
	r.await(1, 1)
	b := r.visit(bronze)
	b.get("/b")
	b.wants(http.StatusOK)
	r.await(1, 1)
	r.letGo("g1")
	g1.wants(http.StatusOK)
	g2.wants(http.StatusOK)
	r.wasAsked("/wait?for=g1", "/b", "/g2")
	r.calm()
}

// A reserve gives the lower class its share of the admissions, no more and no less.
func TestRoomReserve(t *testing.T) {
	t.Parallel()
	for _, percent := range []int{0, 10} {
		t.Run(fmt.Sprint(percent), func(t *testing.T) {
			s := sharedScene(t, plain, false)
			s.origin(origin.Config{Sleep: 3 * time.Millisecond})
			p := roomPolicy{service: "queue: {max_wait: 5s}"}
			if percent > 0 {
				p.bronze = fmt.Sprintf("reserve: %d%%", percent)
			}
			r := s.enforce(p)
			var runs []*load.Run
			for _, w := range []who{gold, bronze} {
				run, err := load.Closed{
					Client:  load.Client{NS: s.client, Target: s.to, Sources: []netip.Addr{s.addr(w)}, Duration: 4 * time.Second},
					Clients: 32, // so that there are always some of each class
				}.Start(t.Context())
				nettest.Check(t, err)
				runs = append(runs, run)
			}
			eventually(t, "both classes wait", func() bool {
				got := r.read()
				return got.class(gold).Waiting > 2 && got.class(bronze).Waiting > 2
			})
			begin := r.read()
			time.Sleep(2 * time.Second)
			end := r.read()
			for _, run := range runs {
				_, err := run.Wait()
				nettest.Check(t, err)
			}
			g := float64(end.class(gold).Released - begin.class(gold).Released)
			b := float64(end.class(bronze).Released - begin.class(bronze).Released)
			t.Logf("released: %v gold, %v bronze", g, b)
			if share := 100 * b / (g + b); g+b < 100 || share < float64(percent-3) || share > float64(percent+3) {
				t.Errorf("bronze has %.1f %% of %v releases, want %d %%", share, g+b, percent)
			}
			r.calm()
		})
	}
}

// The server can read the class from the socket.
func TestRoomMarksSockets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		cfg     origin.Config
		service string
		gold    origin.Socket
		bronze  origin.Socket
	}{
		{"priority", origin.Config{NoMPTCP: true}, "", origin.Socket{Priority: 6}, origin.Socket{}},
		{"mark", origin.Config{NoMPTCP: true}, "socket_mark: 0x100", origin.Socket{Priority: 6, Mark: 0x100}, origin.Socket{Mark: 0x101}},
		{"MPTCP listener", origin.Config{}, "socket_mark: 0x100", origin.Socket{Priority: 6, Mark: 0x100}, origin.Socket{Mark: 0x101}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, first := blocked(t, roomPolicy{service: c.service}, c.cfg)
			held := r.queue(gold, "/socket", 1)
			r.letGo("first")
			first.wants(http.StatusOK)
			r.await(0, 0)
			free := r.visit(bronze)
			free.get("/socket")
			for _, v := range []struct {
				*visitor
				want origin.Socket
			}{{held, c.gold}, {free, c.bronze}} {
				var got origin.Socket
				_, body := v.wants(http.StatusOK)
				nettest.Check(t, json.Unmarshal(body, &got))
				if got != v.want {
					t.Errorf("%s: the server sees %+v, want %+v", v.who, got, v.want)
				}
			}
			r.calm()
		})
	}
}
