// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"math"
	"slices"
	"time"

	"narthex/internal/adapt"
	"narthex/internal/datapath"
	"narthex/internal/host"
)

// roomRejects are the rejections for want of room.
var roomRejects = rejectsNamed("queue_full", "displaced", "max_wait", "target", "no_slot", "no_flow")

func rejectsNamed(names ...string) (list []int) {
	for r := range datapath.RejectLen {
		for _, name := range names {
			if datapath.Reject(r).String() == name {
				list = append(list, r)
			}
		}
	}
	return list
}

// machineSums is what was read of the machine for a service, since some moment in the past.
type machineSums struct {
	place  *whereabouts // that it was read for
	idle   time.Duration
	usage  time.Duration // of the cgroup, if it has a quota
	stalls host.Stalls
	faults int64
	work   host.Work // of the server's threads
	worked bool      // it is known
}

// happening reports whether there was anything in the service since the last sample.
func (s *steered) happening() bool {
	if s.syns != s.lastSYNs || s.backlog > 0 {
		return true
	}
	if s.room.InService > 0 || s.room.Waiting > 0 || s.room.Gathering > 0 {
		return true
	}
	for i := range s.room.Classes {
		c := &s.room.Classes[i]
		if i >= len(s.last.Classes) || c.Arrived != s.last.Classes[i].Arrived || c.Served != s.last.Classes[i].Served {
			return true
		}
	}
	return false
}

// remember keeps the reading for the next sample to begin with.
func (s *steered) remember(now time.Duration, machine machineSums) {
	s.sampled, s.machine = now, machine
	s.lastSYNs = s.syns
	s.last, s.room = s.room, s.last // to use the memory of the older again
}

// sample is what happened since the last reading.
func (s *steered) sample(now time.Duration, machine machineSums, backlog int) adapt.Sample {
	out := adapt.Sample{
		At: now, Span: now - s.sampled, Limit: s.wasInForce(),
		InService: s.room.InService, Waiting: s.room.Waiting, Backlog: backlog,
		Classes: make([]adapt.ClassSample, len(s.room.Classes)),
	}
	for i := range s.room.Classes {
		var before datapath.RoomClass
		if i < len(s.last.Classes) {
			before = s.last.Classes[i]
		}
		s.addClass(&out, i, &s.room.Classes[i], &before)
	}
	s.addMachine(&out, machine)
	return out
}

// wasInForce is the limit that held during the sample.
func (s *steered) wasInForce() int {
	if !s.adaptive && !s.inForce.Closes {
		return s.table.Room.Limit
	}
	return s.room.Limit
}

func (s *steered) addClass(out *adapt.Sample, rank int, now, before *datapath.RoomClass) {
	held, entered := since(now.Held, before.Held), since(now.Admitted, before.Admitted)+since(now.Released, before.Released)
	if s.table.Shadow {
		held += since(now.WouldHold, before.WouldHold)
	}
	var rejected uint64
	for _, r := range roomRejects {
		rejected += since(now.Rejected[r], before.Rejected[r])
	}
	c := adapt.ClassSample{Arrived: since(now.Arrived, before.Arrived), Held: held, Rejected: rejected, Waiting: now.Waiting}
	out.Classes[rank] = c
	out.Arrived += c.Arrived
	out.Held += held
	out.Rejected += rejected
	out.Entered += entered
	out.Served += since(now.Served, before.Served)
	out.Sent += since(now.BytesOut, before.BytesOut)
	out.Lost += since(now.Lost, before.Lost)
	for i := range now.Service.Buckets {
		out.Service.Buckets[i] += since(now.Service.Buckets[i], before.Service.Buckets[i])
	}
	out.Service.Sum += time.Duration(since(uint64(now.Service.Sum), uint64(before.Service.Sum)))
}

// since returns what was counted. A counter that is less than it was began anew.
func since(now, before uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}

// sums reads the machine for a service, once in a beat.
func (a *agent) sums(s *steered) machineSums {
	if a.reading == nil {
		a.reading = a.machine()
	}
	m := machineSums{place: s.place, idle: host.Unknown, usage: host.Unknown, stalls: a.reading.Stalls, faults: a.reading.Faults}
	if s.place == nil {
		return m
	}
	if s.place.hidden() {
		m.place = a.everywhere()
	}
	if m.place.Place == nil {
		return m
	}
	m.idle = idleOf(a.reading.Idle, m.place.CPUs)
	if t := m.place.Tasks; t != nil {
		m.work, m.worked = t.Read(a.clock(), a.buffer)
	}
	g := m.place.Group
	if g == nil {
		return m
	}
	if m.place.Quota > 0 {
		m.usage = g.Usage(a.buffer)
	}
	for r, own := range g.Stalls(a.buffer) {
		if own != host.Unknown {
			m.stalls[r] = own
		}
	}
	return m
}

