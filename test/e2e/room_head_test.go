// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

// situations are where a request can come: on a new connection or on one that has been
// served, with room or without.
func situations(t *testing.T, run func(t *testing.T, kept, held bool)) {
	for _, kept := range []bool{false, true} {
		for _, held := range []bool{false, true} {
			t.Run(fmt.Sprintf("kept=%v/held=%v", kept, held), func(t *testing.T) { run(t, kept, held) })
		}
	}
}

// in makes visitors in such a situation, and says how to get out of it.
func in(t *testing.T, kept, held bool, n int, p roomPolicy, cfg origin.Config, args ...string) (r *room, all []*visitor, unblock func()) {
	t.Helper()
	s := sharedScene(t, plain, false, args...)
	s.origin(cfg)
	r = s.enforce(p)
	for range n {
		v := r.visit(gold)
		if kept {
			v.get("/kept")
			v.wants(http.StatusOK)
		}
		all = append(all, v)
	}
	r.await(0, 0)
	unblock = func() {}
	if held {
		unblock = r.block(bronze)
	}
	return r, all, unblock
}

// news are what the origin was asked for in such a situation, but for what that takes.
func (s *scene) news() (uris []string) {
	s.t.Helper()
	for _, uri := range s.asked() {
		if uri != "/kept" && !strings.HasPrefix(uri, "/wait?for=") {
			uris = append(uris, uri)
		}
	}
	return uris
}

func (s *scene) wasNew(want ...string) {
	s.t.Helper()
	if got := s.news(); !slices.Equal(got, want) {
		s.t.Errorf("the server was asked for %q, want %q", got, want)
	}
}

// Wherever the network cuts a request, it is one request, whole and in its turn.
func TestRoomHeadCutAnywhere(t *testing.T) {
	t.Parallel()
	situations(t, func(t *testing.T, kept, held bool) {
		const request = "POST /%02d HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
		n := len(fmt.Sprintf(request, 0)) - 1
		r, all, unblock := in(t, kept, held, n, roomPolicy{service: "queue: {max_wait: 20s}"}, origin.Config{})
		var want []string
		for i, v := range all {
			v.pieces(fmt.Sprintf(request, i), i+1)
			want = append(want, fmt.Sprintf("/%02d", i))
			if held {
				r.await(1, i+1)
			} else {
				v.wants(http.StatusOK)
			}
		}
		unblock()
		if held {
			for _, v := range all {
				v.wants(http.StatusOK)
			}
		}
		r.wasNew(want...)
		r.calm()
	})
}

// A head whose end has not come gathers: it takes no place in service, and takes none in the
// order of those who wait.
func TestRoomHeadGathers(t *testing.T) {
	t.Parallel()
	situations(t, func(t *testing.T, kept, held bool) {
		r, all, unblock := in(t, kept, held, 3, roomPolicy{service: "queue: {max_wait: 20s}"}, origin.Config{})
		before := r.read().sum().Arrived
		all[0].send("GET /0 HTTP/1.1\r\nHost: x\r\n")
		r.gathers(1)
		all[1].send("G")
		r.gathers(2)
		if got := r.read(); got.sum().Arrived != before || got.Waiting != 0 {
			t.Errorf("%+v, want nobody new arrived", got.sum())
		}
		all[2].get("/2")
		if held {
			r.await(1, 1)
			all[1].send("ET /1 HTTP/1.1\r\nHost: x\r\n\r\n")
			r.await(1, 2)
			all[0].send("\r\n")
			r.await(1, 3)
			r.gathers(0)
		} else {
			all[2].wants(http.StatusOK)
			all[1].send("ET /1 HTTP/1.1\r\nHost: x\r\n\r\n")
			all[1].wants(http.StatusOK)
			all[0].send("\r\n")
			all[0].wants(http.StatusOK)
		}
		unblock()
		if held {
			for _, v := range all {
				v.wants(http.StatusOK)
			}
		}
		r.wasNew("/2", "/1", "/0")
		r.calm()
	})
}

// A client whose kernel sends the rest of what it wrote only once the beginning is
// acknowledged.
func TestRoomNagle(t *testing.T) {
	t.Parallel()
	situations(t, func(t *testing.T, kept, held bool) {
		r, all, unblock := in(t, kept, held, 1, roomPolicy{}, origin.Config{})
		v := all[0]
		v.nagle()
		request := postHead(v.host, "/echo", 10)
		for _, part := range []string{request[:5], request[5:20], request[20:], "01234", "56789"} {
			v.send(part)
		}
		if held {
			r.await(1, 1)
		}
		unblock()
		v.echoed("0123456789")
		for range 3 { // and the next ones
			for line := range strings.Lines(getRequest(v.host, "/next")) {
				v.send(line)
			}
			v.wants(http.StatusOK)
		}
		r.wasNew("/echo", "/next", "/next", "/next")
		r.calm()
	})
}

