// SPDX-License-Identifier: Apache-2.0

package policy

import "slices"

// automaton makes the table that finds the words of all fields in one pass over a value
// (Aho and Corasick, CACM 1975), and lists the words that end in each of its states.
func (c *requestCompiler) automaton() {
	if len(c.texts) == 0 {
		return
	}
	t := c.tables
	t.Width = 1
	var used [256]bool
	for _, text := range c.texts {
		for i := range len(text) {
			used[text[i]] = true
		}
	}
	for b, u := range used {
		if u {
			t.Classes[b] = uint8(t.Width)
			t.Width++
		}
	}
	a := &automaton{width: t.Width, class: &t.Classes, states: make([]uint32, t.Width), words: []*spot{nil}}
	for _, text := range c.texts {
		if !a.add(text, c.words[text]) {
			c.blameAutomaton()
			return
		}
	}
	t.States = a.finish()
	c.outputs = a.outputs()
	if most := slices.MaxFunc(a.order, func(x, y uint32) int { return a.ends[x] - a.ends[y] }); a.ends[most] > maxOutputs {
		c.blameWords(a, most)
	}
}

// automaton is the table under construction.
type automaton struct {
	width  int
	class  *[256]uint8
	states []uint32 // 0: no such child yet
	words  []*spot  // by state: the word that ends there
	order  []uint32 // states, shorter texts first
	fail   []uint32 // by state: that of the longest proper suffix
	next   []uint32 // by state: the first of its suffixes that is a word; 0: none
	ends   []int    // by state: words that end there
}

// add enters a word. It reports whether there is room.
func (a *automaton) add(text string, word *spot) bool {
	at := uint32(0)
	for i := range len(text) {
		cell := int(at)*a.width + int(a.class[text[i]])
		if a.states[cell] == 0 {
			a.states[cell] = uint32(len(a.words))
			a.words = append(a.words, nil)
			a.states = append(a.states, make([]uint32, a.width)...)
		}
		at = a.states[cell]
	}
	a.words[at] = word
	return len(a.states) <= maxAutomaton
}

// finish makes the table complete: each state goes on with every byte.
func (a *automaton) finish() []uint32 {
	a.fail, a.next, a.ends = make([]uint32, len(a.words)), make([]uint32, len(a.words)), make([]int, len(a.words))
	a.order = []uint32{0}
	for i := 0; i < len(a.order); i++ {
		s := a.order[i]
		row, back := a.row(s), a.row(a.fail[s])
		for class, to := range row {
			switch {
			case to != 0:
				if s != 0 {
					a.fail[to] = back[class]
				}
				a.order = append(a.order, to)
				a.link(to)
			case s != 0:
				row[class] = back[class]
			}
		}
	}
	out := make([]uint32, len(a.states))
	for i, s := range a.states {
		out[i] = s
		if a.words[s] != nil || a.next[s] != 0 {
			out[i] |= StateOutput
		}
	}
	return out
}

func (a *automaton) row(s uint32) []uint32 { return a.states[int(s)*a.width:][:a.width] }

// link finds the next word among the suffixes of a state, and counts them.
func (a *automaton) link(s uint32) {
	f := a.fail[s]
	if a.words[f] != nil {
		a.next[s] = f
	} else {
		a.next[s] = a.next[f]
	}
	a.ends[s] = a.ends[f]
	if a.words[s] != nil {
		a.ends[s]++
	}
}

// output is the longest word that ends in a state and the state of the next shorter one.
type output struct {
	state uint32
	word  *spot
	next  uint32
}

func (a *automaton) outputs() []output {
	var out []output
	for s := range uint32(len(a.words)) {
		switch next := a.next[s]; {
		case a.words[s] != nil:
			out = append(out, output{s, a.words[s], next})
		case next != 0:
			out = append(out, output{s, a.words[next], a.next[next]})
		}
	}
	return out
}
