// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

// tlsPolicy is a policy with a tls service, with more said of it.
func tlsPolicy(more string) roomPolicy { return roomPolicy{service: join("protocol: tls", more)} }

// private is a client that speaks TLS.
func (s *scene) private(w who, change ...func(*tls.Config)) *visitor {
	s.t.Helper()
	v := s.visit(w)
	v.secure(change...)
	return v
}

// queueTLS has somebody ask, and waits until so many wait.
func (r *room) queueTLS(w who, path string, waiting int) <-chan outcome {
	r.t.Helper()
	done := r.private(w).later(path)
	r.await(1, waiting)
	return done
}

// wasReset fails unless the outcome is a reset.
func wasReset(t *testing.T, done <-chan outcome) {
	t.Helper()
	if o := <-done; !errors.Is(o.err, syscall.ECONNRESET) && !errors.Is(o.err, syscall.EPIPE) {
		t.Errorf("status %d, error %v; want the connection reset", o.status, o.err)
	}
}

// Connections are held before the server has heard anything, and come in order of class.
func TestRoomTLS(t *testing.T) {
	t.Parallel()
	for i, w := range []wire{plain, vlan, lo} {
		for _, v6 := range []bool{false, true} {
			if i > 0 && v6 == (i == 2) { // both families on the plain wire, one each on the others
				continue
			}
			t.Run(fmt.Sprintf("%s/v6=%v", w, v6), func(t *testing.T) {
				s := sharedScene(t, w, v6)
				s.origin(origin.Config{TLS: true})
				r := s.enforce(tlsPolicy("queue: {max_wait: 20s}"))
				unblock := r.block(bronze)
				b1 := r.queueTLS(bronze, "/b1", 1)
				b2 := r.queueTLS(bronze, "/b2", 2)
				g1 := r.queueTLS(gold, "/g1", 3)
				time.Sleep(quiet)
				r.await(1, 3) // the server works, however silent
				unblock()
				for _, done := range []<-chan outcome{g1, b1, b2} {
					isOK(t, done)
				}
				r.wasNew("/g1", "/b1", "/b2")
				r.calm()
			})
		}
	}
}

// hellos are ways to send a ClientHello.
var hellos = []struct {
	name string
	cut  func(first []byte) [][]byte
}{
	{"whole", func(b []byte) [][]byte { return [][]byte{b} }},
	{"after a byte", func(b []byte) [][]byte { return [][]byte{b[:1], b[1:]} }},
	{"in the record's header", func(b []byte) [][]byte { return [][]byte{b[:3], b[3:]} }},
	{"behind the record's header", func(b []byte) [][]byte { return [][]byte{b[:5], b[5:]} }},
	{"in the message's header", func(b []byte) [][]byte { return [][]byte{b[:7], b[7:]} }},
	{"before the last byte", func(b []byte) [][]byte { return [][]byte{b[:len(b)-1], b[len(b)-1:]} }},
	{"in pieces", func(b []byte) [][]byte { return slices.Collect(slices.Chunk(b, 100)) }},
	{"its beginning in bytes", func(b []byte) [][]byte {
		return append(slices.Collect(slices.Chunk(b[:50], 1)), b[50:])
	}},
	{"in records", func(b []byte) [][]byte { return [][]byte{records(b, 300)} }},
	{"in records of few bytes", func(b []byte) [][]byte { return [][]byte{records(b, 30)} }},
	{"in records in pieces", func(b []byte) [][]byte { return slices.Collect(slices.Chunk(records(b, 200), 77)) }},
}

// records puts what a record has into records of so many bytes.
func records(record []byte, size int) (all []byte) {
	for part := range slices.Chunk(record[5:], size) {
		all = append(all, record[:3]...)
		all = append(all, byte(len(part)>>8), byte(len(part)))
		all = append(all, part...)
	}
	return all
}

