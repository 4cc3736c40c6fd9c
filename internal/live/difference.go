// SPDX-License-Identifier: Apache-2.0

package live

import (
	"cmp"
	"slices"

	"narthex/internal/api"
	"narthex/internal/datapath"
)

// mostRules is how many rules a view has the rates of.
const mostRules = 50

// SYNReasons are the reasons for which a SYN is dropped beside a rule's own.
var SYNReasons = []string{"fragment", "vlan_tags", "extension", "syn_data", "syn_flags", "contended", "sources", "blocked", "shed"}

// difference is what happened between two moments.
type difference struct {
	now, last *moment
	oldest    rooms   // the oldest moment of which quantiles may be; none if there is no rate
	seconds   float64 // between the two; 0: there are no rates
}

// since returns how far a counter went on. One that went back has begun anew.
func since(now, was uint64) uint64 {
	if now < was {
		return now
	}
	return now - was
}

func (d difference) rate(now, was uint64) float64 {
	if d.seconds == 0 {
		return 0
	}
	return float64(since(now, was)) / d.seconds
}

func (d difference) services(s api.Status) []Service {
	list := make([]Service, len(s.Services))
	for i := range s.Services {
		status, out := &s.Services[i], &list[i]
		out.Name, out.RejectedBy, out.Classes = status.Name, map[string]float64{}, []Class{}
		if was, known := d.last.services[status.Name]; known {
			out.SYNs = d.rate(status.Matched, was.Matched)
			out.SYNsDropped = d.rate(status.Dropped, was.Dropped)
			out.SYNsWouldDrop = d.rate(status.WouldDrop, was.WouldDrop)
		}
		if status.RoomStatus == nil {
			continue
		}
		for j := range status.Classes {
			c := d.class(out, &status.Classes[j])
			out.Classes = append(out.Classes, c)
			out.Arrived += c.Arrived
			out.Served += c.Served
			out.Held += c.Held
			out.Rejected += c.Rejected
			out.BytesIn += c.BytesIn
			out.BytesOut += c.BytesOut
		}
	}
	return list
}

// class returns how a class of a service went, and adds its rejections to those of the service.
func (d difference) class(of *Service, now *api.RoomClassStatus) Class {
	c := Class{Name: now.Name, InService: now.InService, Waiting: now.Waiting}
	was, known := d.last.rooms.classes[classKey{of.Name, now.Name}]
	if !known {
		return c
	}
	c.Arrived = d.rate(now.Arrived, was.Arrived)
	c.Served = d.rate(now.Served, was.Served)
	c.Held = d.rate(now.Held, was.Held)
	c.BytesIn = d.rate(now.BytesIn, was.BytesIn)
	c.BytesOut = d.rate(now.BytesOut, was.BytesOut)
	for reason, n := range now.Rejected {
		if rate := d.rate(n, was.Rejected[reason]); rate > 0 {
			c.Rejected += rate
			of.RejectedBy[reason] += rate
		}
	}
	oldest := d.oldest.classes[classKey{of.Name, now.Name}]
	if oldest == nil {
		oldest = was
	}
	c.Wait = quantiles(now.Wait, was.Wait, oldest.Wait)
	c.Service = quantiles(now.Service, was.Service, oldest.Service)
	return c
}

func (d difference) pools(s api.Status) []Pool {
	list := make([]Pool, len(s.Pools))
	for i := range s.Pools {
		list[i] = Pool{Name: s.Pools[i].Name, Members: make([]PoolMember, len(s.Pools[i].Members))}
		for j := range s.Pools[i].Members {
			now := &s.Pools[i].Members[j]
			member := PoolMember{Name: now.Name}
			if was, known := d.last.members[memberKey{s.Pools[i].Name, now.Name}]; known && d.seconds > 0 {
				member.Served = d.rate(now.Served, was.Served)
				member.Got = max(now.Used-was.Used, 0) / d.seconds
			}
			list[i].Members[j] = member
		}
	}
	return list
}

// quantiles are of what came since was, or since the oldest if that is too little.
func quantiles(now, was, oldest api.Durations) Quantiles {
	d := durationsSince(now, was)
	if d.Count < fewDurations {
		d = durationsSince(now, oldest)
	}
	return Quantiles{Count: d.Count, P50: d.Quantile(0.50), P99: d.Quantile(0.99)}
}

// durationsSince takes a histogram from a later one. If any bucket went back, it has begun anew.
func durationsSince(now, was api.Durations) api.Durations {
	before := map[float64]uint64{}
	for _, b := range was.Buckets {
		before[b.From] = b.Count
	}
	var d api.Durations
	for _, b := range now.Buckets {
		if b.Count < before[b.From] {
			return now
		}
		if b.Count -= before[b.From]; b.Count > 0 {
			d.Count += b.Count
			d.Buckets = append(d.Buckets, b)
		}
		delete(before, b.From)
	}
	if len(before) > 0 { // a bucket is empty that was not
		return now
	}
	return d
}

// rules returns those that decided most.
func (d difference) rules(s api.Status) []Rule {
	list := []Rule{}
	add := func(kind string, now *api.RuleStatus) {
		was, known := d.last.rules[ruleKey{kind, now.Name}]
		if !known {
			return
		}
		r := Rule{Name: now.Name, Kind: kind, Matched: d.rate(now.Matched, was.Matched)}
		r.Dropped = d.rate(turned(now.Counts.Counts), turned(was.Counts.Counts))
		r.Demoted = d.rate(now.Demoted, was.Demoted)
		if r.Matched > 0 {
			list = append(list, r)
		}
	}
	for i := range s.Rules {
		add(connection, &s.Rules[i])
	}
	for i := range s.Requests {
		add(request, &s.Requests[i].RuleStatus)
	}
	slices.SortStableFunc(list, func(a, b Rule) int { return cmp.Compare(b.Matched, a.Matched) })
	return list[:min(len(list), mostRules)]
}

// turned is what was turned away or would have been.
func turned(c datapath.Counts) uint64 { return c.Dropped + c.WouldDrop }

func (d difference) droppedBy() map[string]float64 {
	by := map[string]float64{}
	for _, reason := range SYNReasons {
		// A reason is in the status from its first packet on.
		if rate := d.rate(d.now.reasons[reason].Dropped, d.last.reasons[reason].Dropped); rate > 0 {
			by[reason] = rate
		}
	}
	return by
}
