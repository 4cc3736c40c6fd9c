// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"narthex/internal/policy"
)

// mixedRequests writes a policy with request rules of all forms.
func mixedRequests(rules int) string {
	var b strings.Builder
	b.WriteString("version: 1\nservices: [{name: web, listen: \"*:80\"}]\nclasses: [{name: gold, priority: 1}, {name: bronze, priority: 2}]\nrequests:\n")
	for i := range rules {
		fmt.Fprintf(&b, "  - {name: exact%d, path: /exact/%d.html, rate: 10/s, burst: 3, over: demote, class: gold}\n", i, i)
		fmt.Fprintf(&b, "  - {name: prefix%d, path: \"/%s/%d/*\", action: drop, block: 3s}\n", i, strings.Repeat("x", 1+i%40), i)
		fmt.Fprintf(&b, "  - {name: suffix%d, path: \"*/%d%s.php\", class: gold, learn: 10m}\n", i, i, strings.Repeat("y", i%9))
		fmt.Fprintf(&b, "  - {name: both%d, path: \"/a%d/*.x%d\", host: [a%d.example, \"*.b%d.example\"], rate: 1/m, per: source, over: drop}\n", i, i, i, i, i)
		if i < 8 {
			fmt.Fprintf(&b, "  - {name: words%d, path: \"/w%d*one*two*%d\", action: pass}\n", i, i, i)
		}
	}
	for i := range 20 {
		fmt.Fprintf(&b, "  - {name: named%d, cookie: {c%d: x}, header: {h%d: \"*\"}, class: bronze}\n", i, i, i)
	}
	return b.String()
}

// requestTables compiles a policy and gives its rules slots.
func requestTables(t *testing.T, text string) (*policy.Tables, *slots) {
	t.Helper()
	p, _, err := policy.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	tables, _, err := policy.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	s := &slots{byRule: map[ruleKey]uint32{}, byName: map[string]uint32{}, byClass: map[string]uint32{}}
	for i, o := range ruleOwners(tables) {
		slot := o.form()
		slot.Name, slot.Id = nameBytes(o.name), uint64(i)*3
		s.rules = append(s.rules, slot)
		s.byRule[o.ruleKey] = uint32(i)
	}
	for i := range tables.Services {
		s.services = append(s.services, tables.Services[i].Name)
		s.byName[tables.Services[i].Name] = uint32(i)
	}
	for i, c := range tables.Classes {
		s.byClass[c.Name] = uint32(i)
	}
	return tables, s
}

// at reads the i-th of values that follow one another from a cell on, as the programs do:
// within the page of the cell that it is in.
func at[T any](im *image, cell, i uint32) (v T) {
	perCell := max(1, uint32(cellSize/unsafe.Sizeof(v)))
	cell += i / perCell
	page := &im.pages[cell/uint32(pageCells)]
	offset := cell%uint32(pageCells)*cellSize + i%perCell*uint32(unsafe.Sizeof(v))
	return *(*T)(unsafe.Add(unsafe.Pointer(page), offset))
}

// readMatch reads tables back from an image.
func readMatch(im *image, m narthexMatch, like *policy.RequestTables) *policy.RequestTables {
	t := &policy.RequestTables{
		Seed: m.Seed, Width: int(m.Width), Letters: m.Letters,
		Headers: m.Headers == 1, Cookies: m.Cookies == 1, Graph: m.Graph == 1,
		Query: m.Query == 1, Parameters: int(m.Parameters), Pairs: int(m.Pairs),
	}
	for i := range (m.Mask + 1) * uint32(entriesPerCell) {
		e := at[narthexMatchEntry](im, m.Entries, i)
		t.Entries = append(t.Entries, policy.MatchEntry{Key: e.Key, Rule: e.Rule, To: e.To})
	}
	for i := range like.Patterns {
		p := at[narthexPattern](im, m.Patterns, uint32(i))
		t.Patterns = append(t.Patterns, policy.MatchPattern{Up: p.Up, Length: p.Length, Flags: p.Flags})
	}
	for i := range like.Nodes {
		n := at[narthexMatchNode](im, m.Nodes, uint32(i))
		t.Nodes = append(t.Nodes, policy.MatchNode{Fields: n.Fields, Rule: n.Rule, First: n.First})
	}
	for i := range t.Classes {
		t.Classes[i] = at[uint8](im, m.Classes, uint32(i))
	}
	for i := range like.States {
		t.States = append(t.States, at[uint32](im, m.States, uint32(i)))
	}
	return t
}