// However a ClientHello comes, it is one, and nothing is done before it is whole.
func TestRoomTLSHellos(t *testing.T) {
	t.Parallel()
	for _, held := range []bool{false, true} {
		for _, large := range []bool{false, true} {
			t.Run(fmt.Sprintf("held=%v/large=%v", held, large), func(t *testing.T) {
				s := sharedScene(t, plain, false)
				s.origin(origin.Config{TLS: true})
				r := s.enforce(tlsPolicy("queue: {max_wait: 20s}"))
				unblock := func() {}
				if held {
					unblock = r.block(bronze)
				}
				var all []<-chan outcome
				var paths []string
				for i, hello := range hellos {
					v := r.visit(gold)
					v.conn = &cutConn{v.conn, hello.cut}
					v.secure(func(c *tls.Config) {
						c.CurvePreferences = []tls.CurveID{tls.X25519}
						if large {
							c.CurvePreferences = []tls.CurveID{tls.X25519MLKEM768} // longer than a segment
						}
					})
					path := fmt.Sprintf("/%d", i)
					done := v.later(path)
					if held {
						r.await(1, i+1)
					} else {
						isOK(t, done)
					}
					all, paths = append(all, done), append(paths, path)
				}
				unblock()
				if held {
					for i, done := range all {
						if o := <-done; o.err != nil || o.status != http.StatusOK {
							t.Errorf("%s: status %d, error %v", hellos[i].name, o.status, o.err)
						}
					}
				}
				r.wasNew(paths...)
				r.calm()
			})
		}
	}
}

// A ClientHello in part gathers; its client may leave, or never end it.
func TestRoomTLSGathers(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, plain, false)
	s.origin(origin.Config{TLS: true})
	r := s.enforce(tlsPolicy("queue: {max_wait: 1s}"))
	part := "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
	never, leaves, ends := r.visit(gold), r.visit(gold), r.visit(gold)
	for i, v := range []*visitor{leaves, ends, never} {
		v.send(part)
		r.gathers(i + 1)
	}
	leaves.reset()
	ends.halfClose()
	r.gathers(1)
	g := r.private(bronze).later("/whole")
	isOK(t, g)
	never.isReset()
	r.refused[gold]++
	if n := r.class(gold).Rejected["max_wait"]; n != 1 {
		t.Errorf("%d rejected for max_wait, want 1", n)
	}
	r.calm()
}

// A ClientHello longer than a slot ends in a reset.
func TestRoomTLSHelloTooLarge(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, plain, false)
	s.origin(origin.Config{TLS: true})
	r := s.enforce(tlsPolicy(""))
	v := r.visit(gold)
	hello := "\x16\x03\x01\x3f\xfc\x01\x00\x3f\xf8\x03\x03" + strings.Repeat("r", 0x3ff8-2)
	v.sendLater(hello)
	v.isReset()
	r.refused[gold]++
	if n := r.class(gold).Rejected["too_large"]; n != 1 {
		t.Errorf("%d rejected as too_large, want 1", n)
	}
	r.calm()
}

// Browsers keep connections for later. Those that say nothing take no place; what they say
// next takes its turn.
func TestRoomTLSKeepAlive(t *testing.T) {
	t.Parallel()
	r, _, _ := in(t, false, false, 0, tlsPolicy("concurrency: 2, queue: {max_wait: 20s}"), origin.Config{TLS: true})
	var all []*visitor
	for range 20 {
		v := r.private(bronze)
		isOK(t, v.later("/kept"))
		all = append(all, v)
	}
	r.await(0, 0)
	if got := r.class(bronze); got.Served < 20 {
		t.Errorf("%+v, want 20 served", got)
	}
	isOK(t, r.private(gold).later("/gold"))
	r.await(0, 0)
	first, second := all[0].later("/wait?for=first"), all[1].later("/wait?for=second")
	r.await(2, 0)
	var held []<-chan outcome
	for i, v := range all[2:5] {
		held = append(held, v.later(fmt.Sprintf("/held%d", i)))
		r.await(2, i+1)
	}
	g := r.private(gold).later("/g")
	r.await(2, 4)
	r.letGo("first")
	isOK(t, first)
	for _, done := range append(held, g) {
		isOK(t, done)
	}
	r.letGo("second")
	isOK(t, second)
	r.wasNew("/gold", "/g", "/held0", "/held1", "/held2")
	r.calm()
}

