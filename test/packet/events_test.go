// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"fmt"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"narthex/internal/datapath"
	"narthex/internal/lab"
	"narthex/test/nettest"
)

// lastSource sends the SYN of which the last event of a test tells.
const lastSource = "198.18.0.99:99"

// ear listens to the events of an instance.
type ear struct {
	t      *testing.T
	s      *subject
	events *reading[datapath.Event]
	last   []byte // a SYN that is always dropped
}

// listen opens an ear, with which the test ends.
func (s *subject) listen(t *testing.T, server string) *ear {
	t.Helper()
	reader, err := s.Events()
	nettest.Check(t, err)
	f := syn(lastSource, server)
	f.payload = []byte("x")
	return &ear{t, s, read(t, reader), f.bytes(t)}
}

// hears returns the events of what do does, all that are not samples.
func (e *ear) hears(do func()) (all []datapath.Event) {
	e.t.Helper()
	for _, ev := range e.hearsAll(do) {
		switch ev.Kind {
		case datapath.EventAdmit, datapath.EventHold, datapath.EventRelease:
		default:
			all = append(all, ev)
		}
	}
	return all
}

func (e *ear) hearsAll(do func()) (all []datapath.Event) {
	e.t.Helper()
	began := time.Now()
	do()
	if !e.s.hooks[0].send(e.t, e.last) && !e.s.tables.Services[0].Shadow {
		e.t.Fatal("the last SYN passed")
	}
	for {
		ev := e.events.next(e.t)
		if ev.Client.String() == lastSource {
			return all
		}
		if ev.Time.Before(began.Add(-time.Second)) || ev.Time.After(time.Now().Add(time.Second)) {
			e.t.Errorf("an event at %v, after %v", ev.Time, began)
		}
		all = append(all, ev)
	}
}

// tells compares events, with tokens in whole numbers, and any time of waiting as a second.
func tells(t *testing.T, got []datapath.Event, want ...datapath.Event) {
	t.Helper()
	for i := range got {
		got[i].Tokens = math.Round(got[i].Tokens)
		if got[i].Waited > 0 {
			got[i].Waited = time.Second
		}
	}
	same := cmp.Options{cmpopts.IgnoreFields(datapath.Event{}, "Time"), cmpopts.EquateEmpty(), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })}
	if diff := cmp.Diff(want, got, same); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

const eventPolicy = `
version: 1
services:
  - {name: shop, listen: ["*:80"], concurrency: auto}
  - {name: trial, listen: ["*:81"], mode: shadow}
classes: [{name: gold, priority: 1}, {name: bronze, priority: 2}]
connections:
  - {name: foe, from: [192.0.2.0/24, "2001:db8:bad::/48"], action: drop}
  - {name: few, from: [10.2.0.0/16, "2001:db8:2::/48"], rate: 1/m, burst: 3, per: source}
  - {name: all, from: [10.3.0.0/16], rate: 1/m, burst: 2, class: bronze}
`

