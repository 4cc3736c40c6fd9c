// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"narthex/internal/datapath"
	"narthex/internal/lab"
	"narthex/internal/policy"
	"narthex/test/nettest"
)

// steer puts a control in force for the only service.
func (s *subject) steer(t *testing.T, c datapath.Control) {
	t.Helper()
	if c.Grace == 0 {
		c.Grace = time.Hour
	}
	nettest.Check(t, s.Steer(0, c))
}

// A limit that adapts is what it was last steered to be; when nobody steers any more, the safe one.
func TestGateSteer(t *testing.T) {
	g := newGate(t)
	r := g.room(t, "concurrency: auto")
	enter := func(n int) (all []*client) {
		for range n {
			c := r.client(t)
			c.asks(get, serves.and(known))
			all = append(all, c)
		}
		return all
	}
	all := enter(3) // nobody has steered yet
	r.steer(t, datapath.Control{Limit: 1})
	held := []*client{r.client(t), r.client(t), r.client(t)}
	for _, c := range held {
		c.drops(c.says(get), waits.and(known))
	}
	for _, c := range all {
		c.replies(ok, ends)
	}
	held[0].released(held[0].frame(held[0].says(get)))
	r.kick(t, nothing).is(t, tcxDrop, nil) // there is room for no other
	r.steer(t, datapath.Control{Limit: 2})
	held[1].released(held[1].frame(held[1].says(get)))
	r.kick(t, nothing).is(t, tcxDrop, nil)
	r.steer(t, datapath.Control{Limit: 1, Safe: 3, Grace: time.Nanosecond})
	held[2].released(held[2].frame(held[2].says(get)))
	last := r.client(t)
	last.drops(last.says(get), waits.and(known))
	r.steer(t, datapath.Control{})
	last.released(last.frame(last.says(get)))
	for _, c := range append(held, last) {
		c.replies(ok, ends)
	}
}

// Where no limit has been found yet what is no HTTP is left alone.
func TestGateSteerLenient(t *testing.T) {
	g := newGate(t)
	r := g.room(t, "concurrency: auto")
	c := r.client(t)
	c.passes(lab.Segment{Seq: c.Next, Ack: c.Ack, ACK: true}, nothing)
	c.passes(c.says("SSH-2.0-x\r\n"), passesFor("unknown_flow"))
	c.passes(after(c.says("SSH-2.0-x\r\n"), "\x00\x01"), passesFor("unknown_flow"))

	r.steer(t, datapath.Control{Limit: 1})
	first := r.client(t)
	first.asks(get, serves.and(known))
	c.passes(after(c.says("SSH-2.0-x\r\n\x00\x01"), "\x02"), serves.and(known)) // it was under way
	c.Next += 12
	c.replies("SSH", ends)
	next := r.client(t)
	next.drops(lab.Segment{Seq: next.Next, Ack: next.Ack, ACK: true}, dropsFor("handshake"))
	next.drops(next.says(get), waits.and(known))
	first.replies(ok, ends)
	next.released(next.frame(next.says(get)))
	next.replies(ok, ends)
}

// A limit of a server of which nothing is known counts from when it is reached: until then what is no request passes,
// and so it does again when nobody waits any more.
func TestGateSteerProvisional(t *testing.T) {
	g := newGate(t)
	r := g.room(t, "concurrency: auto")
	r.steer(t, datapath.Control{Limit: 2, Provisional: true})
	odd := r.client(t)
	odd.passes(lab.Segment{Seq: odd.Next, Ack: odd.Ack, ACK: true}, nothing)
	odd.passes(odd.says("SSH-2.0-x\r\n"), passesFor("unknown_flow"))
	first, second, third := r.client(t), r.client(t), r.client(t)
	first.asks(get, serves.and(known))
	second.asks(get, serves.and(known))
	bare := r.client(t)
	bare.drops(lab.Segment{Seq: bare.Next, Ack: bare.Ack, ACK: true}, dropsFor("handshake"))
	third.drops(third.says(get), waits.and(known))
	r.kick(t, nothing).is(t, tcxDrop, nil)
	first.replies(ok, ends)
	bare.drops(lab.Segment{Seq: bare.Next, Ack: bare.Ack, ACK: true}, dropsFor("handshake")) // somebody waits still
	third.released(third.frame(third.says(get)))
	second.replies(ok, ends)
	bare.passes(lab.Segment{Seq: bare.Next, Ack: bare.Ack, ACK: true}, nothing)
	third.replies(ok, ends)
}

