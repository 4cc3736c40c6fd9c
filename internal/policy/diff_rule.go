// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"
)

func (d *differ) connections() {
	old, next := d.connectionItems(d.from), d.connectionItems(d.to)
	d.rules(inConnections, old, next, func(was, now int) (Rating, Rating) {
		return d.from.Connections[was].rating(), d.to.Connections[now].rating()
	}, func(i, j int) bool { return d.to.Connections[i].overlaps(&d.to.Connections[j]) })
}

func (d *differ) requests() {
	old, next := d.requestItems(d.from), d.requestItems(d.to)
	d.rules(inRequests, old, next, func(was, now int) (Rating, Rating) {
		return d.from.Requests[was].rating(), d.to.Requests[now].rating()
	}, func(i, j int) bool { return d.to.overlap(&d.to.Requests[i], &d.to.Requests[j]) })
}

// rules compares the rules of one table. meet says whether anything may match two rules.
func (d *differ) rules(table string, old, next []item, ratings func(was, now int) (Rating, Rating), meet func(i, j int) bool) {
	was, gone := match(old, next)
	still := inOrder(was)
	for i := range next {
		at := was[i]
		if at < 0 {
			d.add(Change{Table: table, Name: next[i].name, Kind: added, To: next[i].words, Effect: place(next, i)})
			continue
		}
		before, now := ratings(at, i)
		if old[at].name != next[i].name {
			d.add(Change{Table: table, Name: next[i].name, Kind: renamed, From: old[at].name, Effect: renameEffect(now)})
		} else {
			d.attributes(table, &old[at], &next[i], bucketEffect(before, now))
			if now.rated() && before == now {
				d.out.Kept++
			}
		}
		if !still[i] {
			d.add(Change{Table: table, Name: next[i].name, Kind: moved, Effect: d.moveEffect(table, next, was, i, meet)})
		}
	}
	for _, i := range gone {
		d.add(Change{Table: table, Name: old[i].name, Kind: removed})
	}
}

// place says where in its table a rule is.
func place(rules []item, i int) string {
	switch {
	case len(rules) == 1:
		return ""
	case i == 0:
		return "before " + rules[1].name
	}
	return "after " + rules[i-1].name
}

// inOrder says which of the new rules are in the order in which they were, as many as can be (a
// longest increasing subsequence); the others are moved.
func inOrder(was []int) []bool {
	ends := []int{} // by length, the new rule that such a sequence may end with
	before := make([]int, len(was))
	for i, at := range was {
		if before[i] = -1; at < 0 {
			continue
		}
		n, _ := slices.BinarySearchFunc(ends, at, func(e, at int) int { return was[e] - at })
		if n > 0 {
			before[i] = ends[n-1]
		}
		if n == len(ends) {
			ends = append(ends, i)
		} else {
			ends[n] = i
		}
	}
	still := make([]bool, len(was))
	if len(ends) > 0 {
		for i := ends[len(ends)-1]; i >= 0; i = before[i] {
			still[i] = true
		}
	}
	return still
}

// moveEffect says which rules come after a moved one now that came before it, and the other way
// around, as far as that makes a difference.
func (d *differ) moveEffect(table string, next []item, was []int, rule int, meet func(i, j int) bool) string {
	what := map[string]string{inConnections: "SYN", inRequests: "request"}[table]
	var before, after []string
	for j := range was {
		crossed := was[j] >= 0 && j != rule && (was[j] < was[rule]) != (j < rule)
		if !crossed {
			continue
		}
		if d.left--; d.left < 0 {
			return ""
		}
		switch {
		case !meet(rule, j):
		case j > rule:
			before = append(before, next[j].name)
		default:
			after = append(after, next[j].name)
		}
	}
	var parts []string
	if len(before) > 0 {
		parts = append(parts, "it decides before "+inWords(before, "and")+" now")
	}
	if len(after) > 0 {
		parts = append(parts, inWords(after, "and")+" may decide before it now")
	}
	if len(parts) == 0 {
		return fmt.Sprintf("that changes nothing: no %s matches it and a rule that it has passed", what)
	}
	return strings.Join(parts, ", ")
}

// Rating is what a rule says of its buckets.
type Rating struct {
	Rate  Limit
	Burst int
	Per   Per
}

func (r Rating) rated() bool { return r.Rate.IsSet() }

func (c *Connection) rating() Rating { return ratingOf(c.Action, c.Rate, c.Burst, c.Per) }

func (q *Request) rating() Rating { return ratingOf(q.Action, q.Rate, q.Burst, q.Per) }

func ratingOf(action Action, rate Limit, burst int, per Per) Rating {
	if action != ActionPolice {
		return Rating{}
	}
	return Rating{rate, burst, per}
}

// Level says what becomes of the level of a rule's buckets under another rating, in a sentence;
// nothing if it has none.
func (r Rating) Level(next Rating) string {
	switch {
	case !next.rated():
		return ""
	case r.Rate.Auto.On && next.Rate.Auto.On:
		return "its rate goes on from where it is"
	case r.Rate.Auto.On || next.Rate.Auto.On:
		return "its bucket starts full"
	case !r.rated(), (r.Per == PerRule) != (next.Per == PerRule), r.Per != next.Per:
		return "its buckets start full"
	case r.Per == PerRule:
		return "its bucket keeps its tokens, as many as fit"
	}
	return r.Per.levels(r.Rate.Rate, next.Rate.Rate)
}

// bucketEffect says what a change of a rate means, once for the keys that belong together.
func bucketEffect(before, now Rating) func(key string) string {
	said := false
	return func(key string) string {
		if said || !slices.Contains([]string{"rate", "burst", "per", "action"}, key) {
			return ""
		}
		level := before.Level(now)
		said = level != ""
		return level
	}
}

func renameEffect(now Rating) string {
	if now.rated() {
		return "its counters begin anew, its buckets start full"
	}
	return "its counters begin anew"
}

// levels says what becomes of the level of buckets that are not the rule's, under another rate.
func (p Per) levels(old, next Rate) string {
	whose := "sources"
	if p.Key.Kind != "" {
		whose = "values"
	}
	if next.Interval() < old.Interval() {
		return "the buckets of its " + whose + " start full"
	}
	return "the buckets of its " + whose + " keep their level"
}

// Levels says what becomes of the tokens of a rule under another rate.
func (p Per) Levels(old, next Rate) string {
	if p == PerRule {
		return "the rule's bucket keeps its tokens"
	}
	return p.levels(old, next)
}
