// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"narthex/internal/api"
	"narthex/internal/datapath"
)

// manyClasses is the number of classes of all services together beyond which those without
// requests are left out: each has some 60 series.
const manyClasses = 100

// Histograms have every power of two of microseconds between these as a bound, 128 µs to
// 67 s. The kernel's have more on both sides, which nobody sets an alert on.
const (
	leastBound = 7
	mostBound  = 26
)

// levels are the words for levels of overload, in order.
var levels = []string{"calm", "overload", "rejecting", "flooded"}

var (
	limit       = gauge("concurrency_limit", "Requests that a service may have in service at once. Absent: no limit.", "service")
	limitMin    = gauge("concurrency_limit_min", "What the limit never falls below. Absent: it does not set itself.", "service")
	limitMax    = gauge("concurrency_limit_max", "What the limit never rises above. Absent: no bound, or it does not set itself.", "service")
	signal      = gauge("concurrency_signal_info", "What has set the limit. Absent: it does not set itself.", "service", "signal")
	overload    = gauge("service_overload", "Whether the service is overloaded. Absent: that is not looked at.", "service")
	level       = gauge("service_overload_level", "Level of overload: 0 calm, 1 overload, 2 rejecting, 3 flooded.", "service")
	degree      = gauge("service_overload_degree", "How overloaded the service is: to 1 by how full its queue is, beyond that by how many requests are refused.", "service")
	kept        = gauge("syns_kept_ratio", "Share of SYNs that overload leaves, by class.", "service", "class")
	limitSteps  = counter("concurrency_limit_changes_total", "Times that a limit has set itself higher or lower, since the daemon started. Absent: it does not set itself.", "service", "direction")
	overloads   = counter("service_overloads_total", "Times that overload of the service began, since the daemon started. Absent: that is not looked at.", "service")
	classLimit  = gauge("class_concurrency_limit", "Requests of a class that may be in service at once, where that has a bound of its own.", "service", "class")
	queueSize   = gauge("requests_waiting_limit", "Requests that may be held at once, with those whose head is not complete.", "service")
	inService   = gauge("requests_in_service", "Requests that the server works on.", "service", "class")
	waiting     = gauge("requests_waiting", "Requests that are held until there is room in service.", "service", "class")
	gathering   = gauge("requests_gathering", "Requests whose head is not complete.", "service")
	arrived     = counter("requests_total", "Requests that came.", "service", "class")
	admitted    = counter("requests_admitted_total", "Requests that were let in at once.", "service", "class")
	held        = counter("requests_held_total", "Requests that had to wait.", "service", "class")
	wouldHold   = counter("requests_would_hold_total", "Requests that were let in at once because the service is in shadow mode.", "service", "class")
	released    = counter("requests_released_total", "Requests that were let in after they had waited.", "service", "class")
	ahead       = counter("requests_ahead_total", "Of those let in after they had waited, requests of known sources, before others of their class.", "service", "class")
	gaveUp      = counter("requests_gave_up_total", "Requests whose client went away while they waited.", "service", "class")
	rejected    = counter("requests_rejected_total", "Requests that were rejected, by reason.", "service", "class", "reason")
	served      = counter("requests_served_total", "Requests that left service.", "service", "class")
	lost        = counter("requests_lost_total", "Requests that left service without their end being seen.", "service", "class")
	paused      = counter("requests_paused_total", "Times that a request left service because its body did not come, or the kernel had dropped it.", "service", "class")
	bytesIn     = counter("request_bytes_total", "Bytes of requests, as far as the server has acknowledged them, without headers of TCP and below.", "service", "class")
	bytesOut    = counter("answer_bytes_total", "Bytes that the server has sent, likewise, without those that it sent again.", "service", "class")
	cpuTime     = counter("service_cgroup_cpu_seconds_total", "Processor time of the cgroup of the processes that serve. Absent: that is not known.", "service", "cgroup")
	waitTime    = histogram("request_wait_seconds", "How long requests that were let in had waited.", "service", "class")
	serviceTime = histogram("request_service_seconds", "How long requests were in service.", "service", "class")
	slots       = gauge("slots", "Requests that can wait at once, in all services.")
	slotsFree   = gauge("slots_free", "Of the slots for waiting requests, those that are free.")
	flows       = gauge("flows", "Connections to services that can be followed at once.")
	flowsUsed   = gauge("flows_used", "Connections to services that are followed.")
)