// A head of single bytes, with a body of single bytes.
func TestRoomSingleBytes(t *testing.T) {
	t.Parallel()
	situations(t, func(t *testing.T, kept, held bool) {
		r, all, unblock := in(t, kept, held, 1, roomPolicy{}, origin.Config{})
		v := all[0]
		request := postHead(v.host, "/echo", 10) + "0123456789"
		v.pieces(request, everywhere(request)...)
		if held {
			r.await(1, 1)
		}
		unblock()
		v.echoed("0123456789")
		v.pieces(getRequest(v.host, "/next"), everywhere(getRequest(v.host, "/next"))...)
		v.wants(http.StatusOK)
		r.wasNew("/echo", "/next")
		r.calm()
	})
}

// A head longer than what a client may send before it hears anything.
func TestRoomLargeHeads(t *testing.T) {
	t.Parallel()
	situations(t, func(t *testing.T, kept, held bool) {
		lengths := []int{2000, 7000, 12000, 14000, 14480, 15000, 15800}
		r, all, unblock := in(t, kept, held, len(lengths), roomPolicy{service: "queue: {max_wait: 20s}"}, origin.Config{}, longSlots...)
		var want []string
		for i, v := range all {
			path := fmt.Sprintf("/%d", lengths[i])
			v.send(cookies(path, lengths[i]))
			want = append(want, path)
			if held {
				r.await(1, i+1)
			} else {
				v.wants(http.StatusOK)
			}
		}
		unblock()
		for _, v := range all {
			if held {
				v.wants(http.StatusOK)
			}
			v.get("/next")
			v.wants(http.StatusOK)
			want = append(want, "/next")
		}
		r.await(0, 0)
		r.wasNew(want...)
		r.calm()
	})
}

// While the kernel answers with SYN cookies nothing of a connection is known but what the
// gate has.
func TestRoomHeadsWithSYNCookies(t *testing.T) {
	t.Parallel()
	for _, backlog := range []int{1, 2, 5} {
		for _, held := range []bool{false, true} {
			t.Run(fmt.Sprintf("backlog=%d/held=%v", backlog, held), func(t *testing.T) {
				s := sharedScene(t, plain, false, longSlots...)
				s.origin(origin.Config{Backlog: backlog})
				r := s.enforce(roomPolicy{service: "queue: {max_wait: 20s}"})
				before := r.counter("TcpExtSyncookiesRecv")
				unblock := func() {}
				if held {
					unblock = r.block(bronze)
				}
				for range backlog + 1 {
					r.visit(bronze) // says nothing, and stays half open
				}
				requests := []string{cookies("/0", 15000), getRequest("x", "/1"), cookies("/2", 3000), getRequest("x", "/3")}
				var all []*visitor
				for i, request := range requests {
					v := r.visit(gold)
					if i%2 == 0 {
						v.send(request)
					} else {
						v.pieces(request, everywhere(request)...)
					}
					if held {
						r.await(1, i+1)
					} else {
						v.wants(http.StatusOK)
					}
					all = append(all, v)
				}
				unblock()
				for _, v := range all {
					if held {
						v.wants(http.StatusOK)
					}
				}
				r.wasNew("/0", "/1", "/2", "/3")
				if r.counter("TcpExtSyncookiesRecv") == before {
					t.Error("no SYN cookie came back")
				}
				r.calm()
			})
		}
	}
}

// What is longer than a slot is answered so.
func TestRoomHeadTooLarge(t *testing.T) {
	t.Parallel()
	situations(t, func(t *testing.T, kept, held bool) {
		lengths := []int{17000, 20000, 100_000}
		r, all, unblock := in(t, kept, held, len(lengths), roomPolicy{}, origin.Config{})
		for i, v := range all {
			v.sendLater(cookies("/long", lengths[i]))
			v.wants(http.StatusRequestHeaderFieldsTooLarge)
			v.isClosed()
			r.refused[gold]++
		}
		unblock()
		if n := r.class(gold).Rejected["too_large"]; n != uint64(len(lengths)) {
			t.Errorf("%d rejected as too_large, want %d", n, len(lengths))
		}
		r.wasNew()
		r.calm()
	})
}

