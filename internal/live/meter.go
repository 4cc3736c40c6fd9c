// SPDX-License-Identifier: Apache-2.0

package live

import (
	"time"

	"narthex/internal/api"
	"narthex/internal/datapath"
)

const (
	// quantileWindow is the time of which quantiles are if the interval had fewDurations.
	quantileWindow = 10 * time.Second
	fewDurations   = 20

	mostSources = 20
)

// Meter makes views of the snapshots that it is shown, in their order. The zero value has
// seen none. It is not for several goroutines at once.
type Meter struct {
	last    *moment  // nil: there was none
	window  []rooms  // of the last quantileWindow, the oldest first, without the last
	matched lastSeen // when rules matched
	sources Sources
}

// moment is what is kept of the snapshot before.
type moment struct {
	at       time.Time
	services map[string]api.Counts
	members  map[memberKey]*api.PoolMember
	rules    map[ruleKey]*api.RuleStatus
	reasons  map[string]datapath.Counts
	rooms    rooms
}

// rooms is what the classes of all waiting rooms had done by a time.
type rooms struct {
	at      time.Time
	classes map[classKey]*api.RoomClassStatus
}

type classKey struct{ service, class string }

type memberKey struct{ pool, member string }

type ruleKey struct{ kind, name string }

// The kinds of rules.
const (
	connection = "connection"
	request    = "request"
)

// See counts an event for the sources of the next views.
func (m *Meter) See(e datapath.Event) { m.sources.See(e) }

// View returns what there is to see at a moment. Counters are compared with those of the view
// before: what had not been there then has no rates yet, and a counter that went back has
// begun anew.
func (m *Meter) View(now time.Time, s api.Status) View {
	v := View{Time: now, Status: s}
	this := momentOf(now, s)
	last := this // of which all differences are 0
	if m.last != nil && now.After(m.last.at) {
		last = m.last
		v.Interval = now.Sub(last.at).Seconds()
		m.window = append(m.window, last.rooms)
	}
	for len(m.window) > 0 && now.Sub(m.window[0].at) > quantileWindow {
		m.window = m.window[1:]
	}
	d := difference{now: this, last: last, seconds: v.Interval}
	if len(m.window) > 0 {
		d.oldest = m.window[0]
	}
	v.Services, v.Pools, v.DroppedBy = d.services(s), d.pools(s), d.droppedBy()
	v.Rules = d.rules(s)
	v.Sources = m.sources.Top(now, mostSources)
	m.matched.note(now, this, last)
	v.Status.Rules, v.Status.Requests = m.matched.trim(s)
	m.last = this
	return v
}

func momentOf(now time.Time, s api.Status) *moment {
	m := &moment{
		at: now, services: map[string]api.Counts{}, members: map[memberKey]*api.PoolMember{}, rules: map[ruleKey]*api.RuleStatus{}, reasons: s.Reasons,
		rooms: rooms{now, map[classKey]*api.RoomClassStatus{}},
	}
	for i := range s.Services {
		service := &s.Services[i]
		m.services[service.Name] = service.Counts
		if service.RoomStatus == nil {
			continue
		}
		for j := range service.Classes {
			m.rooms.classes[classKey{service.Name, service.Classes[j].Name}] = &service.Classes[j]
		}
	}
	for i := range s.Pools {
		for j := range s.Pools[i].Members {
			member := &s.Pools[i].Members[j]
			m.members[memberKey{s.Pools[i].Name, member.Name}] = member
		}
	}
	for i := range s.Rules {
		m.rules[ruleKey{connection, s.Rules[i].Name}] = &s.Rules[i]
	}
	for i := range s.Requests {
		m.rules[ruleKey{request, s.Requests[i].Name}] = &s.Requests[i].RuleStatus
	}
	return m
}
