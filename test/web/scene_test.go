// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"math"
	"time"

	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/live"
)

// start is when the scene begins. Its clock is not that of the machine.
var start = time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)

// limit is the shop's in overload.
const limit = 24

// scene makes views of two services: a shop, which is overloaded when crowd is above 0, and an
// api, for which nobody waits.
type scene struct {
	second int
	crowd  float64 // 0 calm to 1
	pooled bool    // the two are in a pool, with shares
	every  bool    // the shop rejects for each reason that has a colour
	served map[string]uint64
}

func newScene() *scene { return &scene{served: map[string]uint64{}} }

// next returns the view of the next second.
func (s *scene) next() live.View {
	s.second++
	now := start.Add(time.Duration(s.second) * time.Second)
	wave := math.Sin(float64(s.second)/9) + 0.6*math.Sin(float64(s.second)/3.7)
	shop := s.shop(wave)
	other := live.Service{
		Name: "api", SYNs: 18 + wave, Arrived: 61 + 3*wave, Served: 61 + 3*wave, RejectedBy: map[string]float64{},
		Classes: []live.Class{s.class("gold", 61+3*wave, 0, 0, live.Quantiles{}, quantiles(60, 0.0031, 0.011))},
	}
	v := live.View{Time: now, Interval: 1, Services: []live.Service{shop, other}}
	if s.second == 1 {
		v.Interval = 0
	}
	v.Rules = []live.Rule{
		{Name: "members", Kind: "request", Matched: shop.Classes[0].Arrived},
		{Name: "crawlers", Kind: "request", Matched: shop.Classes[2].Arrived},
		{Name: "search", Kind: "request", Matched: 24 + 90*s.crowd, Dropped: 31 * s.crowd},
		{Name: "everyone", Kind: "connection", Matched: shop.SYNs, Dropped: shop.SYNsDropped},
	}
	if s.crowd > 0 {
		v.Sources = []live.Source{
			{Client: "198.51.100.23", Turned: 22 * s.crowd, Seen: 41 * s.crowd, Rule: "search", Reason: "rule"},
			{Client: "203.0.113.9", Turned: 11 * s.crowd, Seen: 11 * s.crowd, Rule: "everyone", Reason: "rule"},
			{Client: "2001:db8:41:7::c0de", Turned: 4 * s.crowd, Seen: 9 * s.crowd, Reason: "max_wait"},
			{Client: "192.0.2.77", Seen: 55 * s.crowd},
		}
	}
	v.Status = s.status(v)
	if s.pooled {
		s.pool(&v)
	}
	return v
}

// pool puts both services into one.
func (s *scene) pool(v *live.View) {
	p := api.ServicePool{Name: "platform", Between: "shares", Limit: "24"}
	of := live.Pool{Name: "platform"}
	for i, share := range []int{3, 1} {
		room := v.Status.Services[i].RoomStatus
		due := float64(min(room.InService+room.Waiting, limit))
		p.InService, p.Waiting = p.InService+room.InService, p.Waiting+room.Waiting
		p.Members = append(p.Members, api.PoolMember{
			Name: v.Services[i].Name, Share: share, InService: room.InService, Waiting: room.Waiting, Served: 1000, Used: 4321,
			Wanted: room.InService + room.Waiting, Due: &due,
		})
		of.Members = append(of.Members, live.PoolMember{Name: v.Services[i].Name, Served: v.Services[i].Served, Got: float64(room.InService)})
	}
	v.Status.Pools, v.Pools = []api.ServicePool{p}, []live.Pool{of}
}

func quantiles(count uint64, p50, p99 float64) live.Quantiles {
	return live.Quantiles{Count: count, P50: p50, P99: p99}
}

func (s *scene) shop(wave float64) live.Service {
	c := s.crowd
	gold := 118 + 9*wave
	bronze := 90 + 7*wave - 22*c
	bots := 16*(1-c) + 4 + wave
	waits := func(p50, p99 float64) live.Quantiles {
		if c == 0 {
			return live.Quantiles{}
		}
		return quantiles(80, p50*(1+0.1*wave), p99*(1+0.1*wave))
	}
	classes := []live.Class{
		s.class("gold", gold, math.Round(2*c), 0, waits(0.0012, 0.0081), quantiles(118, 0.019+0.002*wave, 0.062+0.02*c)),
		s.class("bronze", bronze, math.Round(c*(140+18*wave)), 46*c, waits(1.1, 3.9), quantiles(90, 0.021+0.002*wave, 0.071+0.02*c)),
		s.class("bots", bots, math.Round(c*(44+5*wave)), (28+3*wave)*c, waits(2.9, 4.8), quantiles(6, 0.034, 0.091)),
	}
	by := map[string]float64{}
	if c > 0 {
		classes[2].InService = 1
		classes[1].InService = limit - classes[0].InService - classes[2].InService
		by = map[string]float64{"max_wait": 36 * c, "rule": (31 + 3*wave) * c, "displaced": 7 * c}
	}
	if s.every {
		by = map[string]float64{"queue_full": 9, "max_wait": 8, "displaced": 7, "rule": 6, "blocked": 5, "malformed": 4, "no_server": 3}
	}
	var rejected float64
	for _, n := range by {
		rejected += n
	}
	return live.Service{
		Name: "shop", SYNs: 64 + 6*wave + 210*c, SYNsDropped: c * (150 + 12*wave),
		Arrived: gold + bronze + bots + rejected, Served: gold + bronze + bots, Held: c * 150, Rejected: rejected, RejectedBy: by, Classes: classes,
	}
}

