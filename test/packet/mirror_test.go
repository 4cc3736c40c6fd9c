// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"narthex/internal/datapath"
	"narthex/test/nettest"
)

// mirror reads what an instance decides about.
type mirror struct {
	t      *testing.T
	copies *reading[datapath.Mirrored]
}

func (s *subject) mirror(t *testing.T) *mirror {
	t.Helper()
	reader, err := s.Mirror()
	nettest.Check(t, err)
	return &mirror{t, read(t, reader)}
}

// shows compares the next copies.
func (m *mirror) shows(want ...datapath.Mirrored) {
	m.t.Helper()
	var got []datapath.Mirrored
	for range want {
		got = append(got, m.copies.next(m.t))
	}
	same := cmp.Options{cmpopts.IgnoreFields(datapath.Mirrored{}, "Time", "Clock"), cmpopts.EquateEmpty(),
		cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })}
	if diff := cmp.Diff(want, got, same); diff != "" {
		m.t.Errorf("copies (-want +got):\n%s", diff)
	}
}

// All SYNs to services are copied, whatever is decided.
func TestMirrorOfSYNs(t *testing.T) {
	s := share(t, eventPolicy)
	send := func(from, to string, change func(*frame)) datapath.Mirrored {
		t.Helper()
		f := syn(from, to)
		if change != nil {
			change(f)
		}
		s.hooks[0].send(t, f.bytes(t))
		return datapath.Mirrored{Weight: 1, Client: f.from, Server: f.to, SYN: true, Service: "shop", Kind: datapath.EventPass}
	}
	send("10.2.0.1:4000", "10.0.0.1:80", nil) // before anybody reads
	m := s.mirror(t)
	var want []datapath.Mirrored
	add := func(c datapath.Mirrored, change func(*datapath.Mirrored)) {
		change(&c)
		want = append(want, c)
	}
	few := func(c *datapath.Mirrored) { c.Rule = "few" }
	add(send("10.2.0.1:4001", "10.0.0.1:80", nil), few)
	add(send("10.2.0.1:4002", "10.0.0.1:80", nil), few)
	add(send("10.2.0.1:4003", "10.0.0.1:80", nil), func(c *datapath.Mirrored) { few(c); c.Kind = datapath.EventDrop })
	send("192.0.2.1:4000", "10.0.0.1:82", nil) // to no service
	add(send("[2001:db8:bad::1]:4000", "[fd00::1]:80", nil), func(c *datapath.Mirrored) { c.Rule, c.Kind = "foe", datapath.EventDrop })
	add(send("192.0.2.1:4000", "10.0.0.1:81", nil), func(c *datapath.Mirrored) { // in shadow mode
		c.Service, c.Rule, c.Kind = "trial", "foe", datapath.EventDrop
	})
	add(send("10.9.9.9:4000", "10.0.0.1:80", nil), func(c *datapath.Mirrored) { c.Reason = "no_rule" })
	add(send("10.9.9.9:4000", "10.0.0.1:80", func(f *frame) { f.payload = []byte("x") }), func(c *datapath.Mirrored) {
		c.Kind, c.Reason = datapath.EventDrop, "syn_data"
	})
	m.shows(want...)
}