// Who never comes to the end of its head is rejected after max_wait, also if it goes on.
func TestRoomHeadNeverEnds(t *testing.T) {
	t.Parallel()
	situations(t, func(t *testing.T, kept, held bool) {
		r, all, unblock := in(t, kept, held, 2, roomPolicy{service: "queue: {max_wait: 500ms}"}, origin.Config{})
		all[0].send("GET /never HTTP/1.1\r\nHost: x\r\n")
		all[1].send("GET /")
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				case <-time.After(50 * time.Millisecond):
				}
				if _, err := io.WriteString(all[1].conn, "x"); err != nil {
					return
				}
			}
		}()
		for _, v := range all {
			v.isRejected()
		}
		close(stop)
		<-stopped
		r.refused[gold] += 2
		unblock()
		if n := r.class(gold).Rejected["max_wait"]; n != 2 {
			t.Errorf("%d rejected for max_wait, want 2", n)
		}
		r.wasNew()
		r.calm()
	})
}

// Who has gathered longest makes place for others, whatever its class.
func TestRoomGathererIsDisplaced(t *testing.T) {
	t.Parallel()
	t.Run("busy", func(t *testing.T) {
		r, first := blocked(t, roomPolicy{service: "queue: {size: 2, max_wait: 20s}"}, origin.Config{})
		part := func(w who, n int) *visitor {
			v := r.visit(w)
			v.send("GET /part HT")
			r.gathers(n)
			return v
		}
		g1 := part(gold, 1)
		b1 := part(bronze, 2)
		b2 := r.visit(bronze)
		b2.get("/b2")
		g1.isRejected()
		r.await(1, 1)
		g2 := r.visit(gold)
		g2.send("GET /g2 HTTP/1.1\r\n")
		b1.isRejected()
		r.gathers(1)
		r.refused[gold]++
		r.refused[bronze]++
		g2.send("Host: x\r\n\r\n")
		r.await(1, 2)
		b3 := r.visit(bronze)
		b3.get("/b3")
		b3.isRejected()
		r.frees(first)
		g2.wants(http.StatusOK)
		b2.wants(http.StatusOK)
		r.wasAsked("/wait?for=first", "/g2", "/b2")
		got := r.read()
		if got.class(gold).Rejected["displaced"] != 1 || got.class(bronze).Rejected["displaced"] != 1 || got.class(bronze).Rejected["queue_full"] != 1 {
			t.Errorf("rejected: gold %v, bronze %v", got.class(gold).Rejected, got.class(bronze).Rejected)
		}
		r.calm()
	})
	t.Run("free", func(t *testing.T) {
		s := sharedScene(t, plain, false)
		s.origin(origin.Config{})
		r := s.enforce(roomPolicy{service: "queue: {size: 2, max_wait: 20s}"})
		var all []*visitor
		for i := range 5 {
			v := r.visit(gold)
			v.send("GET /part HT")
			all = append(all, v)
			if i >= 2 {
				all[i-2].isRejected()
				r.refused[gold]++
			}
			r.gathers(min(i+1, 2))
		}
		v := r.visit(bronze)
		v.get("/whole")
		v.wants(http.StatusOK)
		for _, v := range all[3:] {
			v.send("TP/1.1\r\nHost: x\r\n\r\n")
			v.wants(http.StatusOK)
		}
		r.wasAsked("/whole", "/part", "/part")
		r.calm()
	})
}

// A crowd whose heads never end does not keep others out.
func TestRoomCrowdOfGatherers(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, plain, false)
	s.origin(origin.Config{})
	r := s.enforce(roomPolicy{service: "queue: {size: 20, max_wait: 2s}"})
	const crowd = 200
	for range crowd {
		v := r.visit(bronze)
		v.send("GET /never")
	}
	r.refused[bronze] = crowd
	for range 20 {
		v := r.visit(gold)
		v.get("/")
		v.wants(http.StatusOK)
		v.pieces(getRequest(v.host, "/"), 5, 20)
		v.wants(http.StatusOK)
		v.conn.Close()
	}
	if n := r.class(gold).Rejected; len(n) > 0 && n["displaced"]+n["queue_full"] > 0 {
		t.Errorf("rejected: %v", n)
	}
	r.calm()
}