// While nothing is known of the server, connections on which nobody has asked for anything do not fill its accept queue.
func TestGateSteerProvisionalQueue(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: auto")
		r.steer(t, datapath.Control{Limit: 100, Provisional: true})
		bare := func(c *client) lab.Segment { return lab.Segment{Seq: c.Next, Ack: c.Ack, ACK: true} }
		var queued []*client
		for range 8 {
			c := r.clientAt(t, base)
			c.passes(bare(c), nothing)
			nettest.Check(t, c.SendFrame(c.frame(bare(c)))) // nobody accepts it
			queued = append(queued, c)
		}
		c := r.clientAt(t, base)
		for end := time.Now().Add(patience); r.run(t, r.in, c.frame(bare(c)), 0).verdict != tcxDrop; { // the stack may take a while
			if time.Now().After(end) {
				t.Fatal("another connection is opened while eight wait to be accepted")
			}
		}
		c.drops(bare(c), dropsFor("handshake"))
		closes := bare(c)
		closes.FIN = true
		c.send(closes, nothing).is(t, tcxNext, c.frame(closes))
		c.send(c.says(get), serves.and(known)).is(t, tcxNext, c.frame(c.says(get)))
		r.steer(t, datapath.Control{Limit: 100, Provisional: true, Grace: time.Nanosecond}) // nobody steers any more
		c = r.clientAt(t, base)
		c.passes(bare(c), nothing)
		r.steer(t, datapath.Control{Limit: 100, Provisional: true})
		for _, c := range queued {
			c.accept()
		}
		c = r.clientAt(t, base)
		c.passes(bare(c), nothing)
		r.steer(t, datapath.Control{})
	}
}

// What is steered does not touch a limit that the policy has.
func TestGateSteerFixed(t *testing.T) {
	g := newGate(t)
	r, first := g.busy(t)
	r.steer(t, datapath.Control{Limit: 5, Safe: 5})
	c := r.client(t)
	c.drops(c.says(get), waits.and(known))
	first.replies(ok, ends)
	c.released(c.frame(c.says(get)))
	c.replies(ok, ends)
}

