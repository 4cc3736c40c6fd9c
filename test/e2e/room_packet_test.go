// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

// quiet is how long to wait for what should not happen.
const quiet = 300 * time.Millisecond

// peer is a client that sends what it is told to, from an address that no kernel has.
func (s *scene) peer(w who, port uint16, change ...func(*lab.PeerConfig)) *lab.Peer {
	s.t.Helper()
	const first = 9 // the server may have something in mind still of those before
	cfg := lab.PeerConfig{From: netip.AddrPortFrom(s.numbered(w, byte(first+s.scenes)), port), To: s.to}
	for _, c := range change {
		c(&cfg)
	}
	return nettest.Peer(s.t, s.rig, cfg)
}

// ask is a request whose answer ends the connection.
func ask(path string) []byte {
	return []byte("GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
}

// concludes reads a peer's answer to its end.
func concludes(t *testing.T, p *lab.Peer, status int) (last *lab.Segment) {
	t.Helper()
	data, last, err := p.Conclude(patience)
	if want := fmt.Sprintf("HTTP/1.1 %d ", status); err != nil || !bytes.HasPrefix(data, []byte(want)) {
		t.Errorf("%s: answered %.60q, ended by %v, error %v; want %q", p.From, data, last, err, want)
	}
	return last
}

// Whatever a client negotiates, its request is held and served.
func TestRoomHoldsAnyHandshake(t *testing.T) {
	t.Parallel()
	for _, w := range []wire{plain, vlan} {
		for _, v6 := range []bool{false, true} {
			if w == vlan && v6 {
				continue
			}
			for _, c := range []struct {
				name   string
				change func(*lab.PeerConfig)
			}{
				{"timestamps", func(*lab.PeerConfig) {}},
				{"no timestamps", func(c *lab.PeerConfig) { c.NoTimestamps = true }},
				{"MPTCP", func(c *lab.PeerConfig) { c.MPTCP = true }},
			} {
				t.Run(fmt.Sprintf("%s/v6=%v/%s", w, v6, c.name), func(t *testing.T) {
					s := sharedScene(t, w, v6)
					s.origin(origin.Config{})
					r := s.enforce(roomPolicy{})
					first := r.visit(bronze)
					first.get("/wait?for=first")
					r.await(1, 0)
					p := s.peer(gold, 4000, c.change) // its frames, too, are tagged by the device
					nettest.Check(t, p.Connect(patience))
					if _, has := p.SYNACK.Option(lab.OptionMPTCP); has {
						t.Error("the server speaks MPTCP: a second subflow could go by")
					}
					nettest.Check(t, p.Send(ask("/held")))
					r.await(1, 1)
					r.wasAsked("/wait?for=first")
					r.letGo("first")
					first.wants(http.StatusOK)
					if last := concludes(t, p, http.StatusOK); last != nil && last.FIN {
						nettest.Check(t, p.SendFIN())
					}
					r.wasAsked("/wait?for=first", "/held")
					r.calm()
				})
			}
		}
	}
}

// What forged or stray packets do to a connection: nothing.
func TestRoomForgeries(t *testing.T) {
	t.Parallel()
	at := func(p *lab.Peer, change func(*lab.Segment)) lab.Segment {
		s := lab.Segment{Seq: p.Next, Ack: p.Ack, ACK: true}
		change(&s)
		return s
	}
	for _, state := range []struct {
		name      string
		request   string // sent before, if any
		inService int    // with the first one
		waiting   int
		free      bool // there is room
	}{
		{name: "after the handshake", inService: 1},
		{name: "held", request: "/held", inService: 1, waiting: 1},
		{name: "in service", request: "/wait?for=peer", inService: 1, free: true},
	} {
		for _, forged := range []struct {
			name   string
			change func(*lab.Segment)
		}{
			{"data that acknowledges nothing", func(s *lab.Segment) { s.Ack -= 7; s.Payload = ask("/forged") }},
			{"data beyond the window", func(s *lab.Segment) { s.Seq += 1 << 30; s.Payload = ask("/forged") }},
			{"data from before", func(s *lab.Segment) { s.Seq -= 5000; s.Payload = ask("/forged") }},
			{"RST that is not exact", func(s *lab.Segment) { s.Seq += 100; s.RST = true; s.ACK = false }},
			{"FIN that is not exact", func(s *lab.Segment) { s.Seq += 100; s.FIN = true }},
		} {
			t.Run(state.name+"/"+forged.name, func(t *testing.T) {
				r, first := blocked(t, roomPolicy{service: "queue: {max_wait: 20s}"}, origin.Config{})
				if state.free {
					r.letGo("first")
					first.wants(http.StatusOK)
					r.await(0, 0)
				}
				p := r.peer(gold, 4000)
				nettest.Check(t, p.Connect(patience))
				request := state.request
				if request != "" {
					nettest.Check(t, p.Send(ask(request)))
					r.await(state.inService, state.waiting)
				}
				nettest.Check(t, p.SendSegment(at(p, forged.change)))
				time.Sleep(quiet)
				r.await(state.inService, state.waiting)
				drain(t, p)
				if request == "" { // it has not come to harm
					request = "/held"
					nettest.Check(t, p.Send(ask(request)))
					r.await(1, 1)
				}
				r.letGo("first")
				r.letGo("peer")
				if !state.free {
					first.wants(http.StatusOK)
				}
				// As a client's kernel does, lest one lost packet is taken for a fault.
				eventually(t, "nobody waits", func() bool { return r.read().Waiting == 0 })
				again := ask(request)
				nettest.Check(t, p.SendSegment(lab.Segment{Seq: p.Next - uint32(len(again)), Ack: p.Ack, ACK: true, PSH: true, Payload: again}))
				concludes(t, p, http.StatusOK)
				nettest.Check(t, p.SendFIN())
				r.wasAsked("/wait?for=first", request)
				r.calm()
			})
		}
	}
}

// drain forgets what has come, such as the kernel's reset for what was forged.
func drain(t *testing.T, p *lab.Peer) {
	t.Helper()
	for {
		_, err := p.Receive(0)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		nettest.Check(t, err)
	}
}

// A request that is sent again while it waits, or after it was let in, is one request.
func TestRoomRetransmissions(t *testing.T) {
	t.Parallel()
	r, first := blocked(t, roomPolicy{}, origin.Config{})
	p := r.peer(gold, 4000)
	nettest.Check(t, p.Connect(patience))
	again := lab.Segment{Seq: p.Next, Ack: p.Ack, ACK: true, PSH: true, Payload: ask("/once")}
	nettest.Check(t, p.Send(again.Payload))
	r.await(1, 1)
	for range 3 {
		nettest.Check(t, p.SendSegment(again))
	}
	time.Sleep(quiet)
	r.await(1, 1)
	r.letGo("first")
	first.wants(http.StatusOK)
	nettest.Check(t, p.SendSegment(again))
	concludes(t, p, http.StatusOK)
	nettest.Check(t, p.SendFIN())
	nettest.Check(t, p.SendSegment(again))
	r.wasAsked("/wait?for=first", "/once")
	if got := r.class(gold); got.Arrived != 1 || got.Held != 1 {
		t.Errorf("%+v, want one arrived and held", got)
	}
	r.calm()
}

// Segments that come out of order make no hole.
func TestRoomSegmentsOutOfOrder(t *testing.T) {
	t.Parallel()
	for _, held := range []bool{false, true} {
		t.Run(fmt.Sprintf("held=%v", held), func(t *testing.T) {
			r, first := blocked(t, roomPolicy{}, origin.Config{})
			if !held {
				r.letGo("first")
				first.wants(http.StatusOK)
				r.await(0, 0)
			}
			body := bytes.Repeat([]byte("0123456789"), 20)
			head := fmt.Sprintf("POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n", len(body))
			whole := slices.Concat([]byte(head), body)
			parts := [][]byte{whole[:40], whole[40:120], whole[120:200], whole[200:]}
			p := r.peer(gold, 4000)
			nettest.Check(t, p.Connect(patience))
			begin := p.Next
			send := func(i int) {
				seq := begin
				for _, part := range parts[:i] {
					seq += uint32(len(part))
				}
				nettest.Check(t, p.SendSegment(lab.Segment{Seq: seq, Ack: p.Ack, ACK: true, PSH: true, Payload: parts[i]}))
			}
			p.Next += uint32(len(whole))
			for _, i := range []int{2, 1, 3, 0} {
				send(i)
			}
			time.Sleep(quiet)
			if held {
				r.letGo("first")
				first.wants(http.StatusOK)
			}
			// As TCP does until all is acknowledged.
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range 10 {
					for i := range parts {
						send(i)
					}
					time.Sleep(quiet)
				}
			}()
			data, _, err := p.Conclude(patience)
			<-done
			if err != nil || !bytes.HasSuffix(data, body) || !bytes.HasPrefix(data, []byte("HTTP/1.1 200")) {
				t.Errorf("%.60q…, %d bytes, error %v", data, len(data), err)
			}
			nettest.Check(t, p.SendFIN())
			r.wasAsked("/wait?for=first", "/echo")
			r.calm()
		})
	}
}

