// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"math"
	"time"

	"narthex/internal/daemon/api"
	"narthex/internal/datapath"
	"narthex/internal/policy"
)

// limitText says how many requests may be in service at once.
func limitText(c policy.Concurrency) string {
	if c.Mode == policy.ConcurrencyAuto {
		return "unlimited (auto)"
	}
	return c.String()
}

// roomOf returns the waiting room of a service, nil for one that only has its SYNs policed.
func roomOf(t *policy.Tables, service int, rooms []datapath.Room) *api.RoomStatus {
	table := t.Services[service].Room
	if !table.Followed {
		return nil
	}
	room := nth(rooms, service)
	s := &api.RoomStatus{InService: room.InService, Waiting: room.Waiting, Gathering: room.Gathering, QueueSize: table.Queue.Size}
	for i, class := range t.Classes {
		s.Classes = append(s.Classes, roomClass(class, nth(room.Classes, i)))
	}
	return s
}

func roomClass(class policy.ClassTable, c datapath.RoomClass) api.RoomClassStatus {
	s := api.RoomClassStatus{
		Name: class.Name, Max: class.Max, InService: c.InService, Waiting: c.Waiting,
		Arrived: c.Arrived, Admitted: c.Admitted, Held: c.Held, WouldHold: c.WouldHold, Released: c.Released, GaveUp: c.GaveUp,
		Rejected: map[string]uint64{}, Served: c.Served, Lost: c.Lost, Paused: c.Paused,
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
		d.P50, d.P99 = quantile(d, 0.50), quantile(d, 0.99)
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

// quantile takes the durations of a bucket for evenly spread between its bounds.
func quantile(d api.Durations, q float64) float64 {
	rank := q * float64(d.Count)
	for _, b := range d.Buckets {
		n := float64(b.Count)
		switch {
		case rank > n:
			rank -= n
		case b.To == 0:
			return b.From
		default:
			return b.From + (b.To-b.From)*rank/n
		}
	}
	return d.Buckets[len(d.Buckets)-1].From // by an error of rounding
}

// askRoom says whether a request of a class would wait, where any can, or a connection.
func (x Explainer) askRoom(d *api.Decision, service, class int) error {
	if !x.Tables.HasRoom(service) {
		return nil
	}
	table := x.Tables.Services[service].Room
	d.Room = &api.RoomDecision{Protocol: table.Protocol, Limit: table.Limit, Max: x.Tables.Classes[class].Max}
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
	d.Room.Waits = full(room.InService, d.Room.Limit) || full(own.InService, d.Room.Max) || x.behind(room, class)
	return nil
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
