// SPDX-License-Identifier: Apache-2.0

package parser

import (
	"testing"

	"narthex/test/draw"
)

// mostBytes is far more than is ever read.
const mostBytes = 4096

// checkCuts checks a frame and all of its prefixes that could tell something of their own.
func checkCuts(t *testing.T, a *arena, frame []byte) {
	t.Helper()
	var cuts []int
	for cut := range min(len(frame), headers+8) {
		cuts = append(cuts, cut)
	}
	checkFrame(t, a, frame, cuts...)
}

// FuzzParse changes bytes of frames.
func FuzzParse(f *testing.F) {
	for _, c := range frames {
		f.Add(c.frame)
		f.Add(c.frame[:len(c.frame)*3/4])
	}
	a := testArena(f)
	f.Fuzz(func(t *testing.T, frame []byte) {
		checkCuts(t, a, frame[:min(len(frame), mostBytes)])
	})
}

// FuzzRecipe changes decisions on how a frame is made, and so keeps to what is nearly valid.
func FuzzRecipe(f *testing.F) {
	draw.Add(f, 120)
	a := testArena(f)
	f.Fuzz(func(t *testing.T, choices []byte) {
		r := recipe{choices}
		checkCuts(t, a, r.frame())
	})
}
