// SPDX-License-Identifier: Apache-2.0

package tls

import (
	"testing"

	"narthex/test/draw"
)

// mostBytes spans several chunks, and a record that is as long as may be.
const mostBytes = 20_000

// FuzzScan changes bytes of what clients send.
func FuzzScan(f *testing.F) {
	for _, h := range hellos {
		f.Add([]byte(h.text))
	}
	a := testArena(f)
	f.Fuzz(func(t *testing.T, b []byte) { checkStream(t, a, b[:min(len(b), mostBytes)], 1, 4, 20, 200) })
}

// FuzzRecords changes decisions on how records are made, and so keeps to what is nearly valid.
func FuzzRecords(f *testing.F) {
	draw.Add(f, 60)
	a := testArena(f)
	f.Fuzz(func(t *testing.T, choices []byte) {
		r := recipe{choices}
		checkStream(t, a, r.stream(), 1, 4, 20, 200)
	})
}
