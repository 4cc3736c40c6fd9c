// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"strings"
)

// blame says which rules make the tables too large and what to change.
func (c *compiler) blame(d *diagnostics, err error) {
	var trusted *trustedError
	if errors.As(err, &trusted) {
		c.blameTrusted(d, trusted)
		return
	}
	var ported []string
	var first Pos
	for _, r := range c.policy.Connections {
		if len(r.FromPort) == 0 {
			continue
		}
		if len(ported) == 0 {
			first = r.Pos
		}
		ported = append(ported, r.Name)
	}
	widest := c.policy.Connections[c.wide]
	switch {
	case !errors.Is(err, errManyPrefixes) && c.portNodes() > len(c.forest.nodes)/2:
		d.errorf(first, `the tables would be too large: %s "from_port" (%s) and cover prefixes of other rules, so that each prefix needs a list of ports of its own; put the rules with "from_port" after the others, give them a narrower "from", or name fewer ports`,
			plural(len(ported), "rule names", "rules name"), someNames(ported))
	case !errors.Is(err, errManyPrefixes) && c.learnedRoots() > 0:
		d.errorf(widest.Pos, `the tables would be too large: rules with "learned" name %s, and each needs a table of its own; name fewer, or put these rules before those with many addresses, such as %q`,
			plural(c.learnedRoots(), "class", "classes"), widest.Name)
	case !errors.Is(err, errManyPrefixes) && len(c.groups) > 1:
		d.errorf(widest.Pos, `the tables would be too large: services have %d different lists of rules; leave "to" out of rules with many addresses, such as %q, or let more services share their rules`,
			len(c.groups), widest.Name)
	default:
		d.errorf(widest.Pos, "the tables would be too large: rule %q has the most addresses; write prefixes instead of ranges, or merge neighbouring prefixes", widest.Name)
	}
}

// learnedRoots counts the classes that rules with "learned" name.
func (c *compiler) learnedRoots() int {
	named := map[int]bool{}
	for _, r := range c.policy.Connections {
		for _, class := range r.Learned {
			named[class] = true
		}
	}
	return len(named)
}

// portNodes counts the nodes that test a port.
func (c *compiler) portNodes() int {
	n := 0
	for i := range c.forest.nodes {
		if c.forest.nodes[i].Word == portWord {
			n++
		}
	}
	return n
}

// plural returns "1 rule names" or "3 rules name".
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// someNames lists the first three names and says how many there are beyond.
func someNames(names []string) string {
	const most = 3
	if len(names) <= most {
		return listing(names, "and")
	}
	q := make([]string, most)
	for i := range q {
		q[i] = quote(names[i])
	}
	return strings.Join(q, ", ") + fmt.Sprintf(" and %d more", len(names)-most)
}
