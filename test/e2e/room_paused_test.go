// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

// pauses waits until so many times somebody of a class has left service for want of its body.
func (r *room) pauses(w who, n uint64) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("%d paused", n), func() bool { return r.class(w).Paused >= n })
}

// Bodies that do not come do not keep others out, and are taken when they come.
func TestRoomPausedBodies(t *testing.T) {
	t.Parallel()
	for _, framing := range []struct {
		name string
		head func(host string) string
		body string
	}{
		{"length", func(host string) string { return postHead(host, "/echo", 10) }, "0123456789"},
		{"chunks", func(string) string { return chunkedHead }, "a\r\n0123456789\r\n0\r\n\r\n"},
	} {
		for _, first := range []int{0, 4} {
			t.Run(fmt.Sprintf("%s/%d", framing.name, first), func(t *testing.T) {
				s := sharedScene(t, plain, false)
				s.origin(origin.Config{})
				r := s.enforce(roomPolicy{service: "concurrency: 2, queue: {max_wait: 20s}"})
				const crowd = 20
				var all []*visitor
				for range crowd {
					v := r.visit(bronze)
					v.send(framing.head(v.host) + framing.body[:first])
					all = append(all, v)
				}
				g := r.visit(gold)
				for range 5 {
					g.get("/")
					g.wants(http.StatusOK)
				}
				r.pauses(bronze, crowd)
				r.await(0, 0)
				if got := r.class(bronze); got.Paused != crowd || got.Arrived != crowd || got.Served != 0 {
					t.Errorf("%+v, want %d arrived and paused", got, crowd)
				}
				for _, v := range all {
					v.send(framing.body[first:])
				}
				for _, v := range all {
					v.echoed("0123456789")
				}
				if got := r.class(bronze); got.Paused != crowd || got.Arrived != 2*crowd || got.Served != crowd {
					t.Errorf("%+v, want %d arrived", got, 2*crowd)
				}
				for _, v := range all[:3] {
					v.get("/next")
					v.wants(http.StatusOK)
				}
				r.calm()
			})
		}
	}
}

// A body that goes on takes its turn: it waits where there is no room, may be rejected, and
// pauses again.
func TestRoomPausedTakesItsTurn(t *testing.T) {
	t.Parallel()
	paused := func(r *room, length int) *visitor {
		before := r.class(bronze).Paused
		v := r.visit(bronze)
		v.send(postHead(v.host, "/echo", length))
		r.pauses(bronze, before+1)
		r.await(0, 0)
		return v
	}
	start := func(t *testing.T, queue string) *room {
		s := sharedScene(t, plain, false)
		s.origin(origin.Config{})
		return s.enforce(roomPolicy{service: "queue: {" + queue + "}"})
	}
	t.Run("waits", func(t *testing.T) {
		r := start(t, "max_wait: 20s")
		v := paused(r, 10)
		unblock := r.block(gold)
		b := r.queue(bronze, "/b", 1)
		v.send("01234")
		r.await(1, 2)
		v.send("56789")
		g := r.queue(gold, "/g", 3)
		unblock()
		for _, v := range []*visitor{g, b} {
			v.wants(http.StatusOK)
		}
		v.echoed("0123456789")
		if got := r.class(bronze); got.Arrived != 3 || got.Held != 2 || got.Paused != 1 {
			t.Errorf("%+v, want 3 arrived, 2 held, 1 paused", got)
		}
		v.get("/next")
		v.wants(http.StatusOK)
		r.calm()
	})
	t.Run("waits with much", func(t *testing.T) {
		r := start(t, "max_wait: 20s")
		body := strings.Repeat("0123456789abcdef", 1<<14)
		v := paused(r, len(body))
		unblock := r.block(gold)
		sent := v.sendLater(body)
		r.await(1, 1)
		unblock()
		v.echoed(body)
		<-sent
		r.calm()
	})
	t.Run("rejected", func(t *testing.T) {
		r := start(t, "size: 0")
		v := paused(r, 10)
		unblock := r.block(gold)
		v.send("01234")
		v.isRejected()
		unblock()
		r.calm()
	})
	t.Run("max_wait", func(t *testing.T) {
		r := start(t, "max_wait: 500ms")
		v := paused(r, 10)
		unblock := r.block(gold)
		v.send("01234")
		v.isRejected()
		unblock()
		r.calm()
	})
	t.Run("pauses again", func(t *testing.T) {
		r := start(t, "max_wait: 20s")
		v := paused(r, 3)
		for i := range 3 {
			if i > 0 {
				r.pauses(bronze, uint64(i+1))
			}
			r.await(0, 0)
			v.send(fmt.Sprint(i))
		}
		v.echoed("012")
		if got := r.class(bronze); got.Arrived != 4 || got.Admitted != 4 || got.Paused != 3 || got.Served != 1 {
			t.Errorf("%+v, want 4 arrived and admitted, 3 paused, 1 served", got)
		}
		r.calm()
	})
	t.Run("out of the queue", func(t *testing.T) {
		r := start(t, "max_wait: 20s")
		unblock := r.block(gold)
		v := r.visit(bronze)
		v.send(postHead(v.host, "/echo", 5))
		r.await(1, 1)
		unblock()
		r.pauses(bronze, 1)
		r.await(0, 0)
		v.send("hello")
		v.echoed("hello")
		r.calm()
	})
}

