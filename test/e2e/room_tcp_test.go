// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

// tcpPolicy is a policy with a tcp service, with more said of it.
func tcpPolicy(more string) roomPolicy { return roomPolicy{service: join("protocol: tcp", more)} }

// A server that speaks first, and one that does not.
var (
	speaksFirst  = origin.Config{Lines: true, Banner: "welcome"}
	speaksSecond = origin.Config{Lines: true}
)

// lineServers are servers of lines, of every kind.
var lineServers = []struct {
	name string
	cfg  origin.Config
}{
	{"speaks first", speaksFirst},
	{"speaks second", speaksSecond},
	{"deferred accept", origin.Config{Lines: true, DeferAccept: 10 * time.Second}},
	{"no MPTCP", origin.Config{Lines: true, Banner: "welcome", NoMPTCP: true}},
}

// lines are what the origin heard, without who connected, and those that hold places.
func (s *scene) lines() (lines []string) {
	s.t.Helper()
	return slices.DeleteFunc(s.asked(), func(line string) bool { return line == "(connected)" || strings.HasPrefix(line, "wait block") })
}

func (s *scene) heard(want ...string) {
	s.t.Helper()
	if got := s.lines(); !slices.Equal(got, want) {
		s.t.Errorf("the server heard %q, want %q", got, want)
	}
}

// isResetLine waits for the end of the connection by an RST, where lines are spoken.
func (v *visitor) isResetLine() {
	v.t.Helper()
	if line, err := v.r.ReadString('\n'); !errors.Is(err, syscall.ECONNRESET) {
		v.t.Errorf("%s: %q, error %v; want the connection reset", v.who, line, err)
	}
}

// Connections are held at the end of the handshake, and come in order of class. What their
// clients say meanwhile comes with them.
func TestRoomTCP(t *testing.T) {
	t.Parallel()
	for i, server := range lineServers {
		for j, w := range []struct {
			wire wire
			v6   bool
		}{{plain, false}, {plain, true}, {vlan, false}, {lo, true}} {
			if i > 0 && i != j { // one server on all wires, the others on one each
				continue
			}
			t.Run(fmt.Sprintf("%s/%s/v6=%v", server.name, w.wire, w.v6), func(t *testing.T) {
				s := sharedScene(t, w.wire, w.v6)
				s.origin(server.cfg)
				r := s.enforce(tcpPolicy("queue: {max_wait: 20s}"))
				unblock := r.block(bronze)
				var all []*visitor
				for i, name := range []string{"b1", "b2", "g1"} {
					w := bronze
					if name == "g1" {
						w = gold
					}
					v := r.visit(w)
					r.await(1, i+1) // before it has said anything
					v.send(name + "\n")
					v.silent(50 * time.Millisecond)
					all = append(all, v)
				}
				r.await(1, 3)
				r.heard()
				unblock()
				for i, name := range []string{"b1", "b2", "g1"} {
					all[i].hears(server.cfg.Banner)
					all[i].hears(name)
				}
				r.heard("g1", "b1", "b2")
				r.calm()
			})
		}
	}
}

// A client that waits for the server to speak does so in the queue.
func TestRoomTCPServerSpeaksFirst(t *testing.T) {
	t.Parallel()
	r, _, _ := in(t, false, false, 0, tcpPolicy("queue: {max_wait: 20s}"), speaksFirst)
	v := r.visit(gold)
	v.hears("welcome")
	v.says("hello")
	r.await(0, 0)
	unblock := r.block(bronze)
	b, g := r.visit(bronze), r.visit(gold)
	r.await(1, 2)
	b.silent(quiet)
	unblock()
	g.hears("welcome")
	b.hears("welcome")
	b.says("hello")
	g.says("hello")
	r.calm()
}

// Connections that say nothing leave service, and what they say later takes its turn.
func TestRoomTCPIdle(t *testing.T) {
	t.Parallel()
	for _, server := range lineServers {
		t.Run(server.name, func(t *testing.T) {
			r, _, _ := in(t, false, false, 0, tcpPolicy("concurrency: 2, queue: {max_wait: 20s}"), server.cfg)
			var all []*visitor
			for i := range 20 {
				v := r.visit(bronze)
				v.hears(server.cfg.Banner)
				if i%2 == 0 {
					v.says("hello")
				}
				all = append(all, v)
			}
			r.await(0, 0)
			unblock1, unblock2 := r.block(gold), r.block(gold)
			v, w := all[0], all[1]
			v.send("v\n")
			r.await(2, 1)
			w.send("w\n")
			r.await(2, 2)
			v.silent(quiet)
			unblock1()
			v.hears("v")
			w.hears("w")
			unblock2()
			for _, v := range all[2:6] {
				v.says("again")
			}
			r.await(0, 0)
			if got := r.class(bronze); got.Arrived != got.Served {
				t.Errorf("%+v, want as many served as arrived", got)
			}
			r.calm()
		})
	}
}

