// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"narthex/internal/adapt"
	"narthex/internal/datapath"
	"narthex/internal/host"
	"narthex/internal/netif"
	"narthex/internal/policy"
)

const (
	// sampleEvery is how long a sample of a service is in which anything happens.
	sampleEvery = 50 * time.Millisecond
	// glanceEvery is how often to look whether anything happens in a service where nothing
	// did, with as much again for each idleShare services.
	glanceEvery = 200 * time.Millisecond
	// idleEvery is how long a sample is of a service in which nothing happens, with as much
	// again for each idleShare services: at most 6 s, well below controlGrace.
	idleEvery = time.Second
	idleShare = 200
	// awakeFor is how long a service is sampled often after something happened.
	awakeFor = 2 * time.Second
	// controlGrace is for how long a control holds. Without a newer one the safe limit is in
	// force from then on, and nothing is overloaded.
	controlGrace = 10 * time.Second
	// steerEvery is how often a control is put in force again that did not change.
	steerEvery = time.Second
	// inheritFor bounds for how long a limit that was found in force counts.
	inheritFor = 3 * time.Second
	// keepStep is by how much a share of SYNs differs that is put in force at once.
	keepStep = 0.01
)

// agent adapts the limits of services: it samples what happens in them and on the machine,
// lets a controller each decide, and puts that in force.
type agent struct {
	log     *slog.Logger
	read    func(service int, into *datapath.RoomReading) error
	steer   func(service int, c datapath.Control) error
	path    pacedPath
	machine func() *host.Reading
	queue   func(acceptQueue) (int, error) // connections that are to be accepted
	unread  func(port uint16, v6 bool) (netif.Unread, error)
	usage   func(cgroup string) time.Duration
	clock   func() time.Duration // monotonic
	spent   func() time.Duration // of processor time, by this thread
	wall    func() time.Time
	wake    chan struct{} // has room for one, as moved: what is to be steered has changed
	moved   chan struct{}
	ended   chan struct{} // is closed at the end
	end     func()        // closes it

	mu       sync.Mutex // may be taken while engine.mu or engine.acting is held
	services []*steered // those to steer
	followed []policy.ServiceTable
	cgroups  map[string]string // of the processes that serve those that are followed, by service
	fixed    map[string]int    // limits of the others by service, if they have one
	leaders  map[string]string // pools by service that are steered in its place
	paced    map[policy.AutoRuleName]pacedAt
	reading  *host.Reading
	buffer   []byte
	whole    *whereabouts // where servers are that cannot be seen: all CPUs
	cpus     []int        // memory to find them
	history  history
	watchers map[chan<- observation]bool
	told     []string // faults that are in the log
}

// pacedPath is what the agent needs of the data path for rates that set themselves.
type pacedPath interface {
	ReadPaced(datapath.PacedRule) (datapath.Counts, error)
	SetPace(datapath.PacedRule, datapath.Pace) error
	ReadService(service int) (datapath.Counts, error)
}

// observation is what watchers get of each step.
type observation struct {
	service  string
	sample   adapt.Sample
	decision adapt.Decision
}

// run steers until ctx is done. beat is a.beat, while nothing else changes the data path.
func (a *agent) run(ctx context.Context, beat func() time.Duration) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		case <-timer.C:
		}
		timer.Reset(beat())
	}
}

// beat looks after the services whose time has come, and says when to do it again.
func (a *agent) beat() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock()
	a.reading = nil
	next := now + idleEvery
	for _, s := range a.services {
		if s.next <= now {
			a.look(s, now)
		}
		next = min(next, s.next)
	}
	return max(next-a.clock(), time.Millisecond)
}