// A server is done with a request when it has closed the connection, also if its FIN cannot be sent, for its
// client does not acknowledge what comes before.
func TestRoomClosedBehindUnsent(t *testing.T) {
	t.Parallel()
	r, first := blocked(t, roomPolicy{}, origin.Config{Body: 60_000})
	r.letGo("first")
	first.wants(http.StatusOK)
	r.await(0, 0)
	p := r.peer(gold, 4000)
	nettest.Check(t, p.Connect(patience))
	nettest.Check(t, p.SendSegment(lab.Segment{
		Seq: p.Next, Ack: p.Ack, ACK: true, PSH: true, Payload: []byte("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
	}))
	eventually(t, "the server is asked", func() bool { return slices.Contains(r.asked(), "/") })
	r.await(0, 0)
	nettest.Check(t, p.SendSegment(lab.Segment{Seq: p.Next + 46, RST: true}))
}

// An exact RST or FIN of a client whose request waits frees its place at once.
func TestRoomExactEnds(t *testing.T) {
	t.Parallel()
	for _, end := range []struct {
		name string
		send func(*lab.Peer) error
	}{
		{"RST", (*lab.Peer).SendRST},
		{"FIN", (*lab.Peer).SendFIN},
	} {
		t.Run(end.name, func(t *testing.T) {
			r, first := blocked(t, roomPolicy{service: "queue: {max_wait: 20s}"}, origin.Config{})
			p := r.peer(gold, 4000)
			nettest.Check(t, p.Connect(patience))
			nettest.Check(t, p.Send(ask("/gone")))
			r.await(1, 1)
			nettest.Check(t, end.send(p))
			r.await(1, 0)
			if got := r.class(gold); got.GaveUp != 1 {
				t.Errorf("%+v, want one that gave up", got)
			}
			r.letGo("first")
			first.wants(http.StatusOK)
			r.wasAsked("/wait?for=first")
			r.calm()
		})
	}
}

// A rejection is a whole HTTP response, a FIN, and the acknowledgement of the client's FIN.
func TestRoomRejectionOnTheWire(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{false, true} {
		t.Run(fmt.Sprintf("timestamps=%v", !plain), func(t *testing.T) {
			r, first := blocked(t, roomPolicy{service: "queue: {size: 0}"}, origin.Config{})
			p := r.peer(gold, 4000, func(c *lab.PeerConfig) { c.NoTimestamps = plain })
			nettest.Check(t, p.Connect(patience))
			request := ask("/no")
			nettest.Check(t, p.Send(request))
			if last := concludes(t, p, http.StatusServiceUnavailable); last == nil || !last.FIN || last.Ack != p.Next {
				t.Errorf("ended by %v, want a FIN that acknowledges %d", last, p.Next)
			}
			// The client's kernel may have sent the request once more by now.
			nettest.Check(t, p.SendSegment(lab.Segment{Seq: p.Next - uint32(len(request)), Ack: p.Ack, ACK: true, Payload: request}))
			nettest.Check(t, p.SendFIN())
			if _, err := p.Await(patience, func(s *lab.Segment) bool { return !s.RST && s.Ack == p.Next }); err != nil {
				t.Errorf("the FIN is not acknowledged: %v", err)
			}
			if err := p.Silent(quiet, func(s *lab.Segment) bool { return s.RST || s.SYN }); err != nil {
				t.Error(err)
			}
			r.letGo("first")
			first.wants(http.StatusOK)
			r.wasAsked("/wait?for=first")
			r.calm()
		})
	}
}

// The acknowledgement of the handshake may be lost: the request brings it.
func TestRoomLostACK(t *testing.T) {
	t.Parallel()
	r, first := blocked(t, roomPolicy{}, origin.Config{})
	p := r.peer(gold, 4000)
	nettest.Check(t, p.SendSYN())
	_, err := p.AwaitSYNACK(patience)
	nettest.Check(t, err)
	nettest.Check(t, p.Send(ask("/held")))
	r.await(1, 1)
	r.letGo("first")
	first.wants(http.StatusOK)
	concludes(t, p, http.StatusOK)
	nettest.Check(t, p.SendFIN())
	r.calm()
}

// A connection without a request does not occupy the server, and waits nowhere.
func TestRoomBareConnections(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, plain, false)
	s.origin(origin.Config{})
	r := s.enforce(roomPolicy{})
	var bare []*visitor
	for range 20 {
		bare = append(bare, r.visit(bronze))
	}
	time.Sleep(quiet)
	r.await(0, 0)
	v := r.visit(gold)
	v.get("/")
	v.wants(http.StatusOK)
	out, err := s.server.Command("ss", "-Htn", "state", "established", "sport", "=", ":80").CombinedOutput()
	nettest.Check(t, err)
	if n := bytes.Count(out, []byte("\n")); n > 1 {
		t.Errorf("the server has %d connections, want the one that asked:\n%s", n, out)
	}
	for _, b := range bare {
		b.get("/late")
		b.wants(http.StatusOK)
	}
	r.calm()
}