// While the server has not answered the client's last word, the connection is in service.
func TestRoomTCPServerWorks(t *testing.T) {
	t.Parallel()
	r, _, _ := in(t, false, false, 0, tcpPolicy("queue: {max_wait: 20s}"), speaksFirst)
	v := r.visit(bronze)
	v.hears("welcome")
	v.says("hello")
	v.send("wait first\n")
	r.await(1, 0)
	g := r.visit(gold)
	r.await(1, 1)
	g.silent(3 * quiet)
	r.await(1, 1)
	r.letGo("first")
	v.hears("wait first")
	g.hears("welcome")
	r.calm()
}

// A tcp server that closes, with clients that do not.
func TestRoomTCPServerCloses(t *testing.T) {
	t.Parallel()
	r, _, _ := in(t, false, false, 0, tcpPolicy("service_ends: close, queue: {max_wait: 20s}"), speaksFirst)
	v := r.visit(bronze)
	v.hears("welcome")
	g := r.visit(gold)
	r.await(1, 1)
	time.Sleep(3 * quiet)
	r.await(1, 1)
	v.says("bye")
	v.isClosed()
	g.hears("welcome")
	g.says("bye")
	r.await(0, 0)
}

// Who is not served is reset, and hears nothing of the server.
func TestRoomTCPRejects(t *testing.T) {
	t.Parallel()
	for _, server := range lineServers {
		t.Run(server.name+"/no queue", func(t *testing.T) {
			r, _, _ := in(t, false, false, 0, tcpPolicy("queue: {size: 0}"), server.cfg)
			kept := r.visit(gold)
			kept.hears(server.cfg.Banner)
			kept.says("hello")
			r.await(0, 0)
			unblock := r.block(bronze)
			v, err := r.tryVisit(gold, 0) // the reset may come before connect has returned
			if err == nil {
				v.isResetLine()
				v.conn.Close()
			} else if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.ECONNREFUSED) {
				t.Error(err)
			}
			kept.send("no\n")
			kept.isResetLine()
			unblock()
			r.heard("hello")
			r.calm()
		})
		t.Run(server.name+"/full", func(t *testing.T) {
			r, _, _ := in(t, false, false, 0, tcpPolicy("queue: {size: 1, max_wait: 20s}"), server.cfg)
			unblock := r.block(bronze)
			b := r.visit(bronze)
			r.await(1, 1)
			b.send("b\n")
			g := r.visit(gold)
			b.isResetLine()
			r.await(1, 1)
			unblock()
			g.hears(server.cfg.Banner)
			g.says("g")
			r.heard("g")
			r.calm()
		})
		t.Run(server.name+"/max_wait", func(t *testing.T) {
			r, _, _ := in(t, false, false, 0, tcpPolicy("queue: {max_wait: 500ms}"), server.cfg)
			unblock := r.block(bronze)
			v := r.visit(gold)
			v.isResetLine()
			unblock()
			if n := r.class(gold).Rejected["max_wait"]; n != 1 {
				t.Errorf("%d rejected for max_wait, want 1", n)
			}
			r.calm()
		})
	}
}

// The client may end its half, and still hears the server.
func TestRoomTCPHalfClose(t *testing.T) {
	t.Parallel()
	for _, server := range lineServers {
		t.Run(server.name, func(t *testing.T) {
			r, _, _ := in(t, false, false, 0, tcpPolicy("queue: {max_wait: 20s}"), server.cfg)
			for _, pause := range []time.Duration{0, 3 * quiet} { // in service, and idle
				v := r.visit(gold)
				v.hears(server.cfg.Banner)
				v.says("hello")
				time.Sleep(pause)
				v.halfClose()
				v.hears("(end)")
				v.isClosed()
			}
			r.calm()
		})
	}
}

// However the client leaves, nothing of it stays.
func TestRoomTCPClientLeaves(t *testing.T) {
	t.Parallel()
	for i, server := range lineServers[:3] {
		for j, way := range ways {
			if i > 0 && i != j { // one server is left in all ways, the others in one each
				continue
			}
			t.Run(server.name+"/"+way.name, func(t *testing.T) {
				r, _, _ := in(t, false, false, 0, tcpPolicy("queue: {max_wait: 2s, max_service: 10s}"), server.cfg)
				enter := func() *visitor {
					v := r.visit(bronze)
					v.hears(server.cfg.Banner)
					v.says("hello")
					return v
				}
				for _, state := range []string{"held", "held with data", "in service", "idle", "held again"} {
					t.Log(state)
					unblock := func() {}
					var v *visitor
					switch state {
					case "held", "held with data":
						unblock = r.block(gold)
						v = r.visit(bronze)
						if state == "held with data" {
							v.send("data\n")
						}
						r.await(1, 1)
					case "in service":
						v = enter()
						v.send("wait gone\n")
						r.await(1, 0)
					case "idle":
						v = enter()
						r.await(0, 0)
					case "held again":
						v = enter()
						r.await(0, 0)
						unblock = r.block(gold)
						v.send("data\n")
						r.await(1, 1)
					}
					way.leave(r.scene, v)
					r.letGo("gone")
					unblock()
					r.calm()
					r.isBack(v)
				}
			})
		}
	}
}