// Much in both directions on one connection.
func TestRoomTLSBodies(t *testing.T) {
	t.Parallel()
	for _, held := range []bool{false, true} {
		t.Run(fmt.Sprintf("held=%v", held), func(t *testing.T) {
			s := sharedScene(t, plain, false)
			s.origin(origin.Config{TLS: true})
			r := s.enforce(tlsPolicy("queue: {max_wait: 20s}"))
			unblock := func() {}
			if held {
				unblock = r.block(bronze)
			}
			body := strings.Repeat("0123456789abcdef", 1<<16)
			v := r.private(gold)
			v.sendLater(postHead(v.host, "/echo", len(body)) + body)
			if held {
				r.await(1, 1)
			}
			unblock()
			v.echoed(body)
			r.await(0, 0)
			v.sendLater(postHead(v.host, "/echo", len(body)) + body) // in service again
			v.echoed(body)
			r.calm()
		})
	}
}

// Who is not served is reset, and notices: at the beginning, later, and by a full queue.
func TestRoomTLSRejects(t *testing.T) {
	t.Parallel()
	t.Run("no queue", func(t *testing.T) {
		r, _, _ := in(t, false, false, 0, tlsPolicy("queue: {size: 0}"), origin.Config{TLS: true})
		v := r.private(gold)
		isOK(t, v.later("/kept"))
		r.await(0, 0)
		unblock := r.block(bronze)
		wasReset(t, v.later("/no"))
		wasReset(t, r.private(gold).later("/no"))
		unblock()
		r.wasNew()
		r.loose = true // a ClientHello may have come in two segments
		r.calm()
	})
	t.Run("full", func(t *testing.T) {
		r, _, _ := in(t, false, false, 0, tlsPolicy("queue: {size: 2, max_wait: 20s}"), origin.Config{TLS: true})
		unblock := r.block(bronze)
		b1, b2 := r.queueTLS(bronze, "/b1", 1), r.queueTLS(bronze, "/b2", 2)
		wasReset(t, r.private(bronze).later("/b3"))
		g1 := r.private(gold).later("/g1")
		wasReset(t, b1)
		r.await(1, 2)
		g2 := r.private(gold).later("/g2")
		wasReset(t, b2)
		r.await(1, 2)
		wasReset(t, r.private(gold).later("/g3"))
		unblock()
		isOK(t, g1)
		isOK(t, g2)
		r.wasNew("/g1", "/g2")
		r.loose = true // whose ClientHello came in two segments was refused before it arrived
		r.calm()
	})
	t.Run("max_wait", func(t *testing.T) {
		r, _, _ := in(t, false, false, 0, tlsPolicy("queue: {max_wait: 500ms}"), origin.Config{TLS: true})
		v := r.private(gold)
		isOK(t, v.later("/kept"))
		r.await(0, 0)
		unblock := r.block(bronze)
		again := v.later("/no")
		wasReset(t, r.private(gold).later("/no"))
		wasReset(t, again)
		unblock()
		r.calm()
	})
}

// What is no TLS waits like what is, and gets the server's answer.
func TestRoomTLSGarbage(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x00\x01\x02\x03", "\x16garbage", "\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00", "\x80\x2e\x01\x00\x02"} {
		t.Run(fmt.Sprintf("%.8q", text), func(t *testing.T) {
			r, _, _ := in(t, false, false, 0, tlsPolicy("queue: {max_wait: 20s}"), origin.Config{TLS: true})
			for _, held := range []bool{false, true} {
				unblock := func() {}
				if held {
					unblock = r.block(bronze)
				}
				v := r.visit(gold)
				v.send(text)
				if held {
					r.await(1, 1)
				}
				unblock()
				v.halfClose()
				if _, err := io.Copy(io.Discard, v.r); isTimeout(err) {
					t.Errorf("held=%v: %v; want the server to end it", held, err)
				}
				v.conn.Close()
			}
			r.calm()
		})
	}
}

