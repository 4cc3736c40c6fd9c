// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"slices"
	"time"

	"narthex/internal/adapt"
	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/policy"
)

// steered is a service that the agent has to do with.
type steered struct {
	index    int // in Tables.Services of the state in force
	table    policy.ServiceTable
	config   adapt.Config
	adaptive bool // its limit is the agent's; else only whether it is overloaded
	control  *adapt.Controller

	next      time.Duration // when to look at it again
	awake     time.Duration // until when it is sampled often
	sampled   time.Duration // when it was last
	room      datapath.RoomReading
	last      datapath.RoomReading
	machine   machineSums // at the last sample
	place     *whereabouts
	owed      time.Duration         // what threads ran beyond what they can in a sample, for the next
	unread    time.Duration         // when what servers have not read may be looked for next
	began     time.Duration         // when the first sample did
	inherited *datapath.RoomReading // control in force that counts until there is a better one
	decision  adapt.Decision
	inForce   datapath.Control
	steeredAt time.Duration // 0: never
	steps     api.StepsStatus

	paces          *paces          // nil: no rate sets itself
	syns, lastSYNs datapath.Counts // of a service whose connections are not followed
	backlog        int             // then
}

// unfollowed reports whether nothing is known of what the service's connections carry.
func (s *steered) unfollowed() bool { return !s.table.Room.Followed }