// look reads a service's room. If anything happens there, or has not been sampled for long, it
// takes a sample and a step.
func (a *agent) look(s *steered, now time.Duration) {
	if err := a.read(s.index, &s.room); err != nil {
		a.report("read the waiting rooms", err)
		s.next = now + idleEvery
		return
	}
	if s.unfollowed() {
		syns, err := a.path.ReadService(s.index)
		if err != nil {
			a.report("read what became of SYNs", err)
		}
		s.syns = syns
	}
	if s.sampled == 0 { // there is nothing to compare it with
		s.began = now
		s.remember(now, a.sums(s))
	}
	if s.happening() {
		s.awake = now + awakeFor
	}
	s.next = now + sampleEvery
	if now >= s.awake {
		s.next = now + untilMultiple(now, glanceEvery) + a.spread(glanceEvery) - glanceEvery
		if now-s.sampled < a.spread(idleEvery) && s.steeredAt != 0 {
			return
		}
	}
	a.step(s, now)
}

// spread makes an interval longer where there are many services, lest looking at idle ones
// takes a share of a CPU that grows with the policy.
func (a *agent) spread(d time.Duration) time.Duration {
	return d + time.Duration(len(a.services))*d/idleShare
}

// step takes a sample, lets the controller decide and puts that in force.
func (a *agent) step(s *steered, now time.Duration) {
	if now > s.sampled {
		machine := a.sums(s)
		sample := s.sample(now, machine, a.backlog(s))
		a.addUnread(s, &sample)
		if s.unfollowed() {
			s.bySYNs(&sample, sample.Backlog)
		}
		was := s.decision
		s.decision = s.control.Step(sample)
		s.inherit(&sample)
		s.remember(now, machine)
		a.note(s, was)
		a.pace(s, &sample)
		a.publish(observation{s.table.Name, sample, s.decision})
	}
	a.setPaces(s, now)
	c := s.wanted()
	if s.steeredAt != 0 && now-s.steeredAt < steerEvery && same(c, s.inForce) {
		return
	}
	if err := a.steer(s.index, c); err != nil {
		a.report("put limits in force", err)
		return
	}
	if s.steeredAt != 0 {
		countSteps(&s.steps, s.inForce, c)
	}
	s.inForce, s.steeredAt = c, now
	s.inForce.Keep = slices.Clone(c.Keep) // the controller's memory may change
}

// wanted is what is to be in force.
func (s *steered) wanted() datapath.Control {
	c := datapath.Control{Limit: s.decision.Limit, Provisional: s.decision.Provisional, Closes: s.decision.Closes, GivenUp: s.decision.GivenUp, Safe: s.within(s.decision.Safe), Grace: controlGrace, Level: policy.When(s.decision.Level), Keep: s.decision.Keep, Strangers: s.decision.Strangers}
	if !s.adaptive { // the policy has the limit
		c.Limit, c.Safe, c.Provisional = s.table.Room.Limit, s.table.Room.Limit, false
		if c.Closes { // what waits for workers that stay with connections comes on top
			c.Limit = max(c.Limit, s.decision.Limit)
		}
	}
	return c
}

// same reports whether it makes no difference which of two controls is in force.
func same(a, b datapath.Control) bool {
	if a.Limit != b.Limit || a.Provisional != b.Provisional || a.Closes != b.Closes || a.GivenUp != b.GivenUp || a.Safe != b.Safe || a.Level != b.Level || len(a.Keep) != len(b.Keep) {
		return false
	}
	if diff := a.Strangers - b.Strangers; diff > keepStep || diff < -keepStep || (a.Strangers > 0) != (b.Strangers > 0) {
		return false
	}
	for i := range a.Keep {
		if diff := a.Keep[i] - b.Keep[i]; diff > keepStep || diff < -keepStep || (a.Keep[i] < 1) != (b.Keep[i] < 1) {
			return false
		}
	}
	return true
}

// report logs each fault once, lest a lasting one fills the log.
func (a *agent) report(what string, err error) {
	fault := fmt.Sprintf("%s: %v", what, err)
	if len(a.told) >= mostFaults || slices.Contains(a.told, fault) {
		return
	}
	a.told = append(a.told, fault)
	a.log.Error("cannot "+what+"; the last ones stay in force, then the safe ones", "error", err)
}