// What the gate says of a head that gathers: how much it has, each time it is asked.
func TestRoomAcknowledgesHeads(t *testing.T) {
	t.Parallel()
	for _, stamped := range []bool{false, true} {
		for _, held := range []bool{false, true} {
			t.Run(fmt.Sprintf("timestamps=%v/held=%v", stamped, held), func(t *testing.T) {
				r, first := blocked(t, roomPolicy{service: "queue: {max_wait: 20s}"}, origin.Config{})
				if !held {
					r.frees(first)
				}
				p := r.peer(gold, 4000, func(c *lab.PeerConfig) { c.NoTimestamps = !stamped })
				nettest.Check(t, p.Connect(patience))
				begin, window := p.Next, p.Ack
				request := ask("/acknowledged")
				send := func(from, to int) {
					t.Helper()
					nettest.Check(t, p.SendSegment(lab.Segment{Seq: begin + uint32(from), Ack: window, ACK: true, PSH: true, Payload: request[from:to]}))
				}
				acked := func(n int) {
					t.Helper()
					s, err := p.Await(patience, func(s *lab.Segment) bool { return !s.SYN })
					if err != nil || s.Ack != begin+uint32(n) || s.Seq != window || s.RST || s.FIN || len(s.Payload) > 0 {
						t.Fatalf("%v, error %v; want an acknowledgement of %d bytes", s, err, n)
					}
				}
				send(0, 10)
				acked(10)
				r.gathers(1)
				send(0, 10) // our acknowledgement was lost
				acked(10)
				send(15, 20) // a segment before was lost
				acked(10)
				send(10, 15)
				acked(15)
				send(5, 20) // some of it again, and more
				acked(15)
				send(15, 20)
				acked(20)
				drain(t, p)
				send(20, len(request)) // and nobody sends the rest again
				p.Next += uint32(len(request))
				if held {
					r.await(1, 1)
					r.gathers(0)
					r.frees(first)
				}
				concludes(t, p, http.StatusOK)
				nettest.Check(t, p.SendFIN())
				r.wasAsked("/wait?for=first", "/acknowledged")
				r.calm()
			})
		}
	}
}

// What the stack loses of a request that the gate has acknowledged the client does not send
// again: the gate has it still.
func TestRoomKeepsWhatItAcknowledged(t *testing.T) {
	t.Parallel()
	for _, kept := range []bool{false, true} {
		t.Run(fmt.Sprintf("kept=%v", kept), func(t *testing.T) {
			r, all, unblock := in(t, kept, true, 1, roomPolicy{service: "queue: {max_wait: 20s}"}, origin.Config{})
			v := all[0]
			// What comes from there is dropped where its route is looked up, behind the gate.
			lose := func(what string) {
				t.Helper()
				nettest.Check(t, r.server.Command("ip", "route", what, r.addr(gold).String()+"/32", "dev", "lo").Run())
			}
			r.changed = true
			nettest.Check(t, r.server.Sysctl("ipv4/conf/"+lab.Dev+"/rp_filter", "1"))
			v.pieces(getRequest(v.host, "/once"), 10, 20)
			r.await(1, 1)
			time.Sleep(quiet) // until the client has heard that it is all there
			lose("add")
			unblock()
			eventually(t, "it is released", func() bool { return r.class(gold).Released == 1 })
			time.Sleep(2 * quiet)
			r.wasNew()
			lose("del")
			v.wants(http.StatusOK)
			r.wasNew("/once")
			r.calm()
		})
	}
}

// Only exact numbers end what gathers.
func TestRoomEndsOfGatherers(t *testing.T) {
	t.Parallel()
	const part = "GET /gone HTTP/1.1\r\n"
	for _, held := range []bool{false, true} {
		t.Run(fmt.Sprintf("held=%v", held), func(t *testing.T) {
			r, first := blocked(t, roomPolicy{service: "queue: {max_wait: 20s}"}, origin.Config{})
			if !held {
				r.frees(first)
			}
			for i, c := range []struct {
				name string
				end  lab.Segment // numbers beyond what has come
				ends bool
			}{
				{"FIN", lab.Segment{FIN: true, ACK: true}, true},
				{"RST at the end", lab.Segment{RST: true}, true},
				{"RST at the beginning", lab.Segment{RST: true, Seq: ^uint32(len(part) - 1)}, true},
				{"FIN before the end", lab.Segment{FIN: true, ACK: true, Seq: ^uint32(2)}, false},
				{"FIN beyond", lab.Segment{FIN: true, ACK: true, Seq: 5}, false},
				{"RST within", lab.Segment{RST: true, Seq: ^uint32(2)}, false},
				{"RST beyond", lab.Segment{RST: true, Seq: 1000}, false},
			} {
				p := r.peer(gold, uint16(4000+i))
				nettest.Check(t, p.Connect(patience))
				nettest.Check(t, p.Send([]byte(part)))
				r.gathers(1)
				end := c.end
				end.Seq, end.Ack = end.Seq+p.Next, p.Ack
				nettest.Check(t, p.SendSegment(end))
				if !c.ends {
					time.Sleep(quiet)
					if n := r.read().Gathering; n != 1 {
						t.Errorf("%s: %d gather, want 1", c.name, n)
					}
					nettest.Check(t, p.SendRST())
				}
				r.gathers(0)
			}
			if held {
				r.frees(first)
			}
			r.wasAsked("/wait?for=first")
			r.calm()
		})
	}
}

