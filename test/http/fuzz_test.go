// SPDX-License-Identifier: Apache-2.0

package http

import (
	"testing"

	"narthex/test/draw"
)

// mostBytes spans several chunks.
const mostBytes = 4 * chunkSize

// FuzzScan changes bytes of heads.
func FuzzScan(f *testing.F) {
	for _, h := range heads {
		f.Add([]byte(h.text))
	}
	for _, r := range responses {
		f.Add([]byte(r.text))
	}
	a := testArena(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		b = b[:min(len(b), mostBytes)]
		checkStream(t, a, b, 1, 4, 20, 200)
		checkAnswer(t, a, b, 1, 4, 20)
	})
}

// FuzzHead changes decisions on how a head is made, and so keeps to what is nearly valid.
func FuzzHead(f *testing.F) {
	draw.Add(f, 120)
	a := testArena(f)
	f.Fuzz(func(t *testing.T, choices []byte) {
		r := recipe{choices}
		checkStream(t, a, r.stream(), 1, 4, 20, 200)
		checkAnswer(t, a, r.answer(), 1, 4, 20)
	})
}