// Of SYNs those are told of that are dropped.
func TestEventsOfSYNs(t *testing.T) {
	s := share(t, eventPolicy)
	e := s.listen(t, "10.0.0.1:80")
	few := datapath.Event{Kind: datapath.EventDrop, Service: "shop", Rule: "few", Reason: "rule", Rated: true, Burst: 3}
	for _, c := range []struct {
		name     string
		from, to string
		change   func(*frame)
		times    int
		want     datapath.Event // of the last
	}{
		{name: "passes", from: "10.2.0.1:4000", to: "10.0.0.1:80", times: 3},
		{name: "no token", from: "10.2.0.1:4001", to: "10.0.0.1:80", times: 1, want: few},
		{name: "no token of a /64", from: "[2001:db8:2::1]:4000", to: "[fd00::1]:80", times: 4, want: few},
		{name: "no token of the rule", from: "10.3.0.1:4000", to: "10.0.0.1:80", times: 3, want: datapath.Event{
			Kind: datapath.EventDrop, Service: "shop", Rule: "all", Class: "bronze", Reason: "rule", Rated: true, Burst: 2}},
		{name: "drop", from: "192.0.2.1:4000", to: "10.0.0.1:80", times: 1,
			want: datapath.Event{Kind: datapath.EventDrop, Service: "shop", Rule: "foe", Reason: "rule"}},
		{name: "drop, shadow", from: "192.0.2.1:4000", to: "127.0.0.1:81", times: 1,
			want: datapath.Event{Kind: datapath.EventDrop, Service: "trial", Rule: "foe", Reason: "rule", Shadow: true}},
		{name: "no token, shadow", from: "10.2.0.7:4000", to: "10.0.0.1:81", times: 4, want: datapath.Event{
			Kind: datapath.EventDrop, Service: "trial", Rule: "few", Reason: "rule", Shadow: true, Rated: true, Burst: 3}},
		{name: "drop of IPv6", from: "[2001:db8:bad::1]:4000", to: "[fd00::1]:80", times: 1,
			want: datapath.Event{Kind: datapath.EventDrop, Service: "shop", Rule: "foe", Reason: "rule"}},
		{name: "data", from: "10.9.9.9:4000", to: "10.0.0.1:80", times: 1, change: func(f *frame) { f.payload = []byte("x") },
			want: datapath.Event{Kind: datapath.EventDrop, Service: "shop", Reason: "syn_data"}},
		{name: "FIN", from: "[2001:db8::1]:4000", to: "[fd00::1]:80", times: 1, change: func(f *frame) { f.tcp.FIN = true },
			want: datapath.Event{Kind: datapath.EventDrop, Service: "shop", Reason: "syn_flags"}},
		{name: "to no service", from: "192.0.2.1:4000", to: "10.0.0.1:82", times: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			e.t = t
			f := syn(c.from, c.to)
			if c.change != nil {
				c.change(f)
			}
			got := e.hears(func() {
				for range c.times {
					s.hooks[0].send(t, f.bytes(t))
				}
			})
			if c.want.Kind == "" {
				tells(t, got)
				return
			}
			c.want.Client, c.want.Server = f.from, f.to
			tells(t, got, c.want)
		})
	}
	e.t = t
	s.steer(t, datapath.Control{Keep: []float64{1, 0}})
	f := syn("10.9.0.1:4000", "10.0.0.1:80")
	for _, from := range []struct{ address, rule, class string }{{"10.9.0.1", "", "bronze"}, {"10.3.0.2", "all", "bronze"}} {
		f.from = addrPort(from.address + ":4000")
		got := e.hears(func() { s.hooks[1].send(t, f.bytes(t)) })
		want := datapath.Event{Kind: datapath.EventDrop, Client: f.from, Server: f.to, Service: "shop", Class: from.class, Reason: "shed"}
		if from.rule != "" { // its bucket is empty before its class matters
			want.Rule, want.Reason, want.Rated, want.Burst = from.rule, "rule", true, 2
		}
		tells(t, got, want)
	}
}

// Nothing is told while nobody listens, and nobody hears what another has been told.
func TestEventsAreOfTheirTime(t *testing.T) {
	s := share(t, eventPolicy)
	f := syn("192.0.2.1:4000", "10.0.0.1:80").bytes(t)
	drop := func() {
		t.Helper()
		if !s.hooks[0].send(t, f) {
			t.Fatal("the SYN passed")
		}
	}
	drop()
	first, err := s.Events()
	nettest.Check(t, err)
	drop() // which first does not read
	nettest.Check(t, first.Close())
	if _, err := first.Next(); err == nil {
		t.Error("a closed reader reads")
	}
	nettest.Check(t, first.Close()) // once more
	drop()
	e := s.listen(t, "10.0.0.1:80")
	tells(t, e.hears(func() {}))
	if n := len(e.hears(drop)); n != 1 {
		t.Errorf("%d events of one drop", n)
	}
}

// A flood is not told of in full, but what is missed is counted.
func TestMissedEventsAreCounted(t *testing.T) {
	s := share(t, eventPolicy)
	const n = 100_000
	e := s.listen(t, "10.0.0.1:80")
	f := syn("192.0.2.1:4000", "10.0.0.1:80").bytes(t)
	s.hooks[0].run(t, f, &ebpf.RunOptions{Repeat: n})
	told, missed := 0, 0
	for told+missed < n {
		ev := e.events.next(e.t)
		if ev.Kind == datapath.EventMissed {
			missed += int(ev.Missed)
			tells(t, []datapath.Event{ev}, datapath.Event{Kind: datapath.EventMissed, Missed: ev.Missed})
			continue
		}
		told++
	}
	if told+missed != n || missed == 0 || told < 200 {
		t.Errorf("%d told and %d missed of %d", told, missed, n)
	}
}

