// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"math"
	"slices"
	"time"

	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/policy"
)

// roomOf returns the waiting room of a service, nil for one that only has its SYNs policed.
func roomOf(t *policy.Tables, service int, rooms []datapath.Room) *api.RoomStatus {
	table := t.Services[service].Room
	if !table.Followed {
		return nil
	}
	room := nth(rooms, service)
	s := &api.RoomStatus{InService: room.InService, Waiting: room.Waiting, Gathering: room.Gathering, QueueSize: table.Queue.Size}
	s.Answer = t.Refused(service, policy.RowOverload, "")
	for i, class := range t.Classes {
		s.Classes = append(s.Classes, roomClass(class, nth(room.Classes, i)))
	}
	return s
}

func roomClass(class policy.ClassTable, c datapath.RoomClass) api.RoomClassStatus {
	s := api.RoomClassStatus{
		Name: class.Name, Max: class.Max, InService: c.InService, Waiting: c.Waiting,
		Arrived: c.Arrived, Admitted: c.Admitted, Held: c.Held, WouldHold: c.WouldHold, Released: c.Released, Ahead: c.Ahead, GaveUp: c.GaveUp,
		Rejected: map[string]uint64{}, Served: c.Served, Lost: c.Lost, Paused: c.Paused,
		BytesIn: c.BytesIn, BytesOut: c.BytesOut,
		Wait: durations(c.Wait), Service: durations(c.Service),
	}
	for reason, n := range c.Rejected {
		if n > 0 {
			s.Rejected[datapath.Reject(reason).String()] = n
		}
	}
	return s
}

// nth returns the i-th of what was read, or the zero value of what was not.
func nth[T any](list []T, i int) (v T) {
	if i < len(list) {
		v = list[i]
	}
	return v
}

func durations(h datapath.Histogram) api.Durations {
	d := api.Durations{Count: h.Count(), Sum: h.Sum.Seconds(), Buckets: []api.Bucket{}}
	for i, n := range h.Buckets {
		if n > 0 {
			from, to := bounds(i)
			d.Buckets = append(d.Buckets, api.Bucket{From: from, To: to, Count: n})
		}
	}
	if d.Count > 0 {
		d.Mean = d.Sum / float64(d.Count)
		d.P50, d.P99 = d.Quantile(0.50), d.Quantile(0.99)
	}
	return d
}

// bounds returns the bounds in seconds of a bucket of a datapath.Histogram.
func bounds(i int) (from, to float64) {
	if i > 0 {
		from = math.Ldexp(1, i) * time.Microsecond.Seconds()
	}
	if i < len(datapath.Histogram{}.Buckets)-1 {
		to = math.Ldexp(1, i+1) * time.Microsecond.Seconds()
	}
	return from, to
}

// askRoom says whether a request of a class would wait, where any can, or a connection.
func (x Explainer) askRoom(d *api.Decision, service, class int) error {
	if !x.Tables.HasRoom(service) {
		return nil
	}
	table := x.Tables.Services[service].Room
	d.Room = &api.RoomDecision{Protocol: table.Protocol, Limit: table.Limit, Auto: table.Adaptive, Max: x.Tables.Classes[class].Max}
	if table.Pool > 0 { // the limits of which are told apart
		own := x.Policy.Services[service].Concurrency
		d.Room.Limit, d.Room.Auto = own.Limit, false
		d.Room.Pools = x.poolsOf(service)
	}
	if x.Adaptation != nil {
		steer(d, x.Adaptation(x.Tables.Services[service].Name))
	}
	if name := x.Policy.ClassName(class); name != d.Class {
		d.Room.Class = name
	}
	if x.Rooms == nil {
		return nil
	}
	rooms, err := x.Rooms()
	if err != nil {
		return fmt.Errorf("read the waiting room of service %q: %w", d.Service, err)
	}
	room := nth(rooms, service)
	own := nth(room.Classes, class)
	d.Room.Live, d.Room.InService, d.Room.ClassInService, d.Room.Waiting = true, room.InService, own.InService, room.Waiting
	d.Room.Waits = full(room.InService, d.Room.Limit) || full(own.InService, d.Room.Max) || x.behind(room, class) || x.askPools(d.Room, service, class, rooms)
	d.Room.Full = d.Room.Waits && room.Waiting+room.Gathering >= table.Queue.Size && !below(room, class)
	return nil
}

// steer adds how the service of a decision is steered, if it is.
func steer(d *api.Decision, a *api.AdaptationStatus) {
	if a == nil {
		return
	}
	d.Room.Overload = a.Overload
	if len(d.Room.Pools) == 0 && a.Auto {
		d.Room.Limit, d.Room.SetBy = a.Limit, a.Signal
	}
	for _, k := range a.Keep {
		if k.Class == d.Class && k.Share < 1 {
			d.Room.Kept = &k.Share
		}
	}
}

// below reports whether somebody of a less important class waits, who would make room.
func below(room datapath.Room, class int) bool {
	return slices.ContainsFunc(room.Classes[min(class+1, len(room.Classes)):], func(c datapath.RoomClass) bool { return c.Waiting > 0 })
}

func full(inService, limit int) bool { return limit > 0 && inService >= limit }

// behind reports whether somebody of this or a more important class waits who could be
// admitted as soon as there is room.
func (x Explainer) behind(room datapath.Room, class int) bool {
	for i := range class + 1 {
		if c := nth(room.Classes, i); c.Waiting > 0 && !full(c.InService, x.Tables.Classes[i].Max) {
			return true
		}
	}
	return false
}
