// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"narthex/internal/api"
	"narthex/internal/datapath"
)

// start is when the meters of these tests begin.
var start = time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)

// snapshot is a status with one service that has a room with one class.
func snapshot(c api.RoomClassStatus, syns api.Counts) api.Status {
	c.Name = "gold"
	return api.Status{Services: []api.ServiceStatus{{
		Name: "web", Counts: syns,
		RoomStatus: &api.RoomStatus{InService: c.InService, Waiting: c.Waiting, Classes: []api.RoomClassStatus{c}},
	}}}
}

func syns(passed, dropped, would uint64) api.Counts {
	c := datapath.Counts{Passed: passed, Dropped: dropped, WouldDrop: would}
	return api.Counts{Matched: c.Matched(), Counts: c}
}

func TestRatesAreOfTheInterval(t *testing.T) {
	var m Meter
	first := m.View(start, snapshot(api.RoomClassStatus{
		Arrived: 1000, Served: 900, Held: 80, Rejected: map[string]uint64{"rule": 7}, InService: 3, Waiting: 4,
	}, syns(100, 10, 5)))
	want := Service{Name: "web", RejectedBy: map[string]float64{}, Classes: []Class{{Name: "gold", InService: 3, Waiting: 4}}}
	if diff := cmp.Diff(want, first.Services[0]); diff != "" || first.Interval != 0 {
		t.Errorf("the first view has rates of %v s (-want +got):\n%s", first.Interval, diff)
	}
	second := m.View(start.Add(2*time.Second), snapshot(api.RoomClassStatus{
		Arrived: 1100, Served: 980, Held: 120, Rejected: map[string]uint64{"rule": 7, "queue_full": 20}, InService: 5, Waiting: 6,
	}, syns(130, 30, 7)))
	want = Service{
		Name: "web", SYNs: 26, SYNsDropped: 10, SYNsWouldDrop: 1, Arrived: 50, Served: 40, Held: 20, Rejected: 10,
		RejectedBy: map[string]float64{"queue_full": 10},
		Classes:    []Class{{Name: "gold", InService: 5, Waiting: 6, Arrived: 50, Served: 40, Held: 20, Rejected: 10}},
	}
	if diff := cmp.Diff(want, second.Services[0]); diff != "" || second.Interval != 2 {
		t.Errorf("interval %v (-want +got):\n%s", second.Interval, diff)
	}
}

