// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"narthex/internal/api"
	"narthex/internal/datapath"
)

const (
	// mostTallied bounds the names that are counted at once, for clients choose their addresses.
	mostTallied = 10_000
	// mostSummed is how many of them are shown.
	mostSummed = 10
)

// eventSummary sums events up.
type eventSummary struct {
	began          time.Time
	events, turned uint64
	missed         uint64
	kinds          map[string]uint64
	clients        tally
	rules          tally
	classes        tally
	reasons        tally
}

// newEventSummary sums up what has happened since a time.
func newEventSummary(since time.Time) *eventSummary {
	return &eventSummary{began: since, kinds: map[string]uint64{}, clients: newTally(), rules: newTally(), classes: newTally(), reasons: newTally()}
}

// add never fails.
func (s *eventSummary) add(e api.Event) error {
	if e.Kind == string(datapath.EventMissed) {
		s.missed += e.Missed
		return nil
	}
	s.events++
	kind := e.Kind
	if e.Shadow {
		kind = "would " + kind
	}
	s.kinds[kind]++
	switch datapath.EventKind(e.Kind) {
	case datapath.EventDrop, datapath.EventReject, datapath.EventDemote:
	default:
		return nil
	}
	s.turned++
	if at, err := netip.ParseAddrPort(e.Client); err == nil {
		s.clients.add(at.Addr().String())
	}
	s.rules.add(e.Rule)
	s.classes.add(e.Class)
	s.reasons.add(e.Reason)
	return nil
}

// tally counts by name in a bounded table (Misra-Gries): with too many names the half that was
// counted least is forgotten, so that no name is overstated and a frequent one comes up late, too.
type tally struct {
	counts    map[string]uint64
	forgotten uint64 // events that are in no name's count any more
}

func newTally() tally { return tally{counts: map[string]uint64{}} }

func (t *tally) add(name string) {
	if name == "" {
		return
	}
	if _, known := t.counts[name]; !known && len(t.counts) == mostTallied {
		for _, one := range t.ranked()[mostTallied/2:] {
			t.forgotten += one.Events
			delete(t.counts, one.Name)
		}
	}
	t.counts[name]++
}

// tallied is one name of a tally.
type tallied struct {
	Name   string `json:"name"`
	Events uint64 `json:"events"`
}

// ranked returns the names that were counted most first.
func (t *tally) ranked() []tallied {
	list := make([]tallied, 0, len(t.counts))
	for name, n := range t.counts {
		list = append(list, tallied{name, n})
	}
	slices.SortFunc(list, func(a, b tallied) int { return cmp.Or(cmp.Compare(b.Events, a.Events), cmp.Compare(a.Name, b.Name)) })
	return list
}

// most returns the names that were counted most.
func (t *tally) most() []tallied { return t.ranked()[:min(len(t.counts), mostSummed)] }

// print writes the sum of what came until now.
func (s *eventSummary) print(env Env, asJSON bool) error {
	seconds := time.Since(s.began).Seconds()
	if asJSON {
		return printJSON(env, struct {
			Seconds float64           `json:"seconds"`
			Events  uint64            `json:"events"`
			Turned  uint64            `json:"turned_away"`
			Missed  uint64            `json:"missed"`
			Kinds   map[string]uint64 `json:"kinds"`
			Clients []tallied         `json:"clients"` // these and the next are of who was turned away
			Rules   []tallied         `json:"rules"`
			Classes []tallied         `json:"classes"`
			Reasons []tallied         `json:"reasons"`
			// Forgotten counts events of clients that were forgotten, for there were too many.
			Forgotten uint64 `json:"clients_forgotten"`
		}{
			seconds, s.events, s.turned, s.missed, s.kinds, s.clients.most(), s.rules.most(), s.classes.most(), s.reasons.most(),
			s.clients.forgotten,
		})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d events in %s, %d missed", s.events, span(seconds), s.missed)
	for i, kind := range slices.Sorted(maps.Keys(s.kinds)) {
		fmt.Fprintf(&b, "%s %d %s", map[bool]string{true: ":", false: ","}[i == 0], s.kinds[kind], kind)
	}
	b.WriteString("\n")
	if s.turned > 0 {
		t := newTable("TURNED AWAY", "", ">EVENTS")
		for _, of := range []struct {
			what  string
			tally *tally
		}{{"client", &s.clients}, {"rule", &s.rules}, {"class", &s.classes}, {"reason", &s.reasons}} {
			for _, one := range of.tally.most() {
				t.add(of.what, one.Name, fmt.Sprint(one.Events))
			}
		}
		t.print(&b)
	}
	if n := s.clients.forgotten; n > 0 {
		fmt.Fprintf(&b, "there were too many clients to count: %d events are in no client's number\n", n)
	}
	_, err := io.WriteString(env.Stdout, b.String())
	return err
}
