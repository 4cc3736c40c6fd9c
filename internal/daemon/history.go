// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"slices"
	"strconv"

	"narthex/internal/adapt"
	"narthex/internal/api"
	"narthex/internal/policy"
)

const (
	// keptChanges is how many changes of limits are kept, of all services together.
	keptChanges = 100
	// shownChanges is how many of them the status has of each service.
	shownChanges = 10
	// byAgent is who changed a limit that set itself.
	byAgent = "agent"
	// byPolicy is what has set a limit that is a number there.
	byPolicy = "policy"
)

// history is the last changes of limits, in the order in which they happened.
type history struct {
	changes [keptChanges]change
	next    int // where the next goes
}

type change struct {
	service string
	api.LimitChange
}

func (h *history) add(c change) {
	h.changes[h.next] = c
	h.next = (h.next + 1) % keptChanges
}

// of returns the last changes of a service, the newest first.
func (h *history) of(service string) []api.LimitChange {
	list := []api.LimitChange{}
	for i := range keptChanges {
		c := &h.changes[(h.next+2*keptChanges-1-i)%keptChanges]
		if c.service == service && len(list) < shownChanges {
			list = append(list, c.LimitChange)
		}
	}
	return list
}

// note keeps and logs what a step changed, if it is worth that.
func (a *agent) note(s *steered, was adapt.Decision) {
	now := &s.decision
	if now.Reason == "" {
		return
	}
	change := api.LimitChange{
		Old: requestsText(was.Limit), New: requestsText(now.Limit), Signal: now.Signal, Overload: now.Overload, Reason: now.Reason, By: byAgent,
	}
	if !s.adaptive {
		if now.Level == was.Level && now.Closes == was.Closes { // the limit is the policy's, and does not change
			return
		}
		change.Old, change.New, change.Signal = requestsText(s.table.Room.Limit), requestsText(s.wanted().Limit), byPolicy
	}
	if s.steeredAt != 0 {
		change.Old = requestsText(s.inForce.Limit)
	}
	a.audit(s.table.Name, change)
}

// audit keeps and logs a change of a limit.
func (a *agent) audit(service string, c api.LimitChange) {
	c.At = a.wall()
	a.history.add(change{service, c})
	about := []any{"service", service, "old", c.Old, "new", c.New, "by", c.By, "reason", c.Reason}
	if c.Signal != "" {
		about = append(about, "signal", c.Signal, "overload", c.Overload)
	}
	a.log.Info("limit of a service", about...)
}

// auditSet keeps and logs what somebody set, or what it is again.
func (a *agent) auditSet(before, now *policy.Policy, path, by string) {
	value := func(p *policy.Policy) string {
		all := p.Settings()
		i := slices.IndexFunc(all, func(s policy.Setting) bool { return s.Path == path })
		return all[i].Value // the path was found when it was set
	}
	a.log.Info("set", "path", path, "old", value(before), "new", value(now), "by", by)
	a.auditLimits(before, now, by, "set "+path)
}

// auditReload keeps and logs what another policy changes.
func (a *agent) auditReload(before, now *policy.Policy, by string) {
	a.auditLimits(before, now, by, "reload")
}

// auditLimits keeps and logs what differs in the limits of services.
func (a *agent) auditLimits(before, now *policy.Policy, by, reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range now.Services {
		s := &now.Services[i]
		at := slices.IndexFunc(before.Services, func(o policy.Service) bool { return o.Name == s.Name })
		if at < 0 {
			continue
		}
		if old := before.Services[at].Concurrency.String(); old != s.Concurrency.String() {
			a.audit(s.Name, api.LimitChange{Old: old, New: s.Concurrency.String(), By: by, Reason: reason})
		}
	}
}

// requestsText is a limit in requests, in a word.
func requestsText(limit int) string {
	if limit == 0 {
		return "unlimited"
	}
	return strconv.Itoa(limit)
}

// adaptation returns how a service is steered, nil for one that is not.
func (a *agent) adaptation(service string, classes []policy.ClassTable) *api.AdaptationStatus {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.find(service)
	if s == nil {
		return nil
	}
	d := s.inForce
	status := &api.AdaptationStatus{
		Auto: s.adaptive, Limit: d.Limit, Safe: d.Safe, Floor: s.config.Floor, Ceiling: s.config.Ceiling, Closes: d.Closes,
		Signal: s.decision.Signal, Overload: d.Level != policy.WhenAlways, Level: levelWord(d.Level), Degree: s.decision.Degree, Keep: []api.KeepStatus{}, StepsStatus: s.steps,
	}
	if !s.adaptive {
		status.Signal = byPolicy
	}
	for i, c := range classes {
		keep := api.KeepStatus{Class: c.Name, Share: 1}
		if i < len(d.Keep) {
			keep.Share = d.Keep[i]
		}
		status.Keep = append(status.Keep, keep)
	}
	return status
}

// calm is the word for no overload.
const calm = "calm"

// levelWord names a level of overload.
func levelWord(level policy.When) string {
	if level == policy.WhenAlways {
		return calm
	}
	return level.String()
}

// find returns how a service is steered, or a pool; nil: it is not.
func (a *agent) find(service string) *steered {
	if pool, in := a.leaders[service]; in {
		service = pool
	}
	i := slices.IndexFunc(a.services, func(s *steered) bool { return s.table.Name == service })
	if i < 0 {
		return nil
	}
	return a.services[i]
}

// changes returns the last changes of a service's limit, the newest first.
func (a *agent) changes(service string) []api.LimitChange {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.history.of(service)
}

// limitText says how many requests may be in service at once, and who says so.
func limitText(c policy.Concurrency, now *api.AdaptationStatus) string {
	if c.Mode != policy.ConcurrencyAuto || now == nil {
		return c.String()
	}
	return fmt.Sprintf("%s (auto)", requestsText(now.Limit))
}