// follow begins to steer what a policy asks for. It is called while the data path is between
// this policy and the one before, nil for none. What is known of a service stays.
func (a *agent) follow(before, now *policy.Tables, adopted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.services
	a.services, a.fixed = nil, map[string]int{}
	a.followed = slices.DeleteFunc(slices.Clone(now.Services), func(s policy.ServiceTable) bool { return !s.Room.Followed })
	clear(a.paced) // rules may have other slots
	defer a.forget(was)
	a.leaders = map[string]string{}
	for i := range len(now.Services) + len(now.Pools) {
		s := newSteered(now, i)
		if s == nil {
			a.unsteered(now, i)
			continue
		}
		old := slices.IndexFunc(was, func(o *steered) bool { return o.table.Name == s.table.Name })
		if old >= 0 && was[old].goesOnAs(s) {
			o := was[old]
			s.paces.goOn(o.paces)
			o.paces, o.config = s.paces, s.config
			o.control.Configure(s.config)
			o.decision.Limit = o.within(o.decision.Limit) // until the next sample
			o.index, o.table, o.steeredAt, o.next = i, s.table, 0, 0
			o.sampled = 0 // the classes may be others
			a.services = append(a.services, o)
			continue
		}
		a.begin(s, was, before, adopted)
		if old >= 0 {
			s.place, s.steps = was[old].place, was[old].steps
		}
		a.services = append(a.services, s)
	}
	a.told = nil
	for _, changed := range []chan struct{}{a.wake, a.moved} {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
}

// forget closes what was opened for services that are steered no more.
func (a *agent) forget(was []*steered) {
	for _, o := range was {
		kept := func(s *steered) bool { return s.place == o.place }
		if o.place != nil && !slices.ContainsFunc(a.services, kept) {
			o.place.close()
		}
	}
}

// unsteered notes what holds for a service that is not steered itself: a limit of the policy, or that of its pool.
func (a *agent) unsteered(t *policy.Tables, i int) {
	if i >= len(t.Services) {
		return
	}
	name := t.Services[i].Name
	if pool := t.SteeredBy(i); pool >= 0 {
		a.leaders[name] = t.Pools[pool].Name
		return
	}
	a.fixed[name] = t.Services[i].Room.Limit
}

// newSteered returns a service that is to be steered, nil for one that is not; or, with an index behind those of
// services, the services of a pool whose limit sets itself as one.
func newSteered(t *policy.Tables, i int) *steered {
	var table policy.ServiceTable
	if pool := i - len(t.Services); pool >= 0 {
		table = t.Pools[pool].Steered
	} else if t.SteeredBy(i) < 0 {
		table = t.Services[i]
	}
	if table.Name == "" {
		return nil
	}
	room := &table.Room
	s := &steered{index: i, table: table, adaptive: room.Adaptive}
	s.config = adapt.Config{Floor: room.Floor, Ceiling: room.Ceiling, QueueSize: room.Queue.Size, Thresholds: thresholds(room.Overload)}
	s.config.Target, s.config.Alike = room.Target, len(t.Classes) < 2 && !asksForOverload(t)
	s.config.Closable = closable(t, i)
	s.config.Streams = room.Protocol == policy.HTTP && room.Ends == policy.EndLastByte
	s.config.Cautious = room.Adaptive && room.Protocol == policy.HTTP && i < len(t.Services)
	switch {
	case room.Adaptive:
	case room.Limit > 0 && (room.Protocol == policy.HTTP || asksForOverload(t) || t.Sheds(i)):
		s.config.Floor, s.config.Ceiling = room.Limit, room.Limit
	case room.Limit == 0 && (asksForOverload(t) || room.Protocol == policy.HTTP && t.HasRoom(i)):
		s.config.Unlimited = true
	default:
		return nil
	}
	s.control, s.paces = adapt.New(s.config), newPaces(table.Auto)
	s.decision = s.control.First()
	return s
}

// closable reports whether requests of a service, or of some in a pool, can ask for the close of their connections.
func closable(t *policy.Tables, i int) bool {
	members := []int{i}
	if pool := i - len(t.Services); pool >= 0 {
		members = t.ServicesOf(pool)
	}
	return slices.ContainsFunc(members, func(m int) bool { return t.Services[m].Room.Protocol == policy.HTTP })
}

// thresholds are when levels of overload begin and end.
func thresholds(o policy.Overload) adapt.Thresholds {
	return adapt.Thresholds{After: o.After, Calm: o.Calm, Rejecting: o.Rejecting.PerSecond(), Flooded: o.Flooded.PerSecond()}
}

// asksForOverload reports whether a rule is enforced in overload alone.
func asksForOverload(t *policy.Tables) bool {
	return slices.ContainsFunc(t.Rules, func(r policy.RuleTable) bool { return r.When != policy.WhenAlways }) ||
		slices.ContainsFunc(t.RequestRules(), func(r policy.RequestRule) bool { return r.When != policy.WhenAlways })
}

// goesOnAs reports whether what was learned of a service holds for its next form. Its counters
// are those of a room, which is the service's by its name.
func (s *steered) goesOnAs(next *steered) bool {
	return s.adaptive == next.adaptive && s.config.Unlimited == next.config.Unlimited &&
		s.table.Room.Protocol == next.table.Room.Protocol && s.table.Room.Ends == next.table.Room.Ends
}

// begin lets a service begin with the limit that is in force, if there is one.
func (a *agent) begin(s *steered, was []*steered, before *policy.Tables, adopted bool) {
	inherited := &datapath.RoomReading{}
	if before == nil && adopted {
		if err := a.read(s.index, inherited); err != nil {
			a.report("read the limit in force", err)
			return
		}
	}
	if before != nil {
		at := slices.IndexFunc(before.Services, func(o policy.ServiceTable) bool { return o.Name == s.table.Name })
		if at >= 0 && !before.Services[at].Room.Adaptive {
			inherited.Limit = before.Services[at].Room.Limit
			inherited.Safe = inherited.Limit
		} else if at >= 0 {
			c := lastOf(was, s.table.Name)
			inherited.Limit, inherited.Safe, inherited.Provisional = c.Limit, c.Safe, c.Provisional
		}
	}
	if inherited.Limit > 0 && !inherited.Provisional && s.adaptive { // a provisional one says nothing of the server
		s.inherited = inherited
		s.inherited.Limit, s.inherited.Safe = s.within(inherited.Limit), s.within(inherited.Safe)
		s.decision.Limit, s.decision.Safe, s.decision.Provisional = s.inherited.Limit, s.inherited.Safe, false
	}
}

// lastOf returns the control of a service that was put in force last.
func lastOf(was []*steered, service string) datapath.Control {
	for _, s := range was {
		if s.table.Name == service {
			return s.inForce
		}
	}
	return datapath.Control{}
}

// within brings a limit between the bounds of the service.
func (s *steered) within(limit int) int {
	if limit == 0 {
		return s.config.Ceiling
	}
	limit = max(limit, s.config.Floor)
	if s.config.Ceiling > 0 {
		limit = min(limit, s.config.Ceiling)
	}
	return limit
}

// inherit keeps the limit that was in force as long as the controller has seen too little: it
// knows nothing, and there is work that could be too much; or it sees no overload yet, and
// requests wait, of which it would let all in.
func (s *steered) inherit(sample *adapt.Sample) {
	knowsNothing := s.decision.Signal == adapt.SignalIdle && sample.InService+sample.Waiting > 0
	seesNothing := s.decision.Signal == adapt.SignalHeadroom && sample.Waiting > 0
	switch {
	case s.inherited == nil:
	case (knowsNothing || seesNothing) && sample.At < s.began+inheritFor:
		s.decision.Limit, s.decision.Safe, s.decision.Provisional = s.inherited.Limit, s.inherited.Safe, false
	default:
		s.inherited = nil
	}
}
