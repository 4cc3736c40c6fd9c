// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/binary"
	"slices"
)

// maxGraphWork bounds the steps in which the graph is built.
const maxGraphWork = 4 << 20

// cursor is a rule and how many of its asks are met.
type cursor struct{ path, met int32 }

// graph is the decision graph under construction. A node is a set of cursors, so that
// nodes at which the same is left to ask are one: the lists of a rule are not multiplied.
type graph struct {
	c    *requestCompiler
	node map[string]uint32 // by cursors
	work int
}

// buildGraph makes the graph of the rules with several fields, or with none.
func (c *requestCompiler) buildGraph() {
	g := &graph{c: c, node: map[string]uint32{}}
	all := make([]cursor, len(c.paths))
	for i := range all {
		all[i].path = int32(i)
	}
	c.tables.Graph = len(all) > 0
	g.build(all)
}

// build makes the node of a set of cursors and all that follows from it.
func (g *graph) build(set []cursor) uint32 {
	t := g.c.tables
	set, rule, first := g.open(set)
	key := nodeKey(set, rule)
	if n, ok := g.node[key]; ok {
		return n
	}
	n := uint32(len(t.Nodes))
	t.Nodes = append(t.Nodes, MatchNode{Rule: rule, First: first})
	g.node[key] = n
	order, next := g.fork(n, set)
	for _, s := range order {
		if g.work > maxGraphWork || len(g.c.pending) > maxEntries/2 {
			g.c.blameGraph()
			return n
		}
		to := g.build(next[s])
		g.c.pending = append(g.c.pending, pendingEntry{kind: MatchEdge, a: n, b: s.number, rule: NoMatch, to: to})
		if len(g.c.report.errors) > 0 {
			return n
		}
	}
	return n
}

// open returns the cursors that still ask, the first rule that does not, and the first rule
// of all. Rules after one that has all it asks for can win no more. Cursors are in the order of
// their rules.
func (g *graph) open(set []cursor) (left []cursor, rule, first uint32) {
	if len(set) == 0 {
		return nil, NoMatch, NoMatch
	}
	first = uint32(g.c.paths[set[0].path].rule)
	done := slices.IndexFunc(set, func(at cursor) bool { return int(at.met) == len(g.c.paths[at.path].asks) })
	if done < 0 {
		return set, NoMatch, first
	}
	return set[:done], uint32(g.c.paths[set[done].path].rule), first
}

// nodeKey returns what tells a node from others.
func nodeKey(set []cursor, rule uint32) string {
	key := make([]byte, 0, 8*len(set)+4)
	for _, at := range set {
		key = binary.NativeEndian.AppendUint32(key, uint32(at.path))
		key = binary.NativeEndian.AppendUint32(key, uint32(at.met))
	}
	return string(binary.NativeEndian.AppendUint32(key, rule))
}

// fork returns the edges of a node and the cursors behind each of them.
func (g *graph) fork(n uint32, set []cursor) (order []*spot, next map[*spot][]cursor) {
	next = map[*spot][]cursor{}
	for _, at := range set {
		ask := &g.c.paths[at.path].asks[at.met]
		g.work += len(ask.spots)
		for _, s := range ask.spots {
			g.c.tables.Nodes[n].Fields[s.field/64] |= 1 << (s.field % 64)
			if next[s] == nil {
				order = append(order, s)
			}
			next[s] = append(next[s], cursor{at.path, at.met + 1})
		}
	}
	return slices.Clip(order), next
}