// Who listens goes on to when the instance grows, and hears the names of the policy in force.
func TestEventsThroughGrowth(t *testing.T) {
	t.Parallel()
	s := load(t, rules(0, 10, "1/m"))
	e := s.listen(t, "10.0.0.1:80")
	dropped := func(i int) []datapath.Event {
		return e.hears(func() {
			for range 6 {
				s.hooks[1].send(t, syn(source(i)+":4000", "10.0.0.1:80").bytes(t))
			}
		})
	}
	named := func(i int) datapath.Event {
		return datapath.Event{
			Kind: datapath.EventDrop, Client: addrPort(source(i) + ":4000"), Server: addrPort("10.0.0.1:80"), Service: "shop",
			Rule: fmt.Sprintf("rule-%d", i), Reason: "rule", Rated: true, Burst: 5,
		}
	}
	tells(t, dropped(3), named(3))
	for _, n := range []int{3000, 20000} {
		s.apply(t, rules(0, n, "1/m"))
		s.reopenHooks(t)
		tells(t, dropped(n-1), named(n-1))
	}
	e.events.close(t)
	// A rule that is no more when its event is read has no name.
	late, err := s.Events()
	nettest.Check(t, err)
	s.hooks[0].send(t, syn(source(19_999)+":4000", "10.0.0.1:80").bytes(t))
	s.apply(t, rules(20_000, 100, "1/m"))
	got, err := late.Next()
	nettest.Check(t, err)
	want := named(19_999)
	want.Rule, want.Rated, want.Burst = "", false, 0
	tells(t, []datapath.Event{got}, want)
	nettest.Check(t, late.Close())
}

// requestRules are request rules for a room, with a number at which none had been before.
const requestRules = `
requests: [
  {name: banned-%[1]d, path: /banned, action: reject},
  {name: reset-%[1]d, path: /reset, action: drop},
  {name: few-%[1]d, path: /few, rate: 1/m, burst: 2, per: source, class: high},
  {name: slow-%[1]d, path: /slow, rate: 1/m, burst: 1, over: demote, class: high},
  {name: many-%[1]d, path: /many, rate: 1/m, burst: 5`

// ruledRoom is a room with request rules to whose events somebody listens.
type ruledRoom struct {
	*room
	*ear
	number uint32
}

// ruledRoom opens a room with settings.
func (g *gate) ruledRoom(t *testing.T, settings string) ruledRoom {
	t.Helper()
	n := rooms.Load()
	// The form of the room's policy ends with what closes the rules.
	r := g.room(t, settings+"}]"+fmt.Sprintf(requestRules, n))
	r.reopenHooks(t)
	return ruledRoom{r, r.subject.listen(t, fmt.Sprintf("10.77.0.1:%d", r.port)), n}
}

// event is one of the room about a client, by a rule if it has a name.
func (r ruledRoom) event(c *client, kind datapath.EventKind, rule, class, reason string) datapath.Event {
	e := datapath.Event{Kind: kind, Class: class, Reason: reason, Client: c.From, Server: c.To, Service: r.tables.Services[0].Name}
	if rule != "" {
		e.Rule, e.Request = fmt.Sprintf("%s-%d", rule, r.number), true
	}
	said := map[string]string{"few rule": "429", "reset dropped": "reset", " malformed": "400"}
	if e.Answer = said[rule+" "+reason]; kind == datapath.EventReject && e.Answer == "" {
		e.Answer = "503"
	}
	return e
}

// leveled is an event by a rule with a bucket.
func leveled(e datapath.Event, tokens float64, burst uint32) datapath.Event {
	e.Rated, e.Tokens, e.Burst = true, tokens, burst
	return e
}

// puts gives a request to the gate, whatever becomes of it.
func (r ruledRoom) puts(c *client, path string) {
	r.t.Helper()
	r.run(r.t, r.in, c.frame(c.says("GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")), 0)
}

// again is another connection from the same address.
func (c *client) again() *client {
	c.t.Helper()
	cfg := lab.PeerConfig{From: netip.AddrPortFrom(c.From.Addr(), c.From.Port()+1), To: c.To, NoTimestamps: true}
	n := &client{Peer: nettest.Peer(c.t, c.r.rig, cfg), t: c.t, r: c.r}
	nettest.Check(c.t, n.SendSYN())
	_, err := n.AwaitSYNACK(patience)
	nettest.Check(c.t, err)
	n.got = n.Next
	return n
}