func (s *scene) class(name string, served, waiting, rejected float64, wait, service live.Quantiles) live.Class {
	s.served[name] += uint64(served)
	return live.Class{
		Name: name, InService: int(served / 12), Waiting: int(waiting), Arrived: served + rejected, Served: served, Held: waiting, Rejected: rejected,
		Wait: wait, Service: service,
	}
}

func counted(n, dropped uint64) api.Counts {
	c := datapath.Counts{Passed: n - dropped, Dropped: dropped}
	return api.Counts{Matched: n, Counts: c}
}

func (s *scene) status(v live.View) api.Status {
	st := api.Status{
		Host: "web1", Instance: "default", Enforcing: true, PID: 4711, Version: "v1.0", Started: start.Add(-26 * time.Hour),
		Policy: api.PolicyStatus{
			File: "/etc/narthex/policy.yaml", Hash: "9f2c6d0be1a7448f2f0c8d35a0c1b5e79d1f4b6a82c3e07d5f1a9b8c7d6e5f40", Loaded: start.Add(-3 * time.Hour),
			Change: &api.Change{At: start.Add(-10 * time.Minute), What: "set services.shop.concurrency", By: "uid 0"},
		},
		Classes:   []api.ClassStatus{{Name: "gold", Priority: 1}, {Name: "bronze", Priority: 2, Default: true}, {Name: "bots", Priority: 3}},
		Requests:  []api.RequestRuleStatus{rule("members", "classify", "", "gold", counted(918273, 0)), rule("crawlers", "classify", "", "bots", counted(40233, 0)), rule("search", "police", "10/s", "", counted(120034, 8711))},
		Rules:     []api.RuleStatus{{Name: "everyone", Action: "police", Rate: "20/s", Burst: 40, Per: "source", Counts: counted(501233, 30122)}},
		Overrides: []api.Override{{Path: "requests.search.rate", Value: "10/s"}},
		Sources:   api.SourcesStatus{Size: 262144, Used: 8123, Debt: 40}, MapBytes: 93 << 20,
		WaitingRoom: api.PoolStatus{Slots: 4096, FreeSlots: 4096 - int(186*s.crowd), SlotSize: 16064, Flows: 65536, UsedFlows: 1230},
		Notes:       []string{}, Warnings: []string{},
	}
	for i, service := range v.Services {
		st.Services = append(st.Services, s.service(i, service))
	}
	return st
}

func rule(name, action, rate, class string, c api.Counts) api.RequestRuleStatus {
	per := ""
	if rate != "" {
		per = "source"
	}
	return api.RequestRuleStatus{RuleStatus: api.RuleStatus{Name: name, Action: action, Rate: rate, Per: per, Class: class, Counts: c}}
}

func (s *scene) service(i int, v live.Service) api.ServiceStatus {
	room := &api.RoomStatus{QueueSize: 4096}
	for _, c := range v.Classes {
		room.InService += c.InService
		room.Waiting += c.Waiting
		served := s.served[c.Name] + 250_000/uint64(len(room.Classes)+1)
		room.Classes = append(room.Classes, api.RoomClassStatus{
			Name: c.Name, InService: c.InService, Waiting: c.Waiting, Arrived: served, Served: served, Rejected: map[string]uint64{"max_wait": uint64(c.Rejected * 60)},
		})
	}
	st := api.ServiceStatus{
		Name: v.Name, Listen: []string{fmt.Sprintf("*:%d", 80+i*8000)}, Protocol: "http", Mode: "enforce", Listening: true, Limit: "unlimited (auto)",
		Interfaces: []api.InterfaceStatus{{Name: "eth0", Mode: "native"}}, Counts: counted(901233, 30122), RoomStatus: room, Changes: []api.LimitChange{},
	}
	if v.Name != "shop" {
		return st
	}
	st.Adaptation = &api.AdaptationStatus{Auto: true, Safe: limit, Floor: 2, Ceiling: 64, Signal: "headroom"}
	if s.crowd > 0 {
		st.Limit = "24 (auto)"
		st.Adaptation = &api.AdaptationStatus{
			Auto: true, Limit: limit, Safe: limit, Floor: 2, Ceiling: 64, Signal: "cpu", Overload: true, Degree: 1.1 * s.crowd,
			Keep: []api.KeepStatus{{Class: "gold", Share: 1}, {Class: "bronze", Share: 1}, {Class: "bots", Share: 0.4}},
		}
		st.Changes = append(st.Changes,
			api.LimitChange{At: start.Add(181 * time.Second), Old: "24", New: "24", Overload: true, Reason: "overload begins: 139 requests wait, 24 are in service; limit 24 by cpu", By: "agent"},
			api.LimitChange{At: start.Add(180 * time.Second), Old: "unlimited", New: "24", Signal: "cpu", Reason: "limit 24 after unlimited by cpu: 211 completions/s, 41 in service, 100 % of 2 cores busy", By: "agent"})
	}
	st.Changes = append(st.Changes, api.LimitChange{At: start.Add(-10 * time.Minute), Old: "32", New: "auto", Reason: "set services.shop.concurrency", By: "uid 0"})
	return st
}
