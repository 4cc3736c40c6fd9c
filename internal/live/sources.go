// SPDX-License-Identifier: Apache-2.0

package live

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"time"

	"narthex/internal/datapath"
)

const (
	// keptSources is how many sources are kept when there are twice as many, so that a flood
	// from forged addresses takes neither memory nor, for each event, time.
	keptSources = 512
	// fadesIn is the time constant by which what a source did is forgotten.
	fadesIn = 10 * time.Second
	// mostCauses is how many causes of a source are told apart.
	mostCauses = 4
	// forgotten is how little of it is not worth an entry.
	forgotten = 0.05
)

// Sources counts events by client in a bounded table (Misra-Gries): with many clients the ones
// with the fewest are dropped, so that a client's rate is never overstated. The zero value is
// empty.
type Sources struct {
	table map[netip.Addr]*source
	since time.Time // when it began; zero: it has not
	faded time.Time // when counts were last made smaller for their age
}

type source struct {
	turned, seen float64
	causes       [mostCauses]cause // for which it was turned away
}

// cause is a rule and a reason for which a source was turned away so often.
type cause struct {
	rule, reason string
	times        float64
}

// blame counts a cause. With more causes than there is room for, what comes often stays: a new one
// takes from the least, and has its place when nothing is left of that.
func (s *source) blame(rule, reason string) {
	least := &s.causes[0]
	for i := range s.causes {
		c := &s.causes[i]
		if c.times > 0 && c.rule == rule && c.reason == reason {
			c.times++
			return
		}
		if c.times < least.times {
			least = c
		}
	}
	if least.times -= 1; least.times <= 0 {
		*least = cause{rule, reason, 1}
	}
}

// most returns the cause that was most frequent of late.
func (s *source) most() cause {
	return slices.MaxFunc(s.causes[:], func(a, b cause) int { return cmp.Compare(a.times, b.times) })
}

// See counts an event.
func (s *Sources) See(e datapath.Event) {
	at := e.Client.Addr()
	if e.Kind == datapath.EventMissed || !at.IsValid() {
		return
	}
	if s.table == nil {
		s.table = map[netip.Addr]*source{}
	}
	c := s.table[at]
	if c == nil {
		s.makeRoom()
		c = &source{}
		s.table[at] = c
	}
	c.seen++
	if e.Kind == datapath.EventDrop || e.Kind == datapath.EventReject {
		c.turned++
		c.blame(e.Rule, e.Reason)
	}
}

// makeRoom keeps the half of a full table that was turned away most.
func (s *Sources) makeRoom() {
	if len(s.table) < 2*keptSources {
		return
	}
	for _, at := range s.ranked()[keptSources:] {
		delete(s.table, at)
	}
}

// ranked returns who was turned away most first.
func (s *Sources) ranked() []netip.Addr {
	list := make([]netip.Addr, 0, len(s.table))
	for at := range s.table {
		list = append(list, at)
	}
	slices.SortFunc(list, func(a, b netip.Addr) int {
		x, y := s.table[a], s.table[b]
		return cmp.Or(cmp.Compare(y.turned, x.turned), cmp.Compare(y.seen, x.seen), a.Compare(b))
	})
	return list
}

// Top returns the sources that were turned away most, at most n. Their rates are averages in
// which the last ten seconds count most. The first call begins the time.
func (s *Sources) Top(now time.Time, n int) []Source {
	if s.since.IsZero() {
		s.since, s.faded = now, now
	}
	s.fade(now)
	list := []Source{}
	// A count that is fed r times a second comes up to r times this.
	span := fadesIn.Seconds() * (1 - math.Exp(-now.Sub(s.since).Seconds()/fadesIn.Seconds()))
	if span == 0 {
		return list
	}
	for _, at := range s.ranked() {
		if len(list) == n {
			break
		}
		c := s.table[at]
		most := c.most()
		list = append(list, Source{
			Client: at.String(), Turned: c.turned / span, Seen: c.seen / span, Rule: most.rule, Reason: most.reason,
		})
	}
	return list
}

// fade makes counts smaller for the time since it did so last.
func (s *Sources) fade(now time.Time) {
	factor := math.Exp(-now.Sub(s.faded).Seconds() / fadesIn.Seconds())
	for at, c := range s.table {
		c.turned *= factor
		c.seen *= factor
		for i := range c.causes {
			c.causes[i].times *= factor
		}
		if c.seen < forgotten {
			delete(s.table, at)
		}
	}
	s.faded = now
}
