// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"
)

// meet reports whether one of a and one of b meet; an empty list is everything.
func meet[T any](a, b []T, both func(T, T) bool) bool {
	if len(a) == 0 || len(b) == 0 {
		return true
	}
	return slices.ContainsFunc(a, func(x T) bool {
		return slices.ContainsFunc(b, func(y T) bool { return both(x, y) })
	})
}

func equal[T comparable](x, y T) bool { return x == y }

// overlaps reports whether a SYN may match both rules.
func (c *Connection) overlaps(o *Connection) bool {
	return meet(c.To, o.To, equal) && meet(c.Learned, o.Learned, equal) &&
		(len(c.FromLists)+len(o.FromLists) > 0 || meet(c.From, o.From, Range.overlaps)) &&
		meet(c.FromPort, o.FromPort, func(x, y PortRange) bool { return x.First <= y.Last && y.First <= x.Last })
}

// overlap reports whether a request may match both rules, as far as that is seen by what it has
// but one of: a request may have many headers and cookies of one name.
func (p *Policy) overlap(q, o *Request) bool {
	for field := range textFields {
		if !textFields[field].many && !meet(q.texts(field), o.texts(field), globsMeet) {
			return false
		}
	}
	return (len(q.FromLists)+len(o.FromLists) > 0 || meet(q.From, o.From, Range.overlaps)) && meet(p.to(q), p.to(o), Destination.overlaps)
}

// mostGlob bounds the patterns that are compared, in bytes of both multiplied.
const mostGlob = 1 << 16

// globsMeet reports whether a text matches two patterns. Of long ones it takes it that one does.
func globsMeet(p, q string) bool {
	if !strings.ContainsAny(p, "*[") {
		return globMatches(q, p)
	}
	if !strings.ContainsAny(q, "*[") {
		return globMatches(p, q)
	}
	if len(p)*len(q) > mostGlob {
		return true
	}
	a, err := elements(p)
	b, wrong := elements(q)
	return err == nil && wrong == nil && elementsMeet(a, b)
}

// elementsMeet reports whether a text matches both.
func elementsMeet(p, q []element) bool {
	// reach[j]: what is left of p from i on and of q from j on have a text in common.
	reach, next := make([]bool, len(q)+1), make([]bool, len(q)+1)
	for i := len(p); i >= 0; i-- {
		for j := len(q); j >= 0; j-- {
			switch {
			case i == len(p) && j == len(q):
				next[j] = true
			case i < len(p) && p[i].star:
				next[j] = reach[j] || j < len(q) && next[j+1]
			case j < len(q) && q[j].star:
				next[j] = next[j+1] || i < len(p) && reach[j]
			default:
				next[j] = i < len(p) && j < len(q) && p[i].meets(&q[j]) && reach[j+1]
			}
		}
		reach, next = next, reach
	}
	return reach[0]
}

// meets reports whether there is a byte of both.
func (e *element) meets(o *element) bool {
	for i := range len(e.set) {
		if strings.IndexByte(o.set, e.set[i]) >= 0 {
			return true
		}
	}
	return false
}