// Much that is said while the connection is held.
func TestRoomTCPMuchWhileHeld(t *testing.T) {
	t.Parallel()
	for _, server := range lineServers {
		t.Run(server.name, func(t *testing.T) {
			r, _, _ := in(t, false, false, 0, tcpPolicy("queue: {max_wait: 20s}"), server.cfg)
			unblock := r.block(bronze)
			v := r.visit(gold)
			r.await(1, 1)
			text := strings.Repeat(strings.Repeat("line", 20)+"\n", 5000)
			v.sendLater(text)
			time.Sleep(quiet)
			r.await(1, 1)
			unblock()
			v.hears(server.cfg.Banner)
			got := make([]byte, len(text))
			if _, err := io.ReadFull(v.r, got); err != nil || string(got) != text {
				t.Errorf("the lines came back otherwise; error %v", err)
			}
			r.calm()
		})
	}
}

// While the kernel answers with SYN cookies.
func TestRoomTCPCookies(t *testing.T) {
	t.Parallel()
	for _, backlog := range []int{1, 3} {
		for _, server := range lineServers[:3] {
			t.Run(fmt.Sprintf("%s/%d", server.name, backlog), func(t *testing.T) {
				cfg := server.cfg
				cfg.Backlog = backlog
				r, _, _ := in(t, false, false, 0, tcpPolicy("queue: {max_wait: 20s}"), cfg)
				before := r.counter("TcpExtSyncookiesRecv")
				unblock := r.block(bronze)
				const clients = 10
				var all []*visitor
				for i := range clients {
					v := r.visit(gold)
					if i%2 == 0 {
						v.send(fmt.Sprintf("%d\n", i))
					}
					r.await(1, i+1)
					all = append(all, v)
				}
				r.heard()
				unblock()
				for i, v := range all {
					v.hears(server.cfg.Banner)
					if i%2 != 0 {
						v.send(fmt.Sprintf("%d\n", i))
					}
					v.hears(fmt.Sprint(i))
				}
				if r.counter("TcpExtSyncookiesRecv") == before {
					t.Error("no SYN cookie came back")
				}
				r.calm()
			})
		}
	}
}

// The acknowledgement of the handshake may be lost, may come again, and may be forged.
func TestRoomTCPHandshakes(t *testing.T) {
	t.Parallel()
	r, _, _ := in(t, false, false, 0, tcpPolicy("queue: {max_wait: 20s}"), speaksFirst)
	unblock := r.block(bronze)
	lost, again, forged := r.peer(gold, 4000), r.peer(gold, 4001), r.peer(gold, 4002)
	for _, p := range []*lab.Peer{lost, again, forged} {
		nettest.Check(t, p.SendSYN())
		_, err := p.AwaitSYNACK(patience)
		nettest.Check(t, err)
	}
	for _, s := range []lab.Segment{
		{Seq: forged.Next, Ack: forged.Ack + 1, ACK: true},
		{Seq: forged.Next, Ack: forged.Ack - 1, ACK: true},
		{Seq: forged.Next + 1000, Ack: forged.Ack, ACK: true},
		{Seq: forged.Next, Ack: forged.Ack + 7, ACK: true, Payload: []byte("forged\n")},
	} {
		nettest.Check(t, forged.SendSegment(s))
	}
	time.Sleep(quiet)
	r.await(1, 0)
	for range 3 {
		nettest.Check(t, again.SendACK())
	}
	r.await(1, 1)
	nettest.Check(t, lost.Send([]byte("bye\n"))) // which brings the acknowledgement
	r.await(1, 2)
	nettest.Check(t, again.Send([]byte("bye\n")))
	unblock()
	for _, p := range []*lab.Peer{lost, again} {
		data := ""
		for end := time.Now().Add(patience); !strings.HasSuffix(data, "welcome\nbye\n") && time.Now().Before(end); {
			seq := p.Ack
			s, err := p.Receive(quiet)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				// As TCP does until it is acknowledged.
				nettest.Check(t, p.SendSegment(lab.Segment{Seq: p.Next - 4, Ack: p.Ack, ACK: true, PSH: true, Payload: []byte("bye\n")}))
				continue
			}
			nettest.Check(t, err)
			if s.Seq == seq {
				data += string(s.Payload)
				nettest.Check(t, p.SendACK())
			}
		}
		if data != "welcome\nbye\n" {
			t.Errorf("the client heard %q", data)
		}
		nettest.Check(t, p.SendFIN())
	}
	r.heard("bye", "bye")
	r.calm()
}

// A server that is gone, and one that comes again, while connections wait.
func TestRoomTCPServerRestarts(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, plain, false)
	server := s.origin(speaksFirst)
	r := s.enforce(tcpPolicy("queue: {max_wait: 5s}"))
	first := r.visit(bronze)
	first.hears("welcome")
	first.send("wait first\n")
	r.await(1, 0)
	waiting := []*visitor{r.visit(bronze), r.visit(gold)}
	r.await(1, 2)
	nettest.Check(t, server.Close())
	s.origin(speaksFirst)
	for _, v := range waiting {
		line, err := v.r.ReadString('\n')
		if line != "welcome\n" && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: %q, error %v; want the banner or a reset", v.who, line, err)
		}
		v.conn.Close()
	}
	first.conn.Close()
	r.calm()
}
