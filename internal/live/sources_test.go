// SPDX-License-Identifier: Apache-2.0

package live

import (
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"narthex/internal/datapath"
)

func event(kind datapath.EventKind, from netip.Addr) datapath.Event {
	return datapath.Event{Kind: kind, Client: netip.AddrPortFrom(from, 4000), Rule: "foe", Reason: "rule"}
}

func TestSourcesByHowManyWereTurnedAway(t *testing.T) {
	a, b, c := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::1")
	var s Sources
	if got := s.Top(start, 10); len(got) != 0 {
		t.Errorf("before anything: %v", got)
	}
	for second := 1; second <= 60; second++ {
		for range 40 {
			s.See(event(datapath.EventDrop, b))
		}
		for range 10 {
			s.See(event(datapath.EventReject, a))
			s.See(event(datapath.EventHold, a))
			s.See(event(datapath.EventAdmit, c))
		}
		s.See(datapath.Event{Kind: datapath.EventMissed, Missed: 3})
		s.Top(start.Add(time.Duration(second)*time.Second), 1)
	}
	// Counts fade by a second's worth before they are shown: they are up to 5 % too low.
	want := []Source{
		{Client: "192.0.2.2", Turned: 40, Seen: 40, Rule: "foe", Reason: "rule"},
		{Client: "192.0.2.1", Turned: 10, Seen: 20, Rule: "foe", Reason: "rule"},
		{Client: "2001:db8::1", Seen: 10},
	}
	got := s.Top(start.Add(time.Minute), 10)
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0.06, 0)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, g := range got {
		if g.Turned > 40 {
			t.Errorf("%s is overstated: %v", g.Client, g.Turned)
		}
	}
	if got := s.Top(start.Add(time.Minute), 1); len(got) != 1 || got[0].Client != "192.0.2.2" {
		t.Errorf("the first: %v", got)
	}
	if got := s.Top(start.Add(time.Hour), 10); len(got) != 0 {
		t.Errorf("an hour later: %v", got)
	}
}

func TestSourcesFromTheFirstSecondOn(t *testing.T) {
	a := netip.MustParseAddr("192.0.2.1")
	var s Sources
	s.Top(start, 1)
	for range 30 {
		s.See(event(datapath.EventDrop, a))
	}
	if got := s.Top(start.Add(time.Second), 1); len(got) != 1 || math.Abs(got[0].Turned-30) > 2 {
		t.Errorf("30 in the first second: %v", got)
	}
}

// A flood from ever new addresses neither fills memory nor hides who comes often.
func TestAFloodOfSourcesIsBounded(t *testing.T) {
	often := netip.MustParseAddr("192.0.2.1")
	var s Sources
	s.Top(start, 1)
	next := netip.MustParseAddr("10.0.0.0")
	for i := range 50_000 {
		next = next.Next()
		s.See(event(datapath.EventDrop, next))
		if i%100 == 0 {
			s.See(event(datapath.EventDrop, often))
		}
		if len(s.table) > 2*keptSources {
			t.Fatalf("%d sources are kept", len(s.table))
		}
	}
	if got := s.Top(start.Add(time.Second), 1); len(got) != 1 || got[0].Client != "192.0.2.1" || got[0].Turned < 400 {
		t.Errorf("first of a flood: %v", got)
	}
}

// What is shown is why a source was turned away most, and not why it was last.
func TestSourcesByTheMostFrequentCause(t *testing.T) {
	a := netip.MustParseAddr("192.0.2.1")
	var s Sources
	s.Top(start, 1)
	reject := func(rule, reason string, times int) {
		for range times {
			s.See(datapath.Event{Kind: datapath.EventReject, Client: netip.AddrPortFrom(a, 4000), Rule: rule, Reason: reason})
		}
	}
	for i, name := range []string{"a", "b", "c", "d", "e", "f"} { // more than are kept
		reject("login", "rule", 5)
		reject(name, "rule", i%2+1)
	}
	reject("", "max_wait", 1)
	if got := s.Top(start.Add(time.Second), 1); len(got) != 1 || got[0].Rule != "login" || got[0].Reason != "rule" {
		t.Errorf("turned away 30 times by login, last by something else: %+v", got)
	}
}