// A request whose bytes the stack refused may come again, but not as another one: what the
// server would read were not what was let in.
func TestRoomSaysItTwice(t *testing.T) {
	t.Parallel()
	const first = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
	for _, c := range []struct {
		name, second string
		asked        []string
	}{
		{"the same", first, []string{"/a"}},
		{"another", string(ask("/b")), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := sharedScene(t, plain, false)
			s.origin(origin.Config{})
			r := s.enforce(roomPolicy{})
			p := r.peer(gold, 4000, func(c *lab.PeerConfig) { c.NoTimestamps = true }) // with them the gate clears other options
			nettest.Check(t, p.Connect(patience))
			say := lab.Segment{Seq: p.Next, Ack: p.Ack, ACK: true, PSH: true, Payload: []byte(first), Window: 65535}
			signed := say
			signed.Options = []layers.TCPOption{{OptionType: 19, OptionLength: 18, OptionData: make([]byte, 16)}} // RFC 2385: no socket without a key takes it
			nettest.Check(t, p.SendSegment(signed))
			eventually(t, "it has come", func() bool { return r.class(gold).Arrived == 1 })
			say.Payload = []byte(c.second)
			nettest.Check(t, p.SendSegment(say))
			if c.asked == nil {
				_, err := p.Await(patience, func(s *lab.Segment) bool { return s.FIN || s.RST })
				nettest.Check(t, err)
			} else {
				eventually(t, "the server has it", func() bool { return len(s.asked()) == len(c.asked) })
				p.Next += uint32(len(c.second))
				nettest.Check(t, p.SendRST())
			}
			r.wasAsked(c.asked...)
			r.calm()
		})
	}
}
