// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"cmp"
	"slices"
	"strings"

	"narthex/internal/api"
	"narthex/internal/live"
)

// order is a way to sort. Where a function is nil, the order is that of the view.
type order struct {
	name     string
	services func(a, b service) int
	classes  func(a, b class) int
	rules    func(a, b live.Rule) int
	sources  func(a, b live.Source) int
}

// orders are the ways to sort, as the key goes through them. The first is that of the policy,
// and of rules and sources that of the view.
var orders = []order{
	{name: "policy"},
	{
		name:     "waiting",
		services: func(a, b service) int { return cmp.Compare(b.waiting(), a.waiting()) },
		classes:  func(a, b class) int { return cmp.Compare(b.live.Waiting, a.live.Waiting) },
	},
	{
		name:     "arrived",
		services: func(a, b service) int { return cmp.Compare(b.live.Arrived, a.live.Arrived) },
		classes:  func(a, b class) int { return cmp.Compare(b.live.Arrived, a.live.Arrived) },
		sources:  func(a, b live.Source) int { return cmp.Compare(b.Seen, a.Seen) },
	},
	{
		name:     "rejected",
		services: func(a, b service) int { return cmp.Compare(b.live.Rejected, a.live.Rejected) },
		classes:  func(a, b class) int { return cmp.Compare(b.live.Rejected, a.live.Rejected) },
		rules:    func(a, b live.Rule) int { return cmp.Compare(b.Dropped, a.Dropped) },
	},
	{
		name:     "wait",
		services: func(a, b service) int { return cmp.Compare(b.wait(), a.wait()) },
		classes:  func(a, b class) int { return cmp.Compare(b.live.Wait.P99, a.live.Wait.P99) },
	},
	{
		name:     "name",
		services: func(a, b service) int { return cmp.Compare(a.live.Name, b.live.Name) },
		classes:  func(a, b class) int { return cmp.Compare(a.live.Name, b.live.Name) },
		rules:    func(a, b live.Rule) int { return cmp.Compare(a.Name, b.Name) },
		sources:  func(a, b live.Source) int { return cmp.Compare(a.Client, b.Client) },
	},
}

// service is a service with all that is known of it.
type service struct {
	live    live.Service
	status  api.ServiceStatus
	classes []class
}

type class struct {
	live   live.Class
	status api.RoomClassStatus
}

func (s service) waiting() int {
	if s.status.RoomStatus == nil {
		return 0
	}
	return s.status.Waiting
}

// wait is the longest p99 of a class.
func (s service) wait() (longest float64) {
	for _, c := range s.classes {
		longest = max(longest, c.live.Wait.P99)
	}
	return longest
}

// services returns those that the filter lets through, in order. Where a class has the text
// and its service has not, the service has only such classes.
func (m *Model) services() []service {
	v := m.shown.view
	var list []service
	for i, s := range v.Services {
		status := v.Status.Services[i]
		one := service{live: s, status: status}
		whole := m.has(s.Name)
		for j, c := range s.Classes {
			if whole || m.has(c.Name) {
				one.classes = append(one.classes, class{c, status.Classes[j]})
			}
		}
		if whole || len(one.classes) > 0 {
			sorted(one.classes, orders[m.sort].classes, m.reverse)
			list = append(list, one)
		}
	}
	sorted(list, orders[m.sort].services, m.reverse)
	return list
}

func (m *Model) rules() []live.Rule {
	list := slices.DeleteFunc(slices.Clone(m.shown.view.Rules), func(r live.Rule) bool {
		return !m.has(r.Name, r.Kind, m.status(r).Class)
	})
	sorted(list, orders[m.sort].rules, m.reverse)
	return list
}

func (m *Model) sources() []live.Source {
	list := slices.DeleteFunc(slices.Clone(m.shown.view.Sources), func(s live.Source) bool {
		return !m.has(s.Client, s.Rule, s.Reason)
	})
	sorted(list, orders[m.sort].sources, m.reverse)
	return list
}

// status returns the state of a rule, as far as the view has it.
func (m *Model) status(r live.Rule) api.RuleStatus {
	s := &m.shown.view.Status
	if r.Kind == "request" {
		for _, q := range s.Requests {
			if q.Name == r.Name {
				return q.RuleStatus
			}
		}
		return api.RuleStatus{}
	}
	for _, c := range s.Rules {
		if c.Name == r.Name {
			return c
		}
	}
	return api.RuleStatus{}
}

// has reports whether the filter is empty or in one of the texts.
func (m *Model) has(texts ...string) bool {
	wanted := strings.ToLower(strings.TrimSpace(m.filter))
	return slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(strings.ToLower(s), wanted) })
}

func sorted[T any](list []T, by func(a, b T) int, reverse bool) {
	if by != nil {
		slices.SortStableFunc(list, by)
	}
	if reverse {
		slices.Reverse(list)
	}
}