// everywhere is the whole machine. It stays the same while the machine has the same CPUs: readings
// of it go on.
func (a *agent) everywhere() *whereabouts {
	a.cpus = a.cpus[:0]
	for cpu, idle := range a.reading.Idle {
		if idle != host.Unknown {
			a.cpus = append(a.cpus, cpu)
		}
	}
	if a.whole == nil || !slices.Equal(a.whole.CPUs, a.cpus) {
		a.whole = &whereabouts{Place: &host.Place{CPUs: slices.Clone(a.cpus)}}
	}
	return a.whole
}

// idleOf adds up the idle time of CPUs; host.Unknown if that of one is not known.
func idleOf(idle []time.Duration, cpus []int) (sum time.Duration) {
	if len(cpus) == 0 {
		return host.Unknown
	}
	for _, cpu := range cpus {
		if cpu >= len(idle) || idle[cpu] == host.Unknown {
			return host.Unknown
		}
		sum += idle[cpu]
	}
	return sum
}

// addMachine puts into a sample what happened on the machine.
func (s *steered) addMachine(out *adapt.Sample, now machineSums) {
	before := s.machine
	span := out.Span.Seconds()
	share := func(r host.Resource) float64 {
		if now.stalls[r] == host.Unknown || before.stalls[r] == host.Unknown || now.stalls[r] < before.stalls[r] {
			return host.Unknown
		}
		return min((now.stalls[r]-before.stalls[r]).Seconds()/span, 1)
	}
	out.Pressure = adapt.Pressure{CPU: host.Unknown, Memory: host.Unknown, IO: host.Unknown}
	if now.place == before.place { // else they may be another cgroup's
		out.Pressure = adapt.Pressure{CPU: share(host.CPU), Memory: share(host.Memory), IO: share(host.IO)}
	}
	if now.faults >= before.faults && before.faults != host.Unknown {
		out.MajorFaults = float64(now.faults-before.faults) / span
	}
	if now.place != before.place || now.idle == host.Unknown || before.idle == host.Unknown {
		return
	}
	cpus := float64(len(now.place.CPUs))
	out.Cores = now.place.Cores()
	out.Busy = min(max(cpus-(now.idle-before.idle).Seconds()/span, 0), cpus)
	if quota := now.place.Quota; quota > 0 && now.usage != host.Unknown && before.usage != host.Unknown {
		// What others use takes nothing of a quota that the CPUs have room for.
		used, idle := (now.usage-before.usage).Seconds()/span, cpus-out.Busy
		out.Busy = max(used, out.Cores-idle)
	}
	out.Busy = min(out.Busy, out.Cores)
	s.addWork(out, now, before)
}

// ownShare is how much of what processors do the server's own threads must do, so that these tell how
// busy it is: what does its work may be other processes.
const ownShare = 0.4

// late is how much the kernel counts late of what a thread does: one of its ticks, at 100 Hz.
const late = 10 * time.Millisecond

// addWork adds what the server's own threads did, which others on its processors do not change. What is more than its
// processors can do in the time was done before, and counted late.
func (s *steered) addWork(out *adapt.Sample, now, before machineSums) {
	if !now.worked || !before.worked || now.work.Ran < before.work.Ran {
		s.owed = 0
		return
	}
	span := out.Span.Seconds()
	ran, waited := (now.work.Ran-before.work.Ran).Seconds()/span, (now.work.Waited-before.work.Waited).Seconds()/span
	if ran >= ownShare*out.Busy {
		s.addOwn(out, &now.work, ran, max(waited, 0))
	}
	out.Rested = max(out.Cores-ran-max(waited, 0), 0)
}

// addOwn has threads that ran and waited for so many processors tell how busy the server is.
func (s *steered) addOwn(out *adapt.Sample, work *host.Work, ran, waited float64) {
	span := out.Span.Seconds()
	out.Runnable = ran + waited
	ran += s.owed.Seconds() / span
	if width := math.Round(work.Width); width >= 1 && width < out.Cores {
		out.Cores, out.Busy = width, min(ran, width)
	}
	s.owed = min(time.Duration(max(ran-out.Cores, 0)*float64(out.Span)), late)
	out.Wanted = min(ran+waited, out.Cores)
}
