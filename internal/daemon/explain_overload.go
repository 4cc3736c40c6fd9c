// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"slices"

	"narthex/internal/api"
	"narthex/internal/policy"
)

// enforced says of a rule that is not always enforced whether it is now, nil if that is not
// known, and what it does: nothing but give its class while it is not enforced.
func (x Explainer) enforced(service int, when policy.When, action policy.Action) (word string, now *bool, does policy.Action) {
	if when == policy.WhenAlways {
		return "", nil, action
	}
	if x.Adaptation == nil {
		return when.String(), nil, action
	}
	a := x.Adaptation(x.Tables.Services[service].Name)
	now = new(bool)
	if a != nil {
		*now = when.At(levelOf(a))
	}
	if !*now {
		action = policy.ActionClassify
	}
	return when.String(), now, action
}

// levelOf reads how overloaded a service is.
func levelOf(a *api.AdaptationStatus) policy.When {
	for level := policy.WhenFlooded; level > policy.WhenAlways; level-- {
		if a.Level == level.String() {
			return level
		}
	}
	return policy.WhenAlways
}

// overloadNote says that it is not known whether rules are enforced that decided.
func (x Explainer) overloadNote(decisions []api.Decision) string {
	unknown := func(d api.Decision) bool {
		return d.When != "" && d.Enforced == nil || d.Request != nil && d.Request.When != "" && d.Request.Enforced == nil
	}
	if slices.ContainsFunc(decisions, unknown) {
		return "whether a service is overloaded is not known without a daemon: rules that ask for it are taken for enforced"
	}
	return ""
}

// dropsNow reports whether a connection rule drops, and is enforced.
func (x Explainer) dropsNow(service int, c *policy.Connection) bool {
	_, _, action := x.enforced(service, c.When, c.Action)
	return action == policy.ActionDrop
}
