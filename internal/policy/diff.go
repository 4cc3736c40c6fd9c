// SPDX-License-Identifier: Apache-2.0

package policy

import "fmt"

// Difference is what changes when one policy follows another.
type Difference struct {
	From    Edition  `json:"from"`
	To      Edition  `json:"to"`
	Changes []Change `json:"changes"` // in the order of the tables
	// Kept is how many rules of both keep the level of their buckets.
	Kept int `json:"kept_buckets"`
}

// Edition is a policy file as it was read.
type Edition struct {
	File string `json:"file"`
	Hash string `json:"hash"`
}

// Change is one thing that changes.
type Change struct {
	Table  string `json:"table"`            // services, pools, classes, connections or requests
	Name   string `json:"name,omitempty"`   // of the service, class or rule; empty: it is about several
	Kind   string `json:"kind"`             // added, removed, renamed, moved or changed
	Key    string `json:"key,omitempty"`    // of what is changed, as in a policy
	From   string `json:"from,omitempty"`   // the value before, or the old name
	To     string `json:"to,omitempty"`     // the value after it; of what is added, what it says
	Effect string `json:"effect,omitempty"` // what that means, in a sentence
}

// The tables and the kinds of changes.
const (
	inServices    = "services"
	inClasses     = "classes"
	inPools       = "pools"
	inConnections = "connections"
	inRequests    = "requests"

	added   = "added"
	removed = "removed"
	renamed = "renamed"
	moved   = "moved"
	changed = "changed"
)

// String says it in words.
func (c Change) String() string {
	s := c.Name
	switch c.Kind {
	case added:
		s = "+ " + c.Name + ": " + c.To
	case removed:
		s = "- " + c.Name
	case renamed:
		s = "~ " + c.From + " is now called " + c.Name
	case moved:
		s = "~ " + c.Name + " is moved"
	case changed:
		subject := c.Key
		if c.Name != "" {
			subject = c.Name + ": " + c.Key
		}
		s = fmt.Sprintf("~ %s: %s -> %s", subject, orNothing(c.From), orNothing(c.To))
	}
	if c.Effect != "" {
		s += "; " + c.Effect
	}
	return s
}

func orNothing(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// differ compares two policies.
type differ struct {
	from, to *Policy
	out      *Difference
	class    map[string]string // new names of classes that are renamed, by the old ones
	service  map[string]string
	left     int // pairs of rules that may be compared yet
}

// mostPairs bounds how many pairs of rules are looked at to say what a move means.
const mostPairs = 1 << 18

// Diff says what changes when a policy follows another, in what it means: not in comments, and
// not in what is spelled in another way.
func Diff(from, to *Policy) *Difference {
	d := &differ{
		from: from, to: to, class: map[string]string{}, service: map[string]string{}, left: mostPairs,
		out: &Difference{From: Edition{from.File, from.Hash}, To: Edition{to.File, to.Hash}, Changes: []Change{}},
	}
	d.services()
	d.pools()
	d.classes()
	d.connections()
	d.requests()
	return d.out
}

func (d *differ) add(c Change) { d.out.Changes = append(d.out.Changes, c) }

// attribute is a key of a service, class or rule with its value in words.
type attribute struct{ key, value string }

// item is what has a name in a table of a policy.
type item struct {
	name       string
	attributes []attribute
	words      string // what it is, when it is new
}

// match pairs items of two lists: by name, or because one says what another has said that is gone.
// Of each new one it returns the index of the old one, or -1, and which old ones are gone.
func match(old, next []item) (was []int, gone []int) {
	byName := map[string]int{}
	for i := range old {
		byName[old[i].name] = i
	}
	kept := make([]bool, len(old))
	was = make([]int, len(next))
	for i := range next {
		at, ok := byName[next[i].name]
		if was[i] = -1; ok {
			was[i], kept[at] = at, true
		}
	}
	free := map[string][]int{} // what is gone, by what it said
	for i := range old {
		if !kept[i] {
			text := fmt.Sprintf("%q", old[i].attributes)
			free[text] = append(free[text], i)
		}
	}
	for i := range next {
		text := fmt.Sprintf("%q", next[i].attributes)
		if list := free[text]; was[i] < 0 && len(list) > 0 {
			was[i], kept[list[0]], free[text] = list[0], true, list[1:]
		}
	}
	for i := range old {
		if !kept[i] {
			gone = append(gone, i)
		}
	}
	return was, gone
}

// meanings say what changes to a table of a policy mean to those who are there already.
type meanings struct {
	renamed func(from, to string) string
	removed string
	changed func(was []int, i int, key string) string // of the new item i, which was was[i]
}

// named compares a table of which each item has a name. It returns which each new one was, or -1.
func (d *differ) named(table string, old, next []item, m *meanings) (was []int) {
	was, gone := match(old, next)
	for i := range next {
		switch at := was[i]; {
		case at < 0:
			d.add(Change{Table: table, Name: next[i].name, Kind: added, To: next[i].words})
		case old[at].name != next[i].name:
			d.add(Change{Table: table, Name: next[i].name, Kind: renamed, From: old[at].name, Effect: m.renamed(old[at].name, next[i].name)})
		default:
			d.attributes(table, &old[at], &next[i], func(key string) string { return m.changed(was, i, key) })
		}
	}
	for _, i := range gone {
		d.add(Change{Table: table, Name: old[i].name, Kind: removed, Effect: m.removed})
	}
	return was
}

// attributes compares what two of one name say. effect says what a change means.
func (d *differ) attributes(table string, old, next *item, effect func(key string) string) {
	values := map[string]string{}
	for _, p := range old.attributes {
		values[p.key] = p.value
	}
	compare := func(key, from, to string) {
		if from != to {
			d.add(Change{Table: table, Name: next.name, Kind: changed, Key: key, From: from, To: to, Effect: effect(key)})
		}
	}
	for _, p := range next.attributes {
		compare(p.key, values[p.key], p.value)
		delete(values, p.key)
	}
	for _, p := range old.attributes {
		if value, left := values[p.key]; left {
			compare(p.key, value, "")
		}
	}
}