// What members of a pool had is told in places: their time in service by the time that has passed.
func TestPoolsHavePlaces(t *testing.T) {
	status := func(served uint64, used float64) api.Status {
		return api.Status{Pools: []api.ServicePool{{Name: "p", Members: []api.PoolMember{{Name: "a", Served: served, Used: used}}}}}
	}
	var m Meter
	want := func(at time.Duration, s api.Status, one PoolMember) {
		t.Helper()
		one.Name = "a"
		if diff := cmp.Diff([]Pool{{Name: "p", Members: []PoolMember{one}}}, m.View(start.Add(at), s).Pools); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	want(0, status(100, 50), PoolMember{})
	want(2*time.Second, status(120, 62), PoolMember{Served: 10, Got: 6})
	want(3*time.Second, status(2, 1), PoolMember{Served: 2}) // begun anew
}

func TestACounterThatWentBackHasBegunAnew(t *testing.T) {
	var m Meter
	m.View(start, snapshot(api.RoomClassStatus{Arrived: 1000, Rejected: map[string]uint64{"rule": 50}}, syns(500, 0, 0)))
	v := m.View(start.Add(time.Second), snapshot(api.RoomClassStatus{Arrived: 30, Rejected: map[string]uint64{"rule": 5}}, syns(20, 0, 0)))
	if s := v.Services[0]; s.Arrived != 30 || s.RejectedBy["rule"] != 5 || s.SYNs != 20 {
		t.Errorf("after a restart: %+v", s)
	}
}

func TestWhatComesHasNoRatesAtFirst(t *testing.T) {
	var m Meter
	m.View(start, api.Status{})
	rule := []api.RuleStatus{{Name: "foe", Counts: syns(5000, 0, 0)}}
	s := snapshot(api.RoomClassStatus{Arrived: 5000}, syns(5000, 0, 0))
	s.Rules = rule
	v := m.View(start.Add(time.Second), s)
	if got := v.Services[0]; got.Arrived != 0 || got.SYNs != 0 || len(v.Rules) != 0 {
		t.Errorf("what was counted before is taken for this second: %+v %+v", got, v.Rules)
	}
	v = m.View(start.Add(2*time.Second), api.Status{})
	if len(v.Services) != 0 || v.Services == nil || v.Rules == nil || v.Sources == nil || v.DroppedBy == nil {
		t.Errorf("when all have gone: %+v", v)
	}
}

func TestAClockThatStandsOrGoesBackGivesNoRates(t *testing.T) {
	for _, step := range []time.Duration{0, -time.Hour} {
		var m Meter
		m.View(start, snapshot(api.RoomClassStatus{Arrived: 1}, api.Counts{}))
		v := m.View(start.Add(step), snapshot(api.RoomClassStatus{Arrived: 9}, api.Counts{}))
		if v.Interval != 0 || v.Services[0].Arrived != 0 {
			t.Errorf("%s later: interval %v, rate %v", step, v.Interval, v.Services[0].Arrived)
		}
	}
}

// histogram has so many durations from 1 to 2 s and from 4 to 8 s.
func histogram(low, high uint64) api.Durations {
	d := api.Durations{Count: low + high, Buckets: []api.Bucket{}}
	if low > 0 {
		d.Buckets = append(d.Buckets, api.Bucket{From: 1, To: 2, Count: low})
	}
	if high > 0 {
		d.Buckets = append(d.Buckets, api.Bucket{From: 4, To: 8, Count: high})
	}
	return d
}

func TestQuantilesAreOfWhatCameLately(t *testing.T) {
	type step struct {
		at        int // seconds
		low, high uint64
	}
	for _, tt := range []struct {
		name  string
		steps []step
		want  Quantiles
	}{
		{"nothing came", []step{{0, 100, 100}, {1, 100, 100}}, Quantiles{}},
		{"those of the interval are enough", []step{{0, 1000, 0}, {1, 1000, 100}}, Quantiles{100, 6, 7.96}},
		{"too few: those of ten seconds", []step{{0, 0, 0}, {1, 100, 0}, {2, 100, 1}}, Quantiles{101, 1.505, 1.9999}},
		{"what is older than ten seconds does not count", []step{{0, 0, 0}, {1, 100, 0}, {12, 100, 2}}, Quantiles{2, 6, 7.96}},
		{"begun anew", []step{{0, 500, 500}, {1, 100, 0}}, Quantiles{100, 1.5, 1.99}},
		{"a bucket begun anew", []step{{0, 5, 500}, {1, 100, 0}}, Quantiles{100, 1.5, 1.99}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var m Meter
			var v View
			for _, s := range tt.steps {
				h := histogram(s.low, s.high)
				v = m.View(start.Add(time.Duration(s.at)*time.Second), snapshot(api.RoomClassStatus{Wait: h, Service: h}, api.Counts{}))
			}
			c := v.Services[0].Classes[0]
			if diff := cmp.Diff(tt.want, c.Wait, cmpopts.EquateApprox(0, 0.001)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if c.Service != c.Wait {
				t.Errorf("service %+v, wait %+v", c.Service, c.Wait)
			}
		})
	}
}

func TestRulesThatDecidedMostComeFirst(t *testing.T) {
	status := func(a, b, c api.Counts) api.Status {
		return api.Status{
			Rules:    []api.RuleStatus{{Name: "a", Counts: a}, {Name: "b", Counts: b}},
			Requests: []api.RequestRuleStatus{{RuleStatus: api.RuleStatus{Name: "a", Counts: c}}},
			Reasons:  map[string]datapath.Counts{"shed": {Dropped: a.Passed}, "no_rule": {Passed: a.Passed}},
		}
	}
	var m Meter
	m.View(start, status(syns(1, 0, 0), syns(9, 9, 9), syns(0, 0, 0)))
	v := m.View(start.Add(time.Second), status(syns(3, 1, 0), syns(9, 9, 9), syns(10, 20, 30)))
	want := []Rule{{"a", "request", 60, 50, 0}, {"a", "connection", 3, 1, 0}}
	if diff := cmp.Diff(want, v.Rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]float64{"shed": 2}, v.DroppedBy); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
}

func TestOfManyRulesTheLatestAndTheMostAreKept(t *testing.T) {
	status := func(latest uint64) api.Status {
		var s api.Status
		for i := range manyRules + 100 {
			n := uint64(i)
			if i == 3 {
				n = latest
			}
			s.Rules = append(s.Rules, api.RuleStatus{Name: fmt.Sprint(i), Counts: syns(n, 0, 0)})
			s.Requests = append(s.Requests, api.RequestRuleStatus{RuleStatus: api.RuleStatus{Name: fmt.Sprint(i), Counts: syns(n, 0, 0)}})
		}
		return s
	}
	var m Meter
	m.View(start, status(0))
	v := m.View(start.Add(time.Second), status(1))
	if n := len(v.Status.Rules); n != manyRules || len(v.Status.Requests) != manyRules {
		t.Fatalf("%d and %d rules", n, len(v.Status.Requests))
	}
	if v.Status.Rules[0].Name != "3" || v.Status.Rules[1].Name != "101" || v.Status.Requests[0].Name != "3" {
		t.Errorf("rules begin with %s and %s", v.Status.Rules[0].Name, v.Status.Rules[1].Name)
	}
	v = m.View(start.Add(lately+2*time.Second), status(1))
	if v.Status.Rules[0].Name != "100" {
		t.Errorf("long after rule 3 has matched, rules begin with %s", v.Status.Rules[0].Name)
	}
	if len(status(0).Rules) != manyRules+100 {
		t.Error("the snapshot was changed")
	}
}