// However the client of a tls service leaves, nothing of it stays.
func TestRoomTLSClientLeaves(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			r, _, _ := in(t, false, false, 0, tlsPolicy("queue: {max_wait: 2s, max_service: 10s}"), origin.Config{TLS: true})
			for _, state := range []string{"held", "in service", "idle", "held again"} {
				t.Log(state)
				v := r.private(bronze)
				if state != "held" {
					isOK(t, v.later("/kept"))
					r.await(0, 0)
				}
				unblock := func() {}
				if strings.HasPrefix(state, "held") {
					unblock = r.block(gold)
					v.later("/gone")
					r.await(1, 1)
				} else if state == "in service" {
					v.later("/wait?for=gone")
					r.await(1, 0)
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

// Other servers and clients, and HTTP/2 in it.
func TestRoomTLSServers(t *testing.T) {
	t.Parallel()
	for _, server := range []struct {
		name  string
		start func(s *scene) *lab.Server
	}{
		{"nginx", func(s *scene) *lab.Server {
			s.cfg.TLS = true
			return s.serve(s.server.StartNginx(lab.NginxConfig{Listen: s.listen(), TLS: true}))
		}},
		{"go", func(s *scene) *lab.Server { return s.origin(origin.Config{TLS: true}) }},
	} {
		for _, version := range []string{"--http1.1", "--http2"} {
			t.Run(server.name+"/"+version, func(t *testing.T) {
				s := sharedScene(t, plain, false)
				srv := server.start(s)
				r := s.enforce(tlsPolicy("concurrency: 2, queue: {max_wait: 20s}"))
				resume := r.pause(srv)
				const clients = 10
				var all sync.WaitGroup
				for i := range clients {
					all.Add(1)
					go func() {
						defer all.Done()
						out, err := s.client.Command("curl", "-sSk", version, "--max-time", "30", "--interface", s.addr(who(2+i%2)).String(),
							"-o", "/dev/null", "-w", "%{http_code} ", "https://"+s.to.String()+lab.File, "-o", "/dev/null", "https://"+s.to.String()+lab.File).CombinedOutput()
						if err != nil || strings.Count(string(out), "200") != 2 {
							t.Errorf("curl: %q, %v", out, err)
						}
					}()
				}
				r.await(2, clients-2)
				resume()
				all.Wait()
				r.calm()
			})
		}
	}
}

// A crowd of connections that never say anything takes nothing.
func TestRoomTLSBareConnections(t *testing.T) {
	t.Parallel()
	r, _, _ := in(t, false, false, 20, tlsPolicy(""), origin.Config{TLS: true})
	time.Sleep(quiet)
	r.await(0, 0)
	isOK(t, r.private(gold).later("/"))
	out, err := r.server.Command("ss", "-Htn", "state", "established", "sport", "=", ":80").CombinedOutput()
	nettest.Check(t, err)
	if n := bytes.Count(out, []byte("\n")); n > 1 {
		t.Errorf("the server has %d connections, want the one that said something:\n%s", n, out)
	}
	r.calm()
}

// A client that does not take the reset gets it again for whatever it sends.
func TestRoomTLSResetAgain(t *testing.T) {
	t.Parallel()
	r, _, _ := in(t, false, false, 0, tlsPolicy("queue: {size: 0}"), origin.Config{TLS: true})
	unblock := r.block(bronze)
	p := r.peer(gold, 4000)
	nettest.Check(t, p.Connect(patience))
	hello := lab.Segment{Seq: p.Next, Ack: p.Ack, ACK: true, PSH: true, Payload: []byte(ask("/no TLS"))}
	for range 3 {
		nettest.Check(t, p.SendSegment(hello))
		s, err := p.Await(patience, func(s *lab.Segment) bool { return !s.SYN })
		if err != nil || !s.RST {
			t.Fatalf("%v, error %v; want a reset", s, err)
		}
	}
	unblock()
	r.calm()
}

// service_ends: close keeps a connection in service until its end.
func TestRoomTLSUntilClosed(t *testing.T) {
	t.Parallel()
	r, _, _ := in(t, false, false, 0, tlsPolicy("service_ends: close, queue: {max_wait: 20s}"), origin.Config{TLS: true})
	v := r.private(bronze)
	isOK(t, v.later("/kept"))
	g := r.private(gold).later("/g")
	r.await(1, 1)
	time.Sleep(3 * quiet)
	r.await(1, 1)
	v.conn.Close()
	isOK(t, g)
	r.wasNew("/g")
}

// asksOn asks on a connection, one request after the other, until the test says that it is enough. It counts the answers.
func (v *visitor) asksOn() (answers *atomic.Int64, enough func()) {
	var end atomic.Bool
	answers = new(atomic.Int64)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for !end.Load() {
			err := v.tries(getRequest(v.host, "/busy"))
			var resp *http.Response
			if err == nil {
				resp, _, err = v.answer()
			}
			if err != nil || resp.StatusCode != http.StatusOK {
				v.t.Errorf("request %d on the busy connection: %v", answers.Load(), err)
				break
			}
			answers.Add(1)
		}
	}()
	return answers, func() {
		end.Store(true)
		<-ended
	}
}

// A connection on which one request follows the other takes turns with others that wait.
func TestRoomTLSTakesTurns(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, plain, false)
	s.origin(origin.Config{TLS: true, Body: 1000})
	r := s.enforce(tlsPolicy(""))
	busy := s.private(bronze)
	answers, enough := busy.asksOn()
	eventually(t, "it is busy", func() bool { return r.read().InService == 1 })
	for range 3 {
		v := s.private(bronze)
		for range 4 {
			v.get("/other")
			v.wants(http.StatusOK)
		}
		v.conn.Close()
	}
	enough()
	if n := answers.Load(); n < 3 {
		t.Errorf("%d requests on the busy connection, meanwhile", n)
	}
	busy.conn.Close()
	r.calm()
}

// The same where those that wait are of another service of its pool.
func TestRoomTLSTakesTurnsInPools(t *testing.T) {
	t.Parallel()
	r := newRuled(t, map[string]uint16{"web": 80, "secure": 443}, "web")
	_, err := origin.Start(r.v4.server, origin.Config{Listen: r.listen("secure"), TLS: true, Body: 1000})
	nettest.Check(t, err)
	r.enforce(`
version: 1
pools: [{name: server, concurrency: 1, between: classes}]
services:
  - {name: web, listen: ["*:80"], pool: server, queue: {max_wait: 20s}}
  - {name: secure, listen: ["*:443"], protocol: tls, pool: server, queue: {max_wait: 20s}}
`)
	busy := r.at(t, "secure", false).private(bronze)
	answers, enough := busy.asksOn()
	r.awaits("secure", 1, 0)
	v := r.at(t, "web", false).visit(bronze)
	for range 8 {
		v.get("/other")
		v.wants(http.StatusOK)
	}
	enough()
	if n := answers.Load(); n < 3 {
		t.Errorf("%d requests on the busy connection, meanwhile", n)
	}
	busy.conn.Close()
	v.conn.Close()
	r.awaits("web", 0, 0)
	r.awaits("secure", 0, 0)
}

// However many ask on busy connections of two services of a pool, http and tls, no more are with the server at once than
// the pool has places.
func TestRoomTLSTurnsKeepTheLimit(t *testing.T) {
	t.Parallel()
	const places = 3
	r := newRuled(t, map[string]uint16{"web": 80, "secure": 443})
	var with crowded
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		with.enter()
		time.Sleep(2 * time.Millisecond)
		with.leave()
		_, _ = io.WriteString(w, strings.Repeat("x", 1000))
	})
	certificate, key, err := lab.Certificate()
	nettest.Check(t, err)
	pair, err := tls.X509KeyPair(certificate, key)
	nettest.Check(t, err)
	web, secure := r.at(t, "web", false), r.at(t, "secure", false)
	web.handle(handler)
	secure.runs(&http.Server{Handler: handler, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}})
	r.enforce(fmt.Sprintf(`
version: 1
pools: [{name: server, concurrency: %d, between: classes}]
services:
  - {name: web, listen: ["*:80"], pool: server, queue: {max_wait: 20s}}
  - {name: secure, listen: ["*:443"], protocol: tls, pool: server, queue: {max_wait: 20s}}
`, places))
	var all []*visitor
	for range 8 {
		all = append(all, web.visit(bronze), secure.private(bronze))
	}
	var answers []*atomic.Int64
	var enough []func()
	for _, v := range all {
		n, end := v.asksOn()
		answers, enough = append(answers, n), append(enough, end)
	}
	eventually(t, "each has had many answers", func() bool {
		return !slices.ContainsFunc(answers, func(n *atomic.Int64) bool { return n.Load() < 20 })
	})
	for _, end := range enough {
		end()
	}
	if most := with.most.Load(); most > places {
		t.Errorf("%d requests were with the server at once, with %d places", most, places)
	}
	for _, v := range all {
		v.conn.Close()
	}
	r.awaits("web", 0, 0)
	r.awaits("secure", 0, 0)
}