// Requests that are turned away or demoted by a rule, or for what they say.
func TestEventsOfRules(t *testing.T) {
	g := newGate(t)
	const reject, demote = datapath.EventReject, datapath.EventDemote
	for _, c := range []struct {
		name     string
		settings string
		base     string   // of the client
		paths    []string // of its connections
		want     func(ruledRoom, *client) datapath.Event
	}{
		{"reject", plenty, lowBase, []string{"/banned"}, func(r ruledRoom, c *client) datapath.Event {
			return r.event(c, reject, "banned", "low", "rule")
		}},
		{"drop", plenty, lowBase, []string{"/reset"}, func(r ruledRoom, c *client) datapath.Event {
			return r.event(c, reject, "reset", "low", "dropped")
		}},
		{"drop, class of the connection", plenty, highBase, []string{"/reset"}, func(r ruledRoom, c *client) datapath.Event {
			return r.event(c, reject, "reset", "high", "dropped")
		}},
		{"rate", plenty, lowBase, []string{"/few", "/few", "/few"}, func(r ruledRoom, c *client) datapath.Event {
			return leveled(r.event(c, reject, "few", "high", "rule"), 0, 2)
		}},
		{"rate of IPv6", plenty, v6Base, []string{"/few", "/few", "/few"}, func(r ruledRoom, c *client) datapath.Event {
			return leveled(r.event(c, reject, "few", "high", "rule"), 0, 2)
		}},
		{"demote", plenty, lowBase, []string{"/slow", "/slow"}, func(r ruledRoom, c *client) datapath.Event {
			return leveled(r.event(c, demote, "slow", "low", "rule"), 0, 1)
		}},
		{"malformed", plenty, lowBase, []string{"/ x"}, func(r ruledRoom, c *client) datapath.Event {
			return r.event(c, reject, "", "low", "malformed")
		}},
		{"reject, shadow", plenty + ", mode: shadow", lowBase, []string{"/banned"}, func(r ruledRoom, c *client) datapath.Event {
			e := r.event(c, reject, "banned", "low", "rule")
			e.Shadow = true
			return e
		}},
		{"demote, shadow", plenty + ", mode: shadow", v6Base, []string{"/slow", "/slow"}, func(r ruledRoom, c *client) datapath.Event {
			e := leveled(r.event(c, demote, "slow", "low", "rule"), 0, 1)
			e.Shadow = true
			return e
		}},
		{"queue full", "concurrency: 1, queue: {size: 0}", lowBase, []string{"/", "/many"}, func(r ruledRoom, c *client) datapath.Event {
			return leveled(r.event(c, reject, "many", "low", "queue_full"), 4, 5)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := g.ruledRoom(t, c.settings)
			p := r.clientAt(t, c.base)
			got := r.hears(func() {
				for i, path := range c.paths {
					if i > 0 {
						p = p.again()
					}
					r.puts(p, path)
				}
			})
			tells(t, got, c.want(r, p))
		})
	}
}

const plenty = "concurrency: 100"

// Requests that are rejected after they have waited.
func TestEventsOfWaiting(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		t.Run("max_wait/"+base, func(t *testing.T) {
			r := g.ruledRoom(t, "concurrency: 1, queue: {max_wait: 1ms}")
			r.client(t).asks(get, serves.and(known))
			p := r.clientAt(t, base)
			got := r.hears(func() {
				r.puts(p, "/few")
				r.outwaits(t, change{"waiting": -1, "slots": -1, "flows": -1}.and(rejects("max_wait")))
			})
			want := leveled(r.event(p, datapath.EventReject, "few", "high", "max_wait"), 1, 2)
			want.Waited = time.Second
			tells(t, got, want)
		})
	}
	t.Run("displaced", func(t *testing.T) {
		r := g.ruledRoom(t, "concurrency: 1, queue: {size: 1}")
		r.client(t).asks(get, serves.and(known))
		low, high := r.client(t), r.clientAt(t, highBase)
		got := r.hears(func() {
			r.puts(low, "/many")
			r.puts(high, "/")
			r.kick(t, change{"slots": -1, "flows": -1}.and(rejects("displaced")))
		})
		want := leveled(r.event(low, datapath.EventReject, "many", "low", "displaced"), 4, 5)
		want.Waited = time.Second
		tells(t, got, want)
	})
}

// Of requests that enter, wait and are released some are told of.
func TestEventsOfSamples(t *testing.T) {
	g := newGate(t)
	r := g.ruledRoom(t, "concurrency: 1")
	a, b := r.idle(t, lowBase), r.idle(t, lowBase)
	heard := map[datapath.EventKind]datapath.Event{}
	for round := 0; len(heard) < 3; round++ {
		if round == 1000 {
			t.Fatalf("of a thousand requests that wait no more is told than %v", heard)
		}
		for _, e := range r.hearsAll(func() {
			a.asks(get, serves)
			b.send(b.says(get), waits)
			a.replies(ok, ends)
			b.released(b.frame(b.says(get)))
			b.Next += uint32(len(get))
			b.replies(ok, ends)
		}) {
			heard[e.Kind] = e
		}
	}
	for kind, c := range map[datapath.EventKind]*client{datapath.EventAdmit: a, datapath.EventHold: b, datapath.EventRelease: b} {
		want := r.event(c, kind, "", "low", "")
		if kind == datapath.EventRelease {
			want.Waited = time.Second
		}
		tells(t, []datapath.Event{heard[kind]}, want)
	}
}