// rooms shows the waiting rooms.
func (s sink) rooms(status api.Status) {
	classes := 0
	for _, service := range status.Services {
		if service.RoomStatus != nil {
			classes += len(service.Classes)
		}
	}
	for _, service := range status.Services {
		if service.RoomStatus == nil {
			continue
		}
		s.limit(service)
		s.put(gathering, float64(service.Gathering), service.Name)
		s.put(queueSize, float64(service.QueueSize), service.Name)
		if c := service.CPU; c != nil {
			s.put(cpuTime, c.Seconds, service.Name, c.Cgroup)
		}
		for _, class := range service.Classes {
			if class.Arrived > 0 || classes <= manyClasses {
				s.class(service.Name, class)
			}
		}
	}
	w := status.WaitingRoom
	s.put(slots, float64(w.Slots))
	s.put(slotsFree, float64(w.FreeSlots))
	s.put(flows, float64(w.Flows))
	s.put(flowsUsed, float64(w.UsedFlows))
}

// limit shows how many requests may be in service, and what has decided that.
func (s sink) limit(service api.ServiceStatus) {
	a := service.Adaptation
	if a == nil {
		if n, err := strconv.Atoi(service.Limit); err == nil {
			s.put(limit, float64(n), service.Name)
		}
		return
	}
	if a.Limit > 0 {
		s.put(limit, float64(a.Limit), service.Name)
	}
	s.put(overload, truth(a.Overload), service.Name)
	s.put(level, float64(max(0, slices.Index(levels, a.Level))), service.Name)
	s.put(degree, a.Degree, service.Name)
	s.put(overloads, float64(a.Overloads), service.Name)
	for _, k := range a.Keep {
		s.put(kept, k.Share, service.Name, k.Class)
	}
	if !a.Auto {
		return
	}
	s.put(limitMin, float64(a.Floor), service.Name)
	if a.Ceiling > 0 {
		s.put(limitMax, float64(a.Ceiling), service.Name)
	}
	s.put(signal, 1, service.Name, a.Signal)
	s.put(limitSteps, float64(a.Raised), service.Name, "raised")
	s.put(limitSteps, float64(a.Lowered), service.Name, "lowered")
}

// class shows the requests of one class to one service.
func (s sink) class(service string, c api.RoomClassStatus) {
	s.put(inService, float64(c.InService), service, c.Name)
	s.put(waiting, float64(c.Waiting), service, c.Name)
	if c.Max > 0 {
		s.put(classLimit, float64(c.Max), service, c.Name)
	}
	s.put(arrived, float64(c.Arrived), service, c.Name)
	s.put(admitted, float64(c.Admitted), service, c.Name)
	s.put(held, float64(c.Held), service, c.Name)
	s.put(wouldHold, float64(c.WouldHold), service, c.Name)
	s.put(released, float64(c.Released), service, c.Name)
	s.put(ahead, float64(c.Ahead), service, c.Name)
	s.put(gaveUp, float64(c.GaveUp), service, c.Name)
	s.put(served, float64(c.Served), service, c.Name)
	s.put(lost, float64(c.Lost), service, c.Name)
	s.put(paused, float64(c.Paused), service, c.Name)
	s.put(bytesIn, float64(c.BytesIn), service, c.Name)
	s.put(bytesOut, float64(c.BytesOut), service, c.Name)
	for reason := range datapath.Reject(datapath.RejectLen) {
		s.put(rejected, float64(c.Rejected[reason.String()]), service, c.Name, reason.String())
	}
	s.histogram(waitTime, c.Wait, service, c.Name)
	s.histogram(serviceTime, c.Service, service, c.Name)
}

// histogram adds up the kernel's buckets to those of Prometheus, which hold all durations up
// to their bound.
func (s sink) histogram(f *family, h api.Durations, labels ...string) {
	buckets := make(map[float64]uint64, mostBound-leastBound+1)
	for i := leastBound; i <= mostBound; i++ {
		bound := math.Ldexp(1, i) * time.Microsecond.Seconds()
		var sum uint64
		for _, b := range h.Buckets {
			if b.To != 0 && b.To <= bound {
				sum += b.Count
			}
		}
		buckets[bound] = sum
	}
	s.ch <- prometheus.MustNewConstHistogram(f.desc, h.Count, h.Sum, buckets, append([]string{s.cache.instance}, labels...)...)
}