// Whatever happens to the server or to us while a head gathers, its client hears of it or is
// served.
func TestRoomChangesWhileGathering(t *testing.T) {
	t.Parallel()
	policy := roomPolicy{service: "queue: {max_wait: 20s}"}
	for _, c := range []struct {
		name   string
		change func(r *room, server *lab.Server)
		served bool // for sure
		asks   bool // goes on as before
	}{
		{"server restarts", func(r *room, server *lab.Server) {
			nettest.Check(r.t, server.Close())
			r.origin(origin.Config{})
		}, false, true},
		{"reload", func(r *room, _ *lab.Server) { r.reload(policy.String() + "\n# again\n") }, true, true},
		{"reload with other priorities", func(r *room, _ *lab.Server) {
			r.reload(strings.NewReplacer("gold, priority: 1", "gold, priority: 2", "bronze, priority: 2", "bronze, priority: 1").Replace(policy.String()))
		}, true, true},
		{"killed and adopted", func(r *room, _ *lab.Server) {
			r.stop(syscall.SIGKILL)
			r.instance.start()
		}, true, true},
		{"killed", func(r *room, _ *lab.Server) { r.stop(syscall.SIGKILL) }, true, false},
		{"no limit", func(r *room, _ *lab.Server) {
			r.reload(roomPolicy{service: "concurrency: unlimited"}.String())
		}, false, false},
		{"shadow", func(r *room, _ *lab.Server) { r.reload(roomPolicy{service: "mode: shadow"}.String()) }, false, false},
		{"stopped", func(r *room, _ *lab.Server) { r.stop(syscall.SIGTERM) }, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := sharedScene(t, plain, false)
			server := s.origin(origin.Config{})
			r := s.enforce(policy)
			kept, fresh := r.visit(gold), r.visit(gold)
			kept.get("/kept")
			kept.wants(http.StatusOK)
			r.await(0, 0)
			all := []*visitor{kept, fresh}
			for i, v := range all {
				v.send("GET /part HTTP/1.1\r\n")
				r.gathers(i + 1)
			}
			c.change(r, server)
			for _, v := range all {
				_, _ = io.WriteString(v.conn, "Host: x\r\n\r\n") // it may have been closed
				resp, _, err := v.answer()
				switch {
				case c.served && (err != nil || resp.StatusCode != http.StatusOK):
					t.Errorf("%v, error %v; want 200", resp, err)
				case !c.served && err == nil && resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable,
					!c.served && err != nil && err != io.ErrUnexpectedEOF && !errors.Is(err, syscall.ECONNRESET):
					t.Errorf("%v, error %v; want 200, 503, or the connection ended", resp, err)
				}
			}
			if c.asks {
				n := r.class(gold).Rejected
				r.refused[gold] += n["closed"] + n["no_server"]
				r.calm()
			}
		})
	}
}

// Heads of every kind over every kind of wire, from a server's point of view: whole.
func TestRoomLongHeadsAnywhere(t *testing.T) {
	t.Parallel()
	// Both families; other tests have long heads over IPv4 on the plain wire.
	for _, n := range []network{{plain, true}, {vlan, false}, {lo, true}} {
		t.Run(fmt.Sprintf("%s/v6=%v", n.wire, n.v6), func(t *testing.T) {
			s := sharedScene(t, n.wire, n.v6, longSlots...)
			s.origin(origin.Config{})
			r := s.enforce(roomPolicy{service: "queue: {max_wait: 20s}"})
			unblock := r.block(bronze)
			var all []*visitor
			for i, length := range []int{10, 1500, 6000, 15000} {
				v := r.visit(gold)
				text := cookies(fmt.Sprintf("/%d", length), length)
				v.pieces(text, 3, len(text)-1)
				r.await(1, i+1)
				all = append(all, v)
			}
			unblock()
			for _, v := range all {
				v.wants(http.StatusOK)
			}
			r.wasNew("/10", "/1500", "/6000", "/15000")
			body := bytes.Repeat([]byte("0123456789abcdef"), 4000)
			v := all[0]
			head := postHead(v.host, "/echo", len(body))
			v.pieces(head+string(body), 1, 20, len(head)-1, len(head)+1)
			v.echoed(string(body))
			r.calm()
		})
	}
}
