// SPDX-License-Identifier: Apache-2.0

package live

import (
	"cmp"
	"slices"
	"time"

	"narthex/internal/api"
)

const (
	// manyRules is how many of the connection rules, and of the request rules, a view has of a
	// large policy.
	manyRules = 200
	// lately is how long a rule that has matched goes before others.
	lately = time.Minute
)

// lastSeen is when rules matched, of those that did lately.
type lastSeen map[ruleKey]time.Time

// note finds the rules that matched between two moments.
func (l *lastSeen) note(now time.Time, this, last *moment) {
	if *l == nil {
		*l = lastSeen{}
	}
	for key, at := range *l {
		if now.Sub(at) > lately {
			delete(*l, key)
		}
	}
	for key, c := range this.rules {
		if was, known := last.rules[key]; known && c.Matched != was.Matched {
			(*l)[key] = now
		}
	}
}

// trim returns the rules of a status that a view has.
func (l lastSeen) trim(s api.Status) (rules []api.RuleStatus, requests []api.RequestRuleStatus) {
	rules = trimmed(l, s.Rules, connection, func(r *api.RuleStatus) *api.RuleStatus { return r })
	requests = trimmed(l, s.Requests, request, func(r *api.RequestRuleStatus) *api.RuleStatus { return &r.RuleStatus })
	return rules, requests
}

// trimmed keeps the order of those that it returns.
func trimmed[T any](l lastSeen, all []T, kind string, status func(*T) *api.RuleStatus) []T {
	if len(all) <= manyRules {
		return all
	}
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	recent := func(i int) int {
		if _, is := l[ruleKey{kind, status(&all[i]).Name}]; is {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(recent(b), recent(a)), cmp.Compare(status(&all[b]).Matched, status(&all[a]).Matched))
	})
	order = order[:manyRules]
	slices.Sort(order)
	kept := make([]T, manyRules)
	for i, at := range order {
		kept[i] = all[at]
	}
	return kept
}
