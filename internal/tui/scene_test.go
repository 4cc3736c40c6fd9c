// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"time"

	"narthex/internal/api"
	"narthex/internal/live"
)

// at is the time of the first view, where clocks are in UTC.
var at = time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)

// pooled is the same with services that share places.
func pooled(second int) live.View {
	due := func(n float64) *float64 { return &n }
	v := overload(second)
	v.Status.Pools = []api.ServicePool{
		{Name: "platform", Between: "shares", Limit: "12", InService: 12, Waiting: 54, Members: []api.PoolMember{
			{Name: "shop", Share: 3, InService: 9, Waiting: 45, Wanted: 54, Due: due(9)},
			{Name: "florist", Share: 1, InService: 3, Waiting: 9, Wanted: 12, Due: due(3)},
		}},
		{Name: "nginx", Between: "classes", Limit: "7 (auto)", Adaptation: &api.AdaptationStatus{Auto: true, Limit: 7}, InService: 2,
			Members: []api.PoolMember{{Name: "web", Share: 1, InService: 2, Wanted: 2}}},
	}
	v.Pools = []live.Pool{
		{Name: "platform", Members: []live.PoolMember{{Name: "shop", Served: 420, Got: 8.9}, {Name: "florist", Served: 31, Got: 3.1}}},
		{Name: "nginx", Members: []live.PoolMember{{Name: "web", Served: 80, Got: 1.6}}},
	}
	return v
}

// overload is a view of a machine at three in the morning.
func overload(second int) live.View {
	classes := func(gold, others int) []api.RoomClassStatus {
		return []api.RoomClassStatus{
			{Name: "gold", Max: 12, Arrived: 10, InService: gold, Waiting: 0},
			{Name: "anonymous", Arrived: 10, InService: others, Waiting: 12 + second},
			{Name: "crawlers", Arrived: 10, Waiting: 25},
			{Name: "unused"},
		}
	}
	shop := api.ServiceStatus{
		Name: "shop", Listen: []string{"*:80"}, Protocol: "http", Mode: "enforce", Listening: true, Limit: "14 (auto)",
		Interfaces: []api.InterfaceStatus{{Name: "eth0"}},
		RoomStatus: &api.RoomStatus{InService: 14, Waiting: 37 + second, QueueSize: 512, Classes: classes(4, 10)},
		Adaptation: &api.AdaptationStatus{Auto: true, Limit: 14, Floor: 4, Ceiling: 64, Signal: "cpu", Overload: true, Degree: 0.42,
			Keep: []api.KeepStatus{{Class: "gold", Share: 1}, {Class: "crawlers", Share: 0.25}}},
		Changes: []api.LimitChange{
			{At: at.Add(-3 * time.Second), Old: "16", New: "14", Signal: "cpu", By: "agent", Reason: "more in service no longer serve more, and take longer"},
			{At: at.Add(-time.Minute), Old: "12", New: "16", By: "uid 0", Reason: "set services.shop.concurrency"},
		},
	}
	mail := api.ServiceStatus{
		Name: "mail", Listen: []string{"*:25"}, Protocol: "tcp", Mode: "shadow", Limit: "unlimited", Silent: []string{"*:25"},
		Interfaces: []api.InterfaceStatus{{Name: "eth0"}}, Changes: []api.LimitChange{},
	}
	return live.View{
		Time: at.Add(time.Duration(second) * time.Second), Interval: min(float64(second), 1),
		Status: api.Status{
			Instance: "default", Enforcing: true, PID: 4711,
			Policy:   api.PolicyStatus{File: "/etc/narthex/policy.yaml", Hash: "3fa9c1d2e4f5", Loaded: at.Add(-26 * time.Hour)},
			Services: []api.ServiceStatus{shop, mail},
			Rules:    []api.RuleStatus{{Name: "per-client", Rate: "50/s", Burst: 20, Per: "source", Action: "police"}},
			Requests: []api.RequestRuleStatus{{RuleStatus: api.RuleStatus{Name: "login", Rate: "5/s", Burst: 5, Action: "police", Class: "gold"}}},
			Notes:    []string{"eth1: the driver has no XDP, SYNs are policed at tcx"},
		},
		Services: []live.Service{
			{
				Name: "shop", SYNs: 900, SYNsDropped: 300, Arrived: 1204.4, Served: 480 + float64(10*second), Held: 610, Rejected: 700,
				RejectedBy: map[string]float64{"queue_full": 500, "rule": 200},
				Classes: []live.Class{
					{Name: "gold", InService: 4, Arrived: 104.4, Served: 100, Held: 9.3, Wait: live.Quantiles{Count: 90, P50: 0.0012, P99: 0.0098}, Service: live.Quantiles{Count: 100, P50: 0.02, P99: 0.041}},
					{Name: "anonymous", InService: 10, Waiting: 12 + second, Arrived: 800, Served: 380, Held: 400, Rejected: 420,
						Wait: live.Quantiles{Count: 90, P50: 1.2, P99: 2.9}, Service: live.Quantiles{Count: 100, P50: 0.021, P99: 0.044}},
					{Name: "crawlers", Waiting: 25, Arrived: 300, Held: 200.7, Rejected: 280},
					{Name: "unused"},
				},
			},
			{Name: "mail", SYNs: 3.2, SYNsWouldDrop: 1.04, RejectedBy: map[string]float64{}, Classes: []live.Class{}},
		},
		Rules: []live.Rule{
			{Name: "per-client", Kind: "connection", Matched: 900, Dropped: 260}, {Name: "login", Kind: "request", Matched: 250, Dropped: 200},
		},
		Sources: []live.Source{
			{Client: "192.0.2.44", Turned: 180.2, Seen: 200, Rule: "login", Reason: "rule"},
			{Client: "2001:db8:1:2:3:4:5:6", Turned: 90, Seen: 91, Rule: "per-client", Reason: "rule"},
			{Client: "198.51.100.7", Turned: 12, Seen: 30, Reason: "queue_full"},
			{Client: "203.0.113.9", Seen: 1.5},
		},
		DroppedBy: map[string]float64{"shed": 40},
	}
}
