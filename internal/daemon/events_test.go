// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"narthex/internal/api"
	"narthex/internal/datapath"
)

// follower is a client that listens to events.
type follower struct {
	t      *testing.T
	cancel context.CancelFunc
	events chan api.Event
	ended  chan error
}

// follow listens, and returns when the daemon does.
func (r *running) follow(f api.EventFilter) *follower {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r.t.Cleanup(cancel)
	l := &follower{r.t, cancel, make(chan api.Event, 100), make(chan error, 1)}
	began := make(chan struct{})
	go func() {
		l.ended <- r.client.Events(ctx, f, func() { close(began) }, func(e api.Event) error {
			l.events <- e
			return nil
		})
	}()
	select {
	case <-began:
	case err := <-l.ended:
		r.t.Fatal(err)
	}
	return l
}

func (l *follower) next() api.Event {
	l.t.Helper()
	select {
	case e := <-l.events:
		return e
	case err := <-l.ended:
		l.t.Fatalf("ended: %v", err)
	case <-time.After(10 * time.Second):
		l.t.Fatal("no event comes")
	}
	return api.Event{}
}

// last is an event that no filter of these tests keeps out.
func last() datapath.Event {
	e := rejection()
	e.Client = netip.MustParseAddrPort("192.0.2.7:9")
	return e
}

func rejection() datapath.Event {
	return datapath.Event{
		Time: time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC), Kind: datapath.EventReject,
		Client: netip.MustParseAddrPort("192.0.2.7:50000"), Server: netip.MustParseAddrPort("198.51.100.1:80"),
		Service: "web", Class: "gold", Rule: "cgi", Request: true, Reason: "rule", Rated: true, Tokens: 0.25, Burst: 2,
		Waited: 1500 * time.Millisecond,
	}
}

func TestEventsReachWhoListens(t *testing.T) {
	m := newMachine(t, "eth0")
	r := m.start(m.config(m.write("p.yaml", ruledServices)))
	if m.kernel.Tell(rejection()) {
		t.Error("the daemon reads events that nobody asked for")
	}
	a, b := r.follow(api.EventFilter{}), r.follow(api.EventFilter{})
	m.kernel.Tell(rejection())
	want := api.Event{
		Time: rejection().Time, Kind: "reject", Client: "192.0.2.7:50000", Server: "198.51.100.1:80", Service: "web", Class: "gold",
		Rule: "cgi", RuleKind: "request", Reason: "rule", Level: &api.Level{Tokens: 0.25, Burst: 2}, Waited: 1.5,
	}
	for _, l := range []*follower{a, b} {
		if diff := cmp.Diff(want, l.next()); diff != "" {
			t.Errorf("event (-want +got):\n%s", diff)
		}
	}
	m.kernel.Tell(datapath.Event{Kind: datapath.EventDrop, Rule: "foe", Shadow: true, Reason: "rule", Service: "test",
		Client: netip.MustParseAddrPort("[2001:db8::1]:4"), Server: netip.MustParseAddrPort("[2001:db8::2]:81")})
	want = api.Event{Kind: "drop", Shadow: true, Client: "[2001:db8::1]:4", Server: "[2001:db8::2]:81", Service: "test",
		Rule: "foe", RuleKind: "connection", Reason: "rule"}
	if diff := cmp.Diff(want, a.next()); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
	m.kernel.Tell(datapath.Event{Kind: datapath.EventMissed, Missed: 7})
	if e := a.next(); e.Kind != "missed" || e.Missed != 7 || e.Client != "" || e.Time.IsZero() {
		t.Errorf("missed: %+v", e)
	}
	if times, _ := m.kernel.Listened(); times != 1 {
		t.Errorf("%d readers of the kernel's events for two clients", times)
	}

	a.cancel()
	b.cancel()
	eventually(t, "nobody reads events", func() bool { _, now := m.kernel.Listened(); return !now })
	c := r.follow(api.EventFilter{})
	m.kernel.Tell(rejection())
	c.next()
	r.end() // within a deadline, although somebody listens
	if err := <-c.ended; !errors.Is(err, api.ErrEventsEnded) {
		t.Errorf("at the daemon's end: %v", err)
	}
	if _, now := m.kernel.Listened(); now {
		t.Error("events are read after the daemon's end")
	}
}