// A server that answers without the body, and clients that go.
func TestRoomPausedEnds(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T) (*room, *visitor) {
		s := sharedScene(t, plain, false)
		s.origin(origin.Config{})
		r := s.enforce(roomPolicy{service: "queue: {max_wait: 5s}"})
		v := r.visit(bronze)
		v.send(postHead(v.host, "/early?for=early", 10))
		r.pauses(bronze, 1)
		r.await(0, 0)
		return r, v
	}
	t.Run("answered", func(t *testing.T) {
		r, v := start(t)
		r.letGo("early")
		v.wants(http.StatusOK)
		unblock := r.block(gold)
		v.send("0123456789") // nobody waits for it
		v.get("/next")
		r.await(1, 1)
		unblock()
		v.wants(http.StatusOK)
		if got := r.class(bronze); got.Arrived != 2 {
			t.Errorf("%+v, want 2 arrived", got)
		}
		r.calm()
	})
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			r, v := start(t)
			way.leave(r.scene, v)
			r.calm()
		})
	}
	t.Run("vanishes while it waits again", func(t *testing.T) {
		r, v := start(t)
		unblock := r.block(gold)
		v.send("01234")
		r.await(1, 1)
		r.vanish(bronze)
		unblock()
		r.calm()
	})
	t.Run("resets while it waits again", func(t *testing.T) {
		r, v := start(t)
		unblock := r.block(gold)
		v.send("01234")
		r.await(1, 1)
		v.reset()
		r.await(1, 0)
		unblock()
		r.calm()
	})
	t.Run("the server ends", func(t *testing.T) {
		s := sharedScene(t, plain, false)
		server := s.origin(origin.Config{})
		r := s.enforce(roomPolicy{})
		v := r.visit(bronze)
		v.send(postHead(v.host, "/echo", 10))
		r.pauses(bronze, 1)
		nettest.Check(t, server.Close())
		s.origin(origin.Config{})
		_, _ = io.WriteString(v.conn, "0123456789")
		if resp, _, err := v.answer(); err == nil && resp.StatusCode == http.StatusOK {
			t.Error("it was served by a server that has not got its beginning")
		}
		r.calm()
	})
}

// A body that comes slowly, but comes, stays in service.
func TestRoomSlowUploads(t *testing.T) {
	t.Parallel()
	for _, chunked := range []bool{false, true} {
		t.Run(fmt.Sprintf("chunked=%v", chunked), func(t *testing.T) {
			s := sharedScene(t, plain, false)
			s.origin(origin.Config{})
			r := s.enforce(roomPolicy{service: "queue: {max_wait: 20s}"})
			body := strings.Repeat("x", 40)
			head, text := postHead(r.to.String(), "/echo", len(body)), body
			if chunked {
				head, text = chunkedHead, inChunks(body, 4)
			}
			// On a busy machine it may come more slowly than it has to.
			measured := within(2*patience, func() bool {
				before, held := r.class(bronze), r.class(gold).Held
				v, g := r.visit(bronze), r.visit(gold)
				v.send(head)
				sent := time.Now()
				eventually(t, "it has come", func() bool { return r.class(bronze).Arrived > before.Arrived })
				g.get("/g")
				onTime := true
				for i := range text {
					time.Sleep(30 * time.Millisecond)
					v.send(text[i : i+1])
					onTime = onTime && time.Since(sent) < 100*time.Millisecond
					sent = time.Now()
				}
				v.echoed(body)
				g.wants(http.StatusOK)
				v.conn.Close()
				g.conn.Close()
				r.await(0, 0)
				got := r.class(bronze)
				if !onTime && got.Paused > before.Paused {
					return false
				}
				if got.Paused != before.Paused || got.Arrived != before.Arrived+1 || r.class(gold).Held != held+1 {
					t.Errorf("%+v, want one more than %d arrived, nobody paused, and the other one held", got, before.Arrived)
				}
				return true
			})
			if !measured {
				t.Error("the machine is too busy to send a byte every 100 ms")
			}
			r.calm()
		})
	}
}

// A server that works on a request whose body is there is not paused, however long it takes.
func TestRoomSilentWork(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, plain, false)
	s.origin(origin.Config{})
	r := s.enforce(roomPolicy{service: "queue: {max_wait: 20s}"})
	v := r.visit(bronze)
	v.post("/wait?for=first", "0123456789")
	r.await(1, 0)
	g := r.queue(gold, "/g", 1)
	time.Sleep(4 * quiet)
	r.await(1, 1)
	r.letGo("first")
	v.wants(http.StatusOK)
	g.wants(http.StatusOK)
	if got := r.class(bronze); got.Paused != 0 {
		t.Errorf("%+v, want nobody paused", got)
	}
	r.calm()
}
