// SPDX-License-Identifier: Apache-2.0

package nftables

import "slices"

// hooks are where packets to this host are seen, in order.
var hooks = []string{"ingress", "prerouting", "input"}

// unreached lists limits in chains to which no plain jump leads: by a verdict map, or not at
// all. Those that only packets from this host or through it meet are of no interest.
func (t *translator) unreached() {
	for _, c := range t.set.chains {
		if c.hook != "" && !slices.Contains(hooks, c.hook) {
			t.reach(c)
		}
	}
	for _, c := range t.set.chains {
		if t.reached[c] || c.hook != "" {
			continue
		}
		for _, r := range c.rules {
			if r.bears() {
				t.leave(r, "its chain is not reached by a jump that is followed: by a verdict map, under a condition that is not carried over, or not at all")
			}
		}
	}
}

// hookOfType returns where a base chain of nft is asked. Those of type nat and route limit
// nobody.
func hookOfType(kind, hook string) string {
	if kind == "filter" {
		return hook
	}
	return kind + " " + hook
}

// bears reports whether a rule has a limit, or is about clients.
func (r *rule) bears() bool { return (r.limit != nil || r.from != nil) && !r.other && !r.old }

// reach marks a chain and those to which it jumps.
func (t *translator) reach(c *chain) {
	if c == nil || t.reached[c] {
		return
	}
	t.reached[c] = true
	for _, r := range c.rules {
		t.reach(t.set.byName[r.target])
	}
}

// unfollowed lists a jump under a condition that is not carried over, if it matters.
func (t *translator) unfollowed(r *rule) {
	to := t.set.byName[r.target]
	switch {
	case r.other:
		t.reach(to)
	case r.limit != nil || r.from != nil || r.instead != "", to != nil && slices.ContainsFunc(to.rules, (*rule).bears):
		t.leave(r, "a jump under a limit or another condition is not followed")
	}
}