// Of classes that could not be served only a share of the sources is let in, and another share of those whose class only
// their requests tell.
func TestShed(t *testing.T) {
	s := share(t, `
version: 1
services: [{name: shop, listen: ["*:80"], concurrency: auto}]
classes: [{name: gold, priority: 1}, {name: bronze, priority: 2}]
connections:
  - {name: vip, from: [10.1.0.0/16], class: gold}
  - {name: ours, from: [10.2.0.0/16], action: pass}
  - {name: other, from: [10.3.0.0/16], class: bronze}
requests:
  - {name: known, cookie: {id: x}, class: gold, learn: 1h}
`)
	s.learned(t, "10.5.0.1", "gold")
	const n = 400
	for _, h := range s.hooks {
		passed := func(from string) (n int) {
			for i := range 400 {
				source := netip.MustParseAddr(fmt.Sprintf(from, 1+i/250, i%250))
				frame := syn(netip.AddrPortFrom(source, 4000).String(), "10.0.0.1:80").bytes(t)
				first := h.send(t, frame)
				if !first {
					n++
				}
				// Unless a period of 8 s ends between the two.
				if again := h.send(t, frame); again != first && h.send(t, frame) != again {
					t.Fatalf("%s: of three SYNs from %v some were shed", h.name, source)
				}
			}
			return n
		}
		for _, c := range []struct {
			name           string
			control        datapath.Control
			low, strangers [2]int // at least and at most
		}{
			{"all", datapath.Control{}, [2]int{n, n}, [2]int{n, n}},
			{"none of the lowest", datapath.Control{Keep: []float64{1, 0}}, [2]int{0, 0}, [2]int{n, n}},
			{"half of the lowest", datapath.Control{Keep: []float64{1, 0.5}}, [2]int{n / 4, 3 * n / 4}, [2]int{n, n}},
			{"half of the strangers", datapath.Control{Strangers: 0.5}, [2]int{n, n}, [2]int{n / 4, 3 * n / 4}},
			{"it was long ago", datapath.Control{Keep: []float64{0, 0}, Strangers: 1, Grace: time.Nanosecond}, [2]int{n, n}, [2]int{n, n}},
		} {
			s.steer(t, c.control)
			before := s.counters(t)
			rest := 0
			for from, want := range map[string][2]int{"10.1.%d.%d": {n, n}, "10.2.%d.%d": {n, n}, "10.3.%d.%d": c.low, "10.4.%d.%d": c.strangers} {
				got := passed(from)
				if got < want[0] || got > want[1] {
					t.Errorf("%s, %s: %d of %d from %s passed, want %v", h.name, c.name, got, n, from, want)
				}
				rest += n - got
			}
			counted := s.counters(t).since(before)["reason shed"]
			if int(counted.Dropped) < 2*rest {
				t.Errorf("%s, %s: of %d sources two SYNs were shed, counted are %d", h.name, c.name, rest, counted.Dropped)
			}
			if by := s.counters(t).since(before)["rule other"]; by.Dropped != 0 {
				t.Errorf("%s, %s: what is shed counts as dropped by the rule that let it in: %+v", h.name, c.name, by)
			}
			if h.send(t, syn("10.5.0.1:4000", "10.0.0.1:80").bytes(t)) {
				t.Errorf("%s, %s: a source that is learned as gold was shed", h.name, c.name)
			}
		}
	}
}