func TestEventFilters(t *testing.T) {
	m := newMachine(t, "eth0")
	r := m.start(m.config(m.write("p.yaml", ruledServices)))
	defer r.end()
	another := func(change func(*datapath.Event)) datapath.Event {
		e := rejection()
		change(&e)
		return e
	}
	for _, c := range []struct {
		filter api.EventFilter
		hidden datapath.Event
	}{
		{api.EventFilter{From: "192.0.2.7"}, another(func(e *datapath.Event) { e.Client = netip.MustParseAddrPort("192.0.2.8:5") })},
		{api.EventFilter{From: "192.0.2.0/24"}, another(func(e *datapath.Event) { e.Client = netip.MustParseAddrPort("192.0.3.0:5") })},
		{api.EventFilter{From: "192.0.2.9/24"}, another(func(e *datapath.Event) { e.Client = netip.MustParseAddrPort("[2001:db8::1]:5") })},
		{api.EventFilter{Rule: "cgi"}, another(func(e *datapath.Event) { e.Rule = "slow" })},
		{api.EventFilter{Class: "gold"}, another(func(e *datapath.Event) { e.Class = "" })},
		{api.EventFilter{Service: "web"}, another(func(e *datapath.Event) { e.Service = "mail" })},
		{api.EventFilter{Reason: "rule"}, another(func(e *datapath.Event) { e.Reason = "max_wait" })},
		{api.EventFilter{Kind: "reject"}, another(func(e *datapath.Event) { e.Kind = datapath.EventDemote })},
		{api.EventFilter{Kind: "reject", Rule: "cgi"}, another(func(e *datapath.Event) { e.Rule = "" })},
	} {
		l := r.follow(c.filter)
		m.kernel.Tell(c.hidden)
		m.kernel.Tell(last())
		if e := l.next(); e.Client != last().Client.String() {
			t.Errorf("%+v lets through %+v", c.filter, e)
		}
		l.cancel()
		eventually(t, "nobody reads events", func() bool { _, now := m.kernel.Listened(); return !now })
	}
}

func TestWrongEventFilters(t *testing.T) {
	m := newMachine(t, "eth0")
	r := m.start(m.config(m.write("p.yaml", ruledServices)))
	defer r.end()
	for want, f := range map[string]api.EventFilter{
		`there is no rule in the policy in force called "cig"`:                                                      {Rule: "cig"},
		`there is no class in the policy in force called "tin"`:                                                     {Class: "tin"},
		`there is no service in the policy in force called "shop"`:                                                  {Service: "shop"},
		`there is no kind of events "eject": use one of drop, reject, demote, hold, admit, release`:                 {Kind: "eject"},
		`"192.0.2" is neither an address nor a prefix: write it like 192.0.2.1, 192.0.2.0/24 or 2001:db8::/32`:      {From: "192.0.2"},
		`"fe80::1%eth0" is neither an address nor a prefix: write it like 192.0.2.1, 192.0.2.0/24 or 2001:db8::/32`: {From: "fe80::1%eth0"},
		`there is no reason "none": use one of blocked, closed, complex, contended, displaced, dropped, extension, fragment, h2c, ` +
			`malformed, max_wait, no_flow, no_server, no_slot, queue_full, rule, shed, sources, syn_data, syn_flags, target, too_large, vlan_tags`: {Reason: "none"},
	} {
		err := r.client.Events(t.Context(), f, func() { t.Error("it began") }, nil)
		var told *api.Error
		if !errors.As(err, &told) || told.Message != want || !told.Usage {
			t.Errorf("%+v: %v, want %s", f, err, want)
		}
	}
	if times, _ := m.kernel.Listened(); times != 0 {
		t.Error("the kernel's events were read")
	}
}

// Who does not read holds nobody up, and learns how much there was.
func TestSlowFollowersMissEvents(t *testing.T) {
	m := newMachine(t, "eth0")
	cfg := m.config(m.write("p.yaml", ruledServices))
	r := m.start(cfg)
	defer r.end()
	conn, err := net.Dial("unix", cfg.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET "+api.PathEvents+" HTTP/1.1\r\nHost: narthex\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it listens", func() bool { _, now := m.kernel.Listened(); return now })
	l := r.follow(api.EventFilter{From: last().Client.Addr().String(), Kind: "hold"})
	const n = 20_000 // beyond the queue and any socket's buffer
	for range n {
		m.kernel.Tell(rejection())
	}
	held := last()
	held.Kind = datapath.EventHold
	m.kernel.Tell(held)
	if e := l.next(); e.Kind != "hold" {
		t.Errorf("the other client got %+v", e)
	}
	// The slow one begins to read.
	told, missed := 0, 0
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	lines := json.NewDecoder(resp.Body)
	for told+missed < n+1 {
		var e api.Event
		if err := lines.Decode(&e); err != nil {
			t.Fatal(err)
		}
		if e.Kind == "missed" {
			missed += int(e.Missed)
		} else {
			told++
		}
	}
	if told+missed != n+1 || missed == 0 || told < eventQueue {
		t.Errorf("%d told and %d missed of %d", told, missed, n+1)
	}
}

func TestEventsThatCannotBeRead(t *testing.T) {
	m := newMachine(t, "eth0")
	r := m.start(m.config(m.write("p.yaml", ruledServices)))
	defer r.end()
	l := r.follow(api.EventFilter{})
	m.kernel.Break(errors.New("the ring is broken"))
	if err := <-l.ended; !errors.Is(err, api.ErrEventsEnded) {
		t.Errorf("after a fault: %v", err)
	}
	l = r.follow(api.EventFilter{}) // it is tried anew
	m.kernel.Tell(rejection())
	l.next()

	h := newEventHub(func() (datapath.EventReader, error) { return nil, errors.New("no ring") }, slog.New(slog.DiscardHandler))
	if _, err := h.join(eventFilter{}); err == nil || err.Error() != "no ring" {
		t.Errorf("without a ring: %v", err)
	}
	h.stop()
	if _, err := h.join(eventFilter{}); err == nil || err.Error() != "the daemon is ending" {
		t.Errorf("at the end: %v", err)
	}
}
