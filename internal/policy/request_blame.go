// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"slices"
)

const tooLarge = "the tables of the request rules would be too large: "

// blameChain says that too many prefixes, or suffixes, hold within one another.
func (c *requestCompiler) blameChain(field int, kind MatchKind, chain []*spot) {
	if field == c.tables.Parameters && field != 0 {
		c.report.errorf(c.policy.Requests[chain[len(chain)-1].by].Pos,
			"parameters: rules with further keys ask for more than %d different least numbers; use fewer", maxChain)
		return
	}
	how, text := "begin", func(s *spot) string { return s.text + "*" }
	if kind == MatchSuffix {
		how, text = "end", func(s *spot) string { return "*" + reversed(s.text) }
	}
	var patterns, names []string
	at := chain[len(chain)-1]
	for _, s := range chain {
		if s.number != 0 {
			patterns = append(patterns, text(s))
			names = append(names, c.policy.Requests[s.by].Name)
		}
	}
	c.report.errorf(c.policy.Requests[at.by].Pos,
		"%s: %d patterns that %s alike hold within one another, up to %s, and rules use them beside further stars or keys (%s); at most %d can: leave out the broader ones, or give those rules no other key",
		c.fields[field].name, len(patterns), how, quote(patterns[len(patterns)-1]), someNames(slices.Compact(names)), maxChain)
}

// blameAutomaton says that there are too many words between stars.
func (c *requestCompiler) blameAutomaton() {
	longest := slices.MaxFunc(c.texts, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
	r := &c.policy.Requests[c.words[longest].by]
	c.report.errorf(r.Pos, tooLarge+"rules look for %d texts between stars, rule %q for the longest, of %d bytes; let fewer patterns begin and end with a star, or shorten what stands between",
		len(c.texts), r.Name, len(longest))
}

// blameWords says that too many words end in one state.
func (c *requestCompiler) blameWords(a *automaton, state uint32) {
	var texts, names []string
	for s := state; s != 0; s = a.next[s] {
		if w := a.words[s]; w != nil {
			texts, names = append(texts, w.text), append(names, c.policy.Requests[w.by].Name)
		}
	}
	c.report.errorf(c.policy.Requests[c.words[texts[0]].by].Pos,
		"%d texts between stars are each other's ends, up to %s (%s); at most %d can be: leave out the longer ones, for the shorter ones are found in whatever holds them",
		len(texts), quote(texts[0]), someNames(slices.Compact(names)), maxOutputs)
}

// blameGraph says that the lists of rules with several keys are too long together.
func (c *requestCompiler) blameGraph() {
	widest := slices.MaxFunc(c.paths, func(a, b conjunction) int { return cmp.Compare(a.ways(), b.ways()) })
	r := &c.policy.Requests[widest.rule]
	c.report.errorf(r.Pos, tooLarge+"rules with several keys can match in too many ways, rule %q in %d; shorten its lists, or use patterns that match several entries",
		r.Name, widest.ways())
}

// ways returns in how many ways a rule can match.
func (p *conjunction) ways() int {
	const enough = 1 << 40
	n := 1
	for _, a := range p.asks {
		n = min(enough, n*len(a.spots))
	}
	return n
}

// blameEntries says that there are too many patterns.
func (c *requestCompiler) blameEntries() {
	var n [MatchQuery + 1]int
	for i := range c.pending {
		n[c.pending[i].kind]++
	}
	if n[MatchEdge] > len(c.pending)/2 {
		c.blameGraph()
		return
	}
	patterns := make([]int, len(c.policy.Requests))
	for _, f := range c.fields {
		for _, set := range []spotSet{f.exact, f.prefixes, f.suffixes} {
			for _, s := range set.list {
				patterns[s.by]++
			}
		}
	}
	most := 0
	for i := range patterns {
		if patterns[i] > patterns[most] {
			most = i
		}
	}
	r := &c.policy.Requests[most]
	c.report.errorf(r.Pos, tooLarge+"the patterns need %d entries, and there is room for %d; rule %q brings the most, %d patterns: replace lists by patterns that match several entries",
		len(c.pending), maxEntries/2, r.Name, patterns[most])
}