// Requests are copied with what their rule makes of them, whatever their way to the gate.
func TestMirrorOfRequests(t *testing.T) {
	g := newGate(t)
	for _, c := range []struct {
		name, settings, base string
		paths                []string // of connections of one address
		want                 []datapath.Mirrored
	}{
		{"no rule", plenty, lowBase, []string{"/"}, []datapath.Mirrored{{Kind: datapath.EventAdmit, Class: "low"}}},
		{"IPv6, high", plenty, v6Base, []string{"/few"}, []datapath.Mirrored{{Kind: datapath.EventAdmit, Rule: "few", Class: "high"}}},
		{"reject", plenty, lowBase, []string{"/banned"}, []datapath.Mirrored{{Kind: datapath.EventReject, Rule: "banned", Class: "low", Reason: "rule"}}},
		{"drop", plenty, lowBase, []string{"/reset"}, []datapath.Mirrored{{Kind: datapath.EventDrop, Rule: "reset", Class: "low", Reason: "dropped"}}},
		{"malformed", plenty, lowBase, []string{"/%zz", "/"}, []datapath.Mirrored{
			{Kind: datapath.EventReject, Class: "low", Reason: "malformed"}, {Kind: datapath.EventAdmit, Class: "low"}}},
		{"demote", plenty, lowBase, []string{"/slow", "/slow", "/"}, []datapath.Mirrored{
			{Kind: datapath.EventAdmit, Rule: "slow", Class: "high"}, {Kind: datapath.EventDemote, Rule: "slow", Class: "low"}, {Kind: datapath.EventAdmit, Class: "low"}}},
		{"held", "concurrency: 1", lowBase, []string{"/", "/few"}, []datapath.Mirrored{
			{Kind: datapath.EventAdmit, Class: "low"}, {Kind: datapath.EventAdmit, Rule: "few", Class: "high"}}},
		{"shadow", plenty + ", mode: shadow", lowBase, []string{"/banned"}, []datapath.Mirrored{
			{Kind: datapath.EventReject, Rule: "banned", Class: "low", Reason: "rule"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := g.ruledRoom(t, c.settings)
			m := r.subject.mirror(t)
			p := r.clientAt(t, c.base)
			for i, path := range c.paths {
				if i > 0 {
					p = p.again()
				}
				r.puts(p, path)
				want := c.want[i]
				want.Weight, want.Client, want.Server, want.Service = 1, p.From, p.To, r.tables.Services[0].Name
				want.Head = []byte("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n")
				if want.Rule != "" {
					want.Rule = r.event(p, "", want.Rule, "", "").Rule
				}
				m.shows(want)
			}
		})
	}
}

// A head that comes in pieces is copied once, when it is whole, from its slot; of a long one the
// beginning. There need be no request rules.
func TestMirrorOfHeadInPieces(t *testing.T) {
	g := newGate(t)
	r := g.room(t, plenty)
	r.reopenHooks(t)
	m := r.subject.mirror(t)
	p := r.client(t)
	head := "GET /long HTTP/1.1\r\nHost: x\r\nX-Long: " + strings.Repeat("abcdefgh", 300) + "\r\n\r\n"
	for at := 0; at < len(head); at += 1000 {
		s := p.says(head[at:min(at+1000, len(head))])
		s.Seq += uint32(at)
		r.run(t, r.in, p.frame(s), 0)
	}
	m.shows(datapath.Mirrored{Weight: 1, Client: p.From, Server: p.To, Service: r.tables.Services[0].Name, Kind: datapath.EventAdmit, Class: "low", Head: []byte(head[:2048])})
}

// What cannot be copied is counted, and from then on fewer sources are copied, but of these all.
func TestMirrorOfFlood(t *testing.T) {
	s := share(t, eventPolicy)
	m := s.mirror(t)
	const n = 100_000
	s.hooks[0].run(t, syn("192.0.2.1:4000", "10.0.0.1:80").bytes(t), &ebpf.RunOptions{Repeat: n})
	for copied, missed := 0, 0; copied+missed < n; {
		if c := m.copies.next(m.t); c.Missed > 0 {
			missed += int(c.Missed)
		} else if copied++; copied == n {
			t.Fatal("a flood is copied in full")
		}
	}
	// The smaller share is in force when it is renewed.
	deadline := time.After(patience)
	for i := 0; ; i++ {
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}), 4000)
		s.hooks[0].send(t, syn(from.String(), "10.0.0.1:80").bytes(t))
		select {
		case c := <-m.copies.all:
			if c.Missed == 0 && c.Weight > 1 {
				return
			}
		case <-time.After(10 * time.Millisecond): // it is of the others
		case <-deadline:
			t.Fatal("all sources are still copied after a flood")
		}
	}
}