// Every number that the programs know of what comes over a rate has a word in policies.
func TestOvers(t *testing.T) {
	if len(overs) != int(narthexOverOVER_LEN) {
		t.Errorf("%v: not all of %d", overs, narthexOverOVER_LEN)
	}
}

// The image holds request tables as the programs read them.
func TestMatchImage(t *testing.T) {
	tables, s := requestTables(t, mixedRequests(2000))
	want := *tables.Requests
	listens, err := policy.CompileListens(tables.Services, nil)
	if err != nil {
		t.Fatal(err)
	}
	im := buildImage(tables, nil, listens, s, make([]uint32, len(tables.Services)), 1, 0, 0)
	l := newLayout(tables, listens, s, make([]uint32, len(tables.Services)), 0)
	h := at[narthexHeader](im, cellHeader, 0)
	if h.Match != uint32(l.match.cell) || h.Blocks != 1 {
		t.Errorf("header %+v, want tables at cell %d, and blocks", h, l.match.cell)
	}
	m := at[narthexMatch](im, h.Match, 0)
	if m.Entries%uint32(pageCells)+m.Mask >= uint32(pageCells) || m.Classes%uint32(classCells) != 0 {
		t.Errorf("hash table of %d cells from cell %d, classes from cell %d: across two pages", m.Mask+1, m.Entries, m.Classes)
	}
	got := readMatch(im, m, &want)
	for i, f := range want.Fields {
		checkField(t, im, at[narthexMatchField](im, m.Fields, uint32(i)), f, want.Lengths)
	}
	got.Fields, got.Lengths, got.Rules, got.Fair = want.Fields, want.Lengths, want.Rules, want.Fair
	if !reflect.DeepEqual(*got, want) {
		t.Error("tables in the image differ")
	}
	if m.Letters != 1<<('h'&31) {
		t.Errorf("letters %#x, want that of h", m.Letters)
	}
	if int(m.RuleCount) != len(want.Rules) || m.Asks != 1<<policy.FieldHost|1<<policy.FieldPath {
		t.Errorf("%d rules, fields %#x; want %d, host and path", m.RuleCount, m.Asks, len(want.Rules))
	}
	for i := range want.Rules {
		checkRequestRule(t, at[narthexRule](im, m.Rules, uint32(i)), at[narthexRequestGuard](im, m.Rules+uint32(i), 0), &want.Rules[i], s)
	}
}

func checkField(t *testing.T, im *image, got narthexMatchField, want policy.MatchField, lengths []uint16) {
	t.Helper()
	if got.Rule != want.Rule || got.Pattern != want.Pattern || got.LongestSuffix != want.LongestSuffix ||
		(got.Exact == 1) != want.Exact || (got.Words == 1) != want.Words ||
		got.PrefixCount != want.PrefixCount || got.SuffixCount != want.SuffixCount {
		t.Errorf("field %+v, want %+v", got, want)
	}
	for i := range uint32(want.PrefixCount) {
		if n := at[uint16](im, got.Prefixes, i); n != lengths[want.Prefixes+i] {
			t.Errorf("prefix length %d is %d", i, n)
		}
	}
	for i := range uint32(want.SuffixCount) {
		if n := at[uint16](im, got.Suffixes, i); n != lengths[want.Suffixes+i] {
			t.Errorf("suffix length %d is %d", i, n)
		}
	}
}

func checkRequestRule(t *testing.T, got narthexRule, guard narthexRequestGuard, want *policy.RequestRule, s *slots) {
	t.Helper()
	slot := s.byRule[requestKey(want)]
	if got.Slot != slot || got.Action != uint8(want.Action) {
		t.Errorf("rule %s: %+v, want slot %d", want.Name, got, slot)
	}
	if class := int(int8(got.Class)); class != want.Class {
		t.Errorf("rule %s has class %d, want %d", want.Name, class, want.Class)
	}
	if got.Interval != uint64(want.Interval) || got.Interval > 0 && got.Tolerance != uint64(want.Interval)*uint64(want.Burst-1) ||
		want.Action == policy.ActionPolice && (got.PerSource == 1) != (want.Per != policy.PerRule) {
		t.Errorf("rule %s has the bucket %+v, want %+v", want.Name, got, want)
	}
	over := map[policy.Over]uint8{policy.OverReject: 0, policy.OverDrop: 1, policy.OverDemote: 2}[want.Over]
	if time.Duration(guard.Block) != want.Block || time.Duration(guard.Learn) != want.Learn || guard.Over != over {
		t.Errorf("rule %s: %+v, want %+v", want.Name, guard, want)
	}
}
