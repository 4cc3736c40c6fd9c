// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// parseWhen reads when a rule is enforced.
func parseWhen(s string) (When, error) {
	word, err := parseWord(whens...)(s)
	if word == WhenOverload.String() {
		return WhenOverload, err
	}
	return WhenAlways, err
}

// whenFits reports a rule with nothing to enforce that says when to enforce it.
func (d *decoder) whenFits(seen map[string]*yaml.Node, when When, act string) {
	switch {
	case when == WhenAlways:
	case act == "pass":
		d.errorAt(seen["when"], `"action: pass" is not enforced on anybody, so "when: overload" has no effect; remove one of the two`)
	case seen["action"] == nil && seen["rate"] == nil && seen["class"] != nil:
		d.errorAt(seen["when"], `"when: overload" has no effect where nothing is limited: a class is given at all times; add a rate, as "rate: 100/s", or an action, or remove it`)
	}
}

// warnNeverOverloaded warns of rules that ask for overload where there can be none.
func (d *decoder) warnNeverOverloaded(p *Policy) {
	limited := func(i int) bool { return p.Services[i].Concurrency.Mode != ConcurrencyUnlimited }
	all := make([]int, len(p.Services))
	for i := range all {
		all[i] = i
	}
	warn := func(at Pos, kind, name string) {
		d.warnf(at, `%s rule %q is never enforced: no service that it is for has a limit, so that none is ever overloaded; give one "concurrency: auto" or a number`, kind, name)
	}
	for _, c := range p.Connections {
		to := c.To
		if len(to) == 0 {
			to = all
		}
		if c.When == WhenOverload && !slices.ContainsFunc(to, limited) {
			warn(c.Pos, "connection", c.Name)
		}
	}
	for _, q := range p.Requests {
		seenIn := slices.DeleteFunc(slices.Clone(all), func(i int) bool { return !q.seenIn(p.Services[i].Protocol) })
		if q.When == WhenOverload && len(seenIn) > 0 && !slices.ContainsFunc(seenIn, limited) {
			warn(q.Pos, "request", q.Name)
		}
	}
}
