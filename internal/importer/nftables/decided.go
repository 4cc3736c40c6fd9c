// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"slices"

	"narthex/internal/importer/draft"
)

// decision is a rule that asks for no client and no rate: what it matches meets no rule
// after it, up to the end of its chain or of all.
type decision struct {
	*rule
	until int // the first rule that is asked again, by its index
}

// decides reports whether a rule ends the search for new connections to its ports, or for
// those at an interface or an address of the server.
func (r *rule) decides() bool {
	return slices.Contains([]string{"accept", "drop", "return"}, r.verdict) && r.from == nil && r.limit == nil && r.unknown == "" && !r.old
}

// scoped notes up to where each return among rules of one chain ends the search.
func scoped(list []*rule) []*rule {
	for i, r := range list {
		if r.verdict == "return" && r.rest < 0 {
			r.rest = len(list) - i - 1
		}
	}
	return list
}

// decided returns a decision, whose rule is at an index of so many.
func decided(r *rule, at, of int) decision {
	if r.verdict == "return" {
		of = at + 1 + r.rest
	}
	return decision{r, of}
}

// undecided returns what of a rule is left by those above it, and lists what is not. It
// reports whether anything is left.
func (t *translator) undecided(r *rule, above []decision) (*rule, bool) {
	left := *r
	for _, d := range above {
		same := d.family == 0 || d.family == left.family
		switch {
		case d.family != 0 && left.family != 0 && d.family != left.family, !touch(left.ports, d.ports):
		case d.iif != "" && r.iif != "" && d.iif != r.iif:
		case d.iif != r.iif && d.iif != "", d.daddr != nil && !slices.Equal(d.daddr, r.daddr):
			if d.verdict != "drop" {
				t.leave(r, fmt.Sprintf("%q above it lets connections by for which it holds here", d.text))
			}
		case same && len(d.ports) == 0, same && len(left.ports) > 0 && len(subtract(left.ports, d.ports)) == 0:
			t.leave(r, fmt.Sprintf("%q above it decides first", d.text))
			return nil, false
		case same && len(left.ports) == 0:
			t.leave(r, fmt.Sprintf("%q above it decides first about its ports; it holds at the policy's other services", d.text))
			left.beside = slices.Concat(left.beside, d.ports)
		case same:
			t.leave(r, fmt.Sprintf("%q above it decides first about some of its ports; it is carried over for the others", d.text))
			left.ports = subtract(left.ports, d.ports)
		case len(d.ports) == 0, len(left.ports) > 0 && len(subtract(left.ports, d.ports)) == 0:
			t.leave(r, fmt.Sprintf("%q above it decides first about IPv%d; it is carried over for the other", d.text, d.family))
			left.family = 10 - d.family
		default:
			t.leave(r, fmt.Sprintf("%q above it decides first about some ports of IPv%d", d.text, d.family))
			return nil, false
		}
	}
	return &left, true
}

// touch reports whether two lists of ports have one in common. An empty one stands for all.
func touch(a, b []portRange) bool {
	return len(a) == 0 || len(b) == 0 || !slices.Equal(subtract(a, b), a)
}

// subtract returns the ports that are not among others.
func subtract(ports, others []portRange) []portRange {
	for _, o := range others {
		var left []portRange
		for _, p := range ports {
			if o.last < p.first || p.last < o.first {
				left = append(left, p)
				continue
			}
			if p.first < o.first {
				left = append(left, portRange{p.first, o.first - 1})
			}
			if o.last < p.last {
				left = append(left, portRange{o.last + 1, p.last})
			}
		}
		ports = left
	}
	return ports
}

// narrow takes the ports that rules above decide about from the rules for all ports, when
// all services are known.
func (t *translator) narrow() {
	t.draft.Connections = slices.DeleteFunc(t.draft.Connections, func(r *draft.Rule) bool {
		if len(t.beside[r]) == 0 {
			return false
		}
		var to []string
		for _, s := range t.draft.Services {
			if p := t.ports[s.Listen[0]]; len(subtract([]portRange{{p, p}}, t.beside[r])) > 0 {
				to = append(to, s.Name)
			}
		}
		if len(to) < len(t.draft.Services) {
			r.To = to
		}
		return len(to) == 0 && len(t.draft.Services) > 0
	})
}
