// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/netif"
	"narthex/internal/policy"
)

// status reads everything there is to show.
func (d *daemon) status() (api.Status, error) {
	e := d.engine
	listeners, err := e.net.Listeners()
	if err != nil {
		return api.Status{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	stats, err := e.dp.Stats()
	if err != nil {
		return api.Status{}, fmt.Errorf("read counters: %w", err)
	}
	sources, err := e.dp.Sources()
	if err != nil {
		return api.Status{}, fmt.Errorf("count sources: %w", err)
	}
	rooms, err := e.dp.Rooms()
	if err != nil {
		return api.Status{}, fmt.Errorf("read waiting rooms: %w", err)
	}
	pool, err := e.dp.Pool()
	if err != nil {
		return api.Status{}, fmt.Errorf("count slots of the waiting rooms: %w", err)
	}
	notes := append(e.currentNotes(), e.detours.notes(e.current.tables.Services, stats, listeners)...)
	listed, err := e.listStatus()
	if err != nil {
		return api.Status{}, fmt.Errorf("read counters of lists: %w", err)
	}
	bytes, err := e.dp.MapBytes()
	if err != nil {
		notes = append(notes, fmt.Sprintf("cannot tell how much memory the maps hold: %v", err))
	}
	services := e.services(stats, rooms, listeners)
	return api.Status{
		Host:      hostName,
		Instance:  e.instance,
		Enforcing: len(e.attachments) > 0,
		PID:       os.Getpid(),
		Version:   d.cfg.Version,
		Started:   d.started,
		Adopted:   e.dp.Adopted(),
		Policy:    e.policyStatus(),
		Trial:     e.trialStatus(),
		Services:  services,
		Pools:     e.pools(rooms, services),
		Classes:   classes(e.current.policy),
		Rules:     rules(e.current, stats, e.agent.rateNow),
		Requests:  requestRules(e.current, stats, e.agent.rateNow),
		Reasons:   stats.Reasons,
		Overrides: api.List(slices.Clone(e.current.overrides)),
		Sources:   api.SourcesStatus(sources),
		Lists:     listed,
		MapBytes:  bytes,
		Missing:   api.List(e.dp.Missing()),
		Notes:     api.List(notes),
		Warnings:  e.current.warningLines(),

		Events:       d.events.status(),
		Reloads:      d.reloads.status(),
		Capabilities: api.List(d.held),
		WaitingRoom:  api.PoolStatus(pool),
	}, nil
}

func (e *engine) services(stats datapath.Stats, rooms []datapath.Room, listeners netif.Listeners) []api.ServiceStatus {
	list := make([]api.ServiceStatus, len(e.current.tables.Services))
	for i, s := range e.current.tables.Services {
		list[i] = api.ServiceStatus{
			Name:       s.Name,
			Protocol:   s.Room.Protocol,
			Mode:       "enforce",
			Interfaces: e.interfaces(i),
			Counts:     counts(stats.Services, i),
			RoomStatus: roomOf(e.current.tables, i, rooms),
			Adaptation: e.agent.adaptation(s.Name, e.current.tables.Classes),
			Changes:    e.agent.changes(s.Name),
			CPU:        e.agent.cpu(s.Name),
		}
		list[i].Limit = limitText(e.current.policy.Services[i].Concurrency, list[i].Adaptation)
		if s.Shadow {
			list[i].Mode = "shadow"
		}
		for _, l := range s.Listen {
			list[i].Listen = append(list[i].Listen, l.String())
		}
		list[i].Silent = silentOf(s, listeners)
		list[i].Listening = len(list[i].Silent) == 0
	}
	return list
}

// silentOf returns where a service should listen and no server does.
func silentOf(s policy.ServiceTable, listeners netif.Listeners) (silent []string) {
	for _, l := range s.Listen {
		if !listeners.On(l.Addr, l.Port) {
			silent = append(silent, l.String())
		}
	}
	return silent
}

func (e *engine) interfaces(service int) []api.InterfaceStatus {
	list := []api.InterfaceStatus{}
	for _, a := range e.attachments {
		polices := func(t netif.Target) bool { return t.Index == a.Index && slices.Contains(t.Services, service) }
		if slices.ContainsFunc(e.plan.Targets, polices) {
			list = append(list, api.InterfaceStatus{Name: a.Name, Mode: a.Mode, Reason: a.Reason})
		}
	}
	return list
}

func classes(p *policy.Policy) []api.ClassStatus {
	list := make([]api.ClassStatus, len(p.Classes))
	for i, c := range p.Classes {
		list[i] = api.ClassStatus{Name: c.Name, Priority: c.Priority, Default: i == p.Default}
	}
	return list
}

func rules(f *enforceable, stats datapath.Stats, now rateNow) []api.RuleStatus {
	list := make([]api.RuleStatus, len(f.policy.Connections))
	for i, c := range f.policy.Connections {
		list[i] = f.rule(connectionTable, now, ruled{c.Name, c.Action, c.Rate, c.Burst, c.Per, c.When, c.Class}, c.Limits, nthLimits(stats.RuleLimits, i))
		list[i].Counts = counts(stats.Rules, i)
	}
	return list
}

func requestRules(f *enforceable, stats datapath.Stats, now rateNow) []api.RequestRuleStatus {
	list := make([]api.RequestRuleStatus, len(f.policy.Requests))
	for i, q := range f.policy.Requests {
		list[i].RuleStatus = f.rule(requestTable, now, ruled{q.Name, q.Action, q.Rate, q.Burst, q.Per, q.When, q.Class}, q.Limits, nthLimits(stats.RequestLimits, i))
		list[i].Counts = counts(stats.Requests, i)
		list[i].Block, list[i].Learn = q.Block.Seconds(), q.Learn.Seconds()
		if q.Action == policy.ActionPolice {
			list[i].Over = string(q.Over)
		}
		if q.Over == policy.OverDemote { // which turns nobody away
			list[i].Demoted, list[i].Dropped = list[i].Dropped, 0
		}
		list[i].Answer = f.answerOf(i)
	}
	return list
}

// answerOf is what a request rule says to who is rejected; empty: nothing, or it differs by service.
func (f *enforceable) answerOf(rule int) (said string) {
	q := &f.policy.Requests[rule]
	if q.Action != policy.ActionReject && (q.Action != policy.ActionPolice || q.Over != policy.OverReject) {
		return ""
	}
	for service := range f.tables.Services {
		if f.tables.Services[service].Room.Protocol != policy.HTTP {
			continue
		}
		says := f.tables.Refused(service, f.tables.Answers.Row[rule], "")
		if said != "" && said != says {
			return ""
		}
		said = says
	}
	return said
}

// rateNow returns the rate of a rule that sets itself, per second, 0 for none.
type rateNow func(table, rule string) float64

// ruled is what rules of both tables say.
type ruled struct {
	name   string
	action policy.Action
	rate   policy.Limit
	burst  int
	per    policy.Per
	when   policy.When
	class  int
}

// The tables of the policy, as in paths of overrides.
const (
	connectionTable = "connections"
	requestTable    = "requests"
)

func (f *enforceable) rule(table string, now rateNow, r ruled, limits []policy.Bound, refused []uint64) api.RuleStatus {
	s := api.RuleStatus{Name: r.name, Action: r.action.String()}
	if r.when != policy.WhenAlways {
		s.When = r.when.String()
	}
	if r.class >= 0 {
		s.Class = f.policy.ClassName(r.class)
	}
	for i, l := range limits {
		s.Limits = append(s.Limits, api.LimitStatus{Rate: rateOf(l), Burst: uint32(l.Burst), AtOnce: uint32(l.AtOnce), Per: l.Per.Word()})
		if i < len(refused) {
			s.Limits[i].Refused = refused[i]
		}
	}
	if r.rate.IsSet() {
		s.Rate, s.Burst, s.Per = r.rate.String(), uint32(r.burst), r.per.Word()
		if r.rate.Auto.On {
			s.RateNow = now(table, r.name)
		}
	}
	for _, o := range f.overrides {
		s.Overridden = s.Overridden || overrides(o.Path, table, r.name)
	}
	return s
}

// rateOf is the rate of one of the limits of a rule; empty: it has none.
func rateOf(l policy.Bound) string {
	if l.AtOnce > 0 {
		return ""
	}
	return l.Rate.String()
}

// nthLimits returns what the limits of a rule have refused.
func nthLimits(all [][]uint64, i int) []uint64 {
	if i >= len(all) {
		return nil
	}
	return all[i]
}

// overrides reports whether a path such as connections.NAME.rate is on that rule of a table.
func overrides(path, table, rule string) bool { return strings.HasPrefix(path, table+"."+rule+".") }

func counts(all []datapath.Counts, i int) api.Counts {
	if i >= len(all) {
		return api.Counts{}
	}
	return api.Counts{Matched: all[i].Matched(), Counts: all[i]}
}

// hostName is the machine's, so that one knows which of several dashboards one looks at; empty if
// it has none.
var hostName, _ = os.Hostname()
