// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"math"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"narthex/internal/daemon/api"
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

var (
	limit       = desc("concurrency_limit", "Requests that a service may have in service at once. Absent: no limit.", "service")
	inService   = desc("requests_in_service", "Requests that the server works on.", "service", "class")
	waiting     = desc("requests_waiting", "Requests that are held until there is room in service.", "service", "class")
	gathering   = desc("requests_gathering", "Requests whose head is not complete.", "service")
	arrived     = desc("requests_total", "Requests that came.", "service", "class")
	admitted    = desc("requests_admitted_total", "Requests that were let in at once.", "service", "class")
	held        = desc("requests_held_total", "Requests that had to wait.", "service", "class")
	wouldHold   = desc("requests_would_hold_total", "Requests that were let in at once because the service is in shadow mode.", "service", "class")
	released    = desc("requests_released_total", "Requests that were let in after they had waited.", "service", "class")
	gaveUp      = desc("requests_gave_up_total", "Requests whose client went away while they waited.", "service", "class")
	rejected    = desc("requests_rejected_total", "Requests that were rejected, by reason.", "service", "class", "reason")
	served      = desc("requests_served_total", "Requests that left service.", "service", "class")
	lost        = desc("requests_lost_total", "Requests that left service without their end being seen.", "service", "class")
	paused      = desc("requests_paused_total", "Times that a request left service because its body did not come.", "service", "class")
	waitTime    = desc("request_wait_seconds", "How long requests that were let in had waited.", "service", "class")
	serviceTime = desc("request_service_seconds", "How long requests were in service.", "service", "class")
	slots       = desc("slots", "Requests that can wait at once, in all services.")
	slotsFree   = desc("slots_free", "Of the slots for waiting requests, those that are free.")
	flows       = desc("flows", "Connections to services that can be followed at once.")
	flowsUsed   = desc("flows_used", "Connections to services that are followed.")
)

func describeRooms(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		limit, inService, waiting, arrived, admitted, held, wouldHold, released, gaveUp, rejected, served, lost,
		paused, gathering, waitTime, serviceTime, slots, slotsFree, flows, flowsUsed,
	} {
		ch <- d
	}
}

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
		if n, err := strconv.Atoi(service.Limit); err == nil {
			s.gauge(limit, float64(n), service.Name)
		}
		s.gauge(gathering, float64(service.Gathering), service.Name)
		for _, class := range service.Classes {
			if class.Arrived > 0 || classes <= manyClasses {
				s.class(service.Name, class)
			}
		}
	}
	w := status.WaitingRoom
	s.gauge(slots, float64(w.Slots))
	s.gauge(slotsFree, float64(w.FreeSlots))
	s.gauge(flows, float64(w.Flows))
	s.gauge(flowsUsed, float64(w.UsedFlows))
}

// class shows the requests of one class to one service.
func (s sink) class(service string, c api.RoomClassStatus) {
	s.gauge(inService, float64(c.InService), service, c.Name)
	s.gauge(waiting, float64(c.Waiting), service, c.Name)
	for d, n := range map[*prometheus.Desc]uint64{
		arrived: c.Arrived, admitted: c.Admitted, held: c.Held, wouldHold: c.WouldHold, released: c.Released,
		gaveUp: c.GaveUp, served: c.Served, lost: c.Lost, paused: c.Paused,
	} {
		s.counter(d, n, service, c.Name)
	}
	for reason := range datapath.Reject(datapath.RejectLen) {
		s.counter(rejected, c.Rejected[reason.String()], service, c.Name, reason.String())
	}
	s.histogram(waitTime, c.Wait, service, c.Name)
	s.histogram(serviceTime, c.Service, service, c.Name)
}

func (s sink) counter(d *prometheus.Desc, n uint64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), append([]string{s.instance}, labels...)...)
}

// histogram adds up the kernel's buckets to those of Prometheus, which hold all durations up
// to their bound.
func (s sink) histogram(d *prometheus.Desc, h api.Durations, labels ...string) {
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
	s.ch <- prometheus.MustNewConstHistogram(d, h.Count, h.Sum, buckets, append([]string{s.instance}, labels...)...)
}
