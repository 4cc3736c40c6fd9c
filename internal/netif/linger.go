// SPDX-License-Identifier: Apache-2.0

package netif

import (
	"slices"
	"time"
)

// lingerFor is how long an address that is gone still counts as the machine's own. A link that goes down
// takes its IPv6 addresses with it, and brings them back before anybody can be told.
const lingerFor = 5 * time.Second

// Linger keeps addresses in snapshots for a while that are not there any more, and the links that had them. What
// is sent to an address that is really gone does not reach this machine, or is forwarded by it. The zero
// value is ready to use.
type Linger struct {
	last  Snapshot          // with what was kept
	until map[any]time.Time // by netip.Prefix and by the index of a link: what is kept
}

// Add returns the snapshot with what is kept beside it.
func (l *Linger) Add(s Snapshot, now time.Time) Snapshot {
	before := l.last
	l.last = Snapshot{Links: slices.Clone(s.Links), Locals: slices.Clone(s.Locals)}
	for _, p := range before.Locals {
		if l.keeps(p, slices.Contains(s.Locals, p), now) {
			l.last.Locals = append(l.last.Locals, p)
		}
	}
	slices.SortFunc(l.last.Locals, comparePrefix)
	for _, o := range before.Links {
		i := slices.IndexFunc(s.Links, func(link Link) bool { return link.Index == o.Index })
		if o.HasAddress && l.keeps(o.Index, i < 0 || s.Links[i].HasAddress, now) {
			l.last.Links[i].HasAddress = true
		}
	}
	return l.last
}

// Pending reports whether something is kept, so that the same snapshot says something else later.
func (l *Linger) Pending() bool { return len(l.until) > 0 }

// keeps reports whether something is kept that was in the snapshot before.
func (l *Linger) keeps(what any, isThere bool, now time.Time) bool {
	until, ok := l.until[what]
	switch {
	case !isThere && !ok:
		if l.until == nil {
			l.until = map[any]time.Time{}
		}
		l.until[what] = now.Add(lingerFor)
		return true
	case !isThere && now.Before(until):
		return true
	}
	delete(l.until, what)
	return false
}