// learned has a source be learned in a class for an hour.
func (s *subject) learned(t *testing.T, source, class string) {
	t.Helper()
	slots, err := ebpf.LoadPinnedMap(s.pin("maps", "class_slots"), nil)
	nettest.Check(t, err)
	defer slots.Close()
	clients, err := ebpf.LoadPinnedMap(s.pin("maps", "learned_clients"), nil)
	nettest.Check(t, err)
	defer clients.Close()
	var now unix.Timespec
	nettest.Check(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	key := make([]byte, clients.KeySize())
	ip := netip.MustParseAddr(source).As4()
	binary.NativeEndian.PutUint32(key[4:], binary.BigEndian.Uint32(ip[:])) // the upper half of the first word
	var slot uint32
	var name []byte
	for all := slots.Iterate(); all.Next(&slot, &name); {
		if string(bytes.TrimRight(name, "\x00")) == class {
			value := make([]byte, clients.ValueSize())
			binary.NativeEndian.PutUint64(value, uint64(now.Nano())+uint64(time.Hour))
			binary.NativeEndian.PutUint32(value[8:], slot)
			nettest.Check(t, clients.Put(key, value))
			return
		}
	}
	t.Fatalf("there is no class %s", class)
}

// Rules that are for a level of overload are enforced from it on alone, and take no token else.
func TestWhenOverload(t *testing.T) {
	s := share(t, `
version: 1
services: [{name: shop, listen: ["*:80"], concurrency: auto}]
connections:
  - {name: never, from: [10.1.0.0/16], action: drop, when: overload}
  - {name: few, from: [10.2.0.0/16], rate: 1/m, burst: 2, when: overload}
  - {name: rejecting, from: [10.3.0.0/16], action: drop, when: rejecting}
  - {name: flooded, from: [10.4.0.0/16], action: drop, when: flooded}
`)
	for _, h := range s.hooks {
		for _, c := range []struct {
			level                          policy.When
			grace                          time.Duration
			never, few, rejecting, flooded int
		}{
			{policy.WhenAlways, 0, 5, 5, 5, 5}, {policy.WhenOverload, 0, 0, 2, 5, 5}, {policy.WhenFlooded, time.Nanosecond, 5, 5, 5, 5},
			{policy.WhenRejecting, 0, 0, 0, 0, 5}, {policy.WhenFlooded, 0, 0, 0, 0, 0},
		} {
			s.steer(t, datapath.Control{Level: c.level, Grace: c.grace})
			if h.name == "tcx" && c.few == 2 {
				c.few = 0 // the other hook has taken its tokens
			}
			for from, want := range map[string]int{"10.1.0.1": c.never, "10.2.0.1": c.few, "10.3.0.1": c.rejecting, "10.4.0.1": c.flooded} {
				if got := passes(t, &h, from, 5); got != want {
					t.Errorf("%s, level %s for %v: %d of 5 from %s passed, want %d", h.name, c.level, c.grace, got, from, want)
				}
			}
		}
	}
}

// So are request rules.
func TestGateWhenOverload(t *testing.T) {
	g := newGate(t)
	r := g.room(t, `concurrency: auto}]
requests: [{name: never, path: /, action: reject, when: rejecting`)
	for _, level := range []policy.When{policy.WhenAlways, policy.WhenRejecting, policy.WhenOverload, policy.WhenFlooded} {
		r.steer(t, datapath.Control{Level: level})
		c := r.client(t)
		if level >= policy.WhenRejecting {
			c.send(c.says(get), rejects("rule")).is(t, tcxRedirect, nil)
			c.isGone()
			continue
		}
		c.asks(get, serves.and(known))
		c.replies(ok, ends)
	}
}

// A rate that sets itself limits nothing until it is set, nothing when it is not renewed, and nothing
// where there is no overload. Setting it anew leaves the bucket as it is.
func TestPace(t *testing.T) {
	s := share(t, `
version: 1
services: [{name: shop, listen: ["*:80"], protocol: tcp}]
connections:
  - {name: monitoring, from: [10.9.0.0/16], class: default}
  - {name: strangers, from: [10.1.0.0/16], rate: auto}
classes: [{name: default, priority: 1}]
`)
	rule := datapath.PacedRule{Index: 1}
	pace := func(rate float64, grace time.Duration) {
		nettest.Check(t, s.SetPace(rule, datapath.Pace{Rate: rate, Grace: grace}))
	}
	for i, h := range s.hooks {
		check := func(what string, want int) {
			t.Helper()
			if got := passes(t, &h, "10.1.0.1", 30); got != want {
				t.Errorf("%s, %s: %d of 30 passed, want %d", h.name, what, got, want)
			}
		}
		pace(0, time.Hour)
		s.steer(t, datapath.Control{Level: policy.WhenOverload})
		check("never set", 30)
		pace(1.0/60, time.Hour)
		check("a token each minute", max(0, 1-i)) // the other hook has taken it
		pace(1.0/60, time.Hour)
		check("set again", 0)
		s.steer(t, datapath.Control{})
		check("without overload", 30)
		s.steer(t, datapath.Control{Level: policy.WhenOverload})
		check("with it again", 0)
		pace(1.0/60, time.Nanosecond)
		check("not renewed", 30)
	}
	if err := s.SetPace(datapath.PacedRule{Index: 7}, datapath.Pace{}); err == nil {
		t.Error("the rate of a rule that there is not is set")
	}
	done, err := s.ReadPaced(rule)
	if nettest.Check(t, err); done.Passed == 0 || done.Dropped == 0 {
		t.Errorf("counted %+v", done)
	}
}

// A request rule's, too, with its burst.
func TestGatePace(t *testing.T) {
	g := newGate(t)
	r := g.room(t, `concurrency: auto}]
requests: [{name: dynamic, path: /, rate: auto`)
	r.steer(t, datapath.Control{Level: policy.WhenOverload})
	for i, pace := range []float64{0, 20, 20, 20, 0} {
		nettest.Check(t, r.SetPace(datapath.PacedRule{Request: true}, datapath.Pace{Rate: pace / 1000, Grace: time.Hour}))
		c := r.client(t)
		if i == 2 || i == 3 { // the first took the only token
			c.send(c.says(get), rejects("rule")).is(t, tcxRedirect, nil)
			c.isGone()
			continue
		}
		c.asks(get, serves.and(known))
		c.replies(ok, ends)
	}
}
