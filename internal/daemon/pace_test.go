// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"testing"
	"time"

	"narthex/internal/datapath"
)

// lane is the data path of rules whose rates set themselves, before a server that takes so many
// connections per second from its accept queue.
type lane struct {
	*bench
	counts  map[datapath.PacedRule]datapath.Counts
	paces   map[datapath.PacedRule]datapath.Pace
	service datapath.Counts
	asked   map[datapath.PacedRule]float64 // connections per second
	takes   float64                        // the same
	queue   float64
	last    time.Duration
}

func newLane(t *testing.T) *lane {
	l := &lane{bench: newBench(t), counts: map[datapath.PacedRule]datapath.Counts{}, paces: map[datapath.PacedRule]datapath.Pace{}, asked: map[datapath.PacedRule]float64{}}
	l.path = l
	l.agent.queue = func(acceptQueue) (int, error) { return int(l.queue), nil }
	return l
}

func (l *lane) ReadPaced(r datapath.PacedRule) (datapath.Counts, error) { return l.counts[r], nil }
func (l *lane) ReadService(int) (datapath.Counts, error)                { return l.service, nil }

func (l *lane) SetPace(r datapath.PacedRule, p datapath.Pace) error {
	l.paces[r] = p
	return nil
}

// flow lets connections come since it was called last.
func (l *lane) flow() {
	span := (l.now - l.last).Seconds()
	if l.last == 0 {
		span = 0
	}
	l.last = l.now
	for r, asked := range l.asked {
		c := l.counts[r]
		passed := asked
		if p := l.paces[r]; p.Rate > 0 && l.bench.last(0).Level > 0 {
			passed = min(asked, p.Rate)
		}
		whole := uint64(passed*span + 0.5)
		c.Passed += whole
		c.Dropped += uint64((asked-passed)*span + 0.5)
		l.counts[r] = c
		l.service.Passed += whole
		l.queue += float64(whole)
	}
	l.queue = max(0, l.queue-l.takes*span)
}

// A service without a waiting room is overloaded when its accept queue is, and rates bring it back to its
// target: of the lower class first.
func TestAgentSetsRates(t *testing.T) {
	l := newLane(t)
	l.enforce(`services: [{name: web, listen: "*:80", protocol: tcp}]
classes: [{name: gold, priority: 1}, {name: bronze, priority: 2}]
connections:
  - {name: members, from: 10.0.0.0/8, rate: auto, class: gold}
  - {name: others, rate: {auto: true, min: 5/s}, class: bronze}
`)
	l.services[0].place = &whereabouts{accept: []acceptQueue{{sockets: 1}}}
	gold, bronze := datapath.PacedRule{Index: 0}, datapath.PacedRule{Index: 1}
	l.takes, l.asked[gold], l.asked[bronze] = 200, 60, 100
	l.pass(5*time.Second, l.flow)
	if a := l.adaptation("web", l.tables.Classes); a == nil || a.Overload || a.Auto || l.paces[bronze].Rate != 0 {
		t.Errorf("not overloaded: %+v, rates %v", a, l.paces)
	}
	l.asked[bronze] = 1000
	l.pass(8*time.Second, l.flow)
	if a := l.adaptation("web", l.tables.Classes); !a.Overload || l.queue > 40 {
		t.Errorf("overloaded: %+v, %.0f wait", a, l.queue)
	}
	if rate := l.paces[bronze].Rate; rate < 110 || rate > 170 || l.paces[gold].Rate < 150 || l.paces[bronze].Grace != controlGrace {
		t.Errorf("rates %v, want some 140/s for the lower class", l.paces)
	}
	if now := l.rateNow(connectionTable, "others"); now != l.paces[bronze].Rate {
		t.Errorf("the status says %g/s", now)
	}
	l.takes = 30
	l.pass(8*time.Second, l.flow)
	if l.paces[bronze].Rate > 10 || l.paces[gold].Rate > 50 {
		t.Errorf("rates %v at a seventh of the capacity, want the lower class to give way first", l.paces)
	}
	l.asked[gold], l.asked[bronze] = 10, 5
	l.pass(60*time.Second, l.flow)
	if a := l.adaptation("web", l.tables.Classes); a.Overload || l.paces[bronze].Rate != 0 {
		t.Errorf("after it: %+v, rates %v", a, l.paces)
	}
}

// Another policy with the same rule goes on with its rate.
func TestAgentKeepsRates(t *testing.T) {
	l := newLane(t)
	const service = `services: [{name: web, listen: "*:80", protocol: tcp}]
connections:
`
	l.enforce(service + "  - {name: others, rate: auto}\n")
	l.services[0].place = &whereabouts{accept: []acceptQueue{{sockets: 1}}}
	was, now := datapath.PacedRule{Index: 0}, datapath.PacedRule{Index: 1}
	l.takes, l.asked[was] = 200, 1000
	l.pass(10*time.Second, l.flow)
	before := l.paces[was].Rate
	l.enforce(service + "  - {name: office, from: 10.0.0.0/8, action: pass}\n  - {name: others, rate: auto}\n")
	l.asked = map[datapath.PacedRule]float64{now: 1000}
	l.pass(500*time.Millisecond, l.flow)
	if rate := l.paces[now].Rate; rate < before/2 || rate > before*2 {
		t.Errorf("%g/s after another policy, %g/s before", rate, before)
	}
}
