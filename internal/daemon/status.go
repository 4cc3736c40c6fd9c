// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"os"
	"slices"

	"narthex/internal/daemon/api"
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
	notes := e.currentNotes()
	bytes, err := e.dp.MapBytes()
	if err != nil {
		notes = append(notes, fmt.Sprintf("cannot tell how much memory the maps hold: %v", err))
	}
	return api.Status{
		Instance:  e.instance,
		Enforcing: len(e.attachments) > 0,
		PID:       os.Getpid(),
		Version:   d.cfg.Version,
		Started:   d.started,
		Adopted:   e.dp.Adopted(),
		Policy:    e.current.status(),
		Services:  e.services(stats, rooms, listeners),
		Classes:   classes(e.current.policy),
		Rules:     rules(e.current, stats),
		Reasons:   stats.Reasons,
		Overrides: api.List(slices.Clone(e.current.overrides)),
		Sources:   api.SourcesStatus(sources),
		MapBytes:  bytes,
		Notes:     api.List(notes),
		Warnings:  e.current.warningLines(),

		WaitingRoom: api.PoolStatus(pool),
	}, nil
}

func (e *engine) services(stats datapath.Stats, rooms []datapath.Room, listeners netif.Listeners) []api.ServiceStatus {
	list := make([]api.ServiceStatus, len(e.current.tables.Services))
	for i, s := range e.current.tables.Services {
		list[i] = api.ServiceStatus{
			Name:       s.Name,
			Protocol:   s.Room.Protocol,
			Mode:       "enforce",
			Limit:      limitText(e.current.policy.Services[i].Concurrency),
			Interfaces: e.interfaces(i),
			Counts:     counts(stats.Services, i),
			RoomStatus: roomOf(e.current.tables, i, rooms),
		}
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

func rules(f *enforceable, stats datapath.Stats) []api.RuleStatus {
	list := make([]api.RuleStatus, len(f.policy.Connections))
	for i, c := range f.policy.Connections {
		list[i] = api.RuleStatus{
			Name:   c.Name,
			Action: c.Action.String(),
			Counts: counts(stats.Rules, i),
		}
		if c.Class >= 0 {
			list[i].Class = f.policy.ClassName(c.Class)
		}
		if c.Action == policy.ActionPolice {
			list[i].Rate, list[i].Burst, list[i].Per = c.Rate.String(), uint32(c.Burst), perText(c.Per)
		}
	}
	for _, o := range f.overrides {
		for i := range list {
			list[i].Overridden = list[i].Overridden || overrides(o.Path, list[i].Name)
		}
	}
	return list
}

// overrides reports whether a path such as connections.NAME.rate is on that rule.
func overrides(path, rule string) bool {
	const table = "connections."
	return len(path) > len(table)+len(rule) && path[:len(table)] == table &&
		path[len(table):len(table)+len(rule)] == rule && path[len(table)+len(rule)] == '.'
}

func counts(all []datapath.Counts, i int) api.Counts {
	if i >= len(all) {
		return api.Counts{}
	}
	return api.Counts{Matched: all[i].Matched(), Counts: all[i]}
}

func perText(p policy.Per) string {
	switch p {
	case policy.PerRule:
		return "rule"
	case policy.PerSource:
		return "source"
	}
	return fmt.Sprintf("/%d and /%d", p.V4, p.V6)
}
