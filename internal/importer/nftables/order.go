// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"slices"
	"strings"

	"narthex/internal/importer/draft"
)

// Firewalls ask on after a rate that is kept, and Narthex does not. A drop goes before rates
// beyond which is dropped, for all of them refuse. It stays behind a rate within which is
// accepted. With the rules that accept it is the other way round.
func (t *translator) dropFirst(rate *draft.Rule) bool   { return !t.within[rate] }
func (t *translator) acceptFirst(rate *draft.Rule) bool { return t.within[rate] }

// exception ends the search for those whom a rule excludes.
func (t *translator) exception(r *rule, to []string) *draft.Rule {
	return &draft.Rule{Origin: r.Origin, Name: t.draft.Name("connection", "except"), From: r.from, To: to, Class: t.draft.NeedClass(),
		Note: []string{"Those for whom the next rule does not hold."}}
}

// insert adds a rule, with its exception if it has one, before the rates at the end that it
// goes before. What decides before it, and should not, is listed.
func (t *translator) insert(r *rule, out, except *draft.Rule, before func(rate *draft.Rule) bool) {
	list := t.draft.Connections
	at := len(list)
	for at > 0 {
		rate := list[at-1]
		if of := t.excepts[rate]; of != nil {
			rate = of
		}
		if !rate.Limited() || !before(rate) {
			break
		}
		at--
	}
	for _, above := range t.ending {
		switch {
		case slices.Contains(list[at:], above), !meet(above, out):
		case above.Limited() && before(above):
			t.leave(r, "a rate above it decides first: rule "+above.Name)
		case t.excepts[above] != nil && (out.Limited() || out.Action != ""):
			t.leave(r, "it is not asked for those whom a rule above it excludes: rule "+above.Name)
		}
	}
	if out.Limited() {
		t.ending = append(t.ending, out)
	}
	if except == nil {
		t.draft.Connections = slices.Insert(list, at, out)
		return
	}
	t.excepts[except] = out
	t.ending = append(t.ending, except)
	if !out.Limited() && slices.ContainsFunc(list[at:], func(below *draft.Rule) bool { return meet(below, out) }) {
		t.leave(r, "those whom it excludes are in no rate any more")
	}
	t.draft.Connections = slices.Insert(list, at, except, out)
}

// meet reports whether two rules may be about the same connections. It errs on the side of
// yes.
func meet(a, b *draft.Rule) bool {
	if len(a.To) > 0 && len(b.To) > 0 && !slices.ContainsFunc(a.To, func(s string) bool { return slices.Contains(b.To, s) }) {
		return false
	}
	is := func(r *draft.Rule, v6 bool) bool {
		return len(r.From) == 0 || slices.ContainsFunc(r.From, func(s string) bool { return strings.Contains(s, ":") == v6 })
	}
	return is(a, true) && is(b, true) || is(a, false) && is(b, false)
}
