// SPDX-License-Identifier: Apache-2.0

package parser

import (
	"encoding/hex"
	"math/rand/v2"
	"testing"

	"narthex/test/draw"
	"narthex/test/twin"
)

func testArena(t testing.TB) *arena {
	t.Helper()
	return &arena{twin.Guarded(t, arenaSize)}
}

// checkFrame parses a frame and holds the result against everything that is known of it.
func checkFrame(t testing.TB, a *arena, frame []byte, cuts ...int) Result {
	t.Helper()
	got, err := a.parse(frame)
	if err != nil {
		t.Fatalf("%v\n%s", err, hex.Dump(frame))
	}
	if want := oracleSays(frame); got != want {
		t.Fatalf("parse() says  %v\noracle says   %v\n%s", got, want, hex.Dump(frame))
	}
	checkLinux(t, frame, got)
	for _, cut := range cuts {
		checkPrefix(t, a, frame, cut, got)
	}
	return got
}

// checkLinux fails if Linux would make more of the frame than Narthex knows: a way round.
func checkLinux(t testing.TB, frame []byte, got Result) {
	t.Helper()
	use, to := linuxMakes(frame)
	switch {
	case use == Nothing:
	case use == Connection && got.Kind == SYN:
		if got.Dst != to.Addr() || got.DstPort != to.Port() {
			t.Fatalf("parse() says %v\nLinux makes of it %s to %v\n%s", got, use, to, hex.Dump(frame))
		}
	case got.Kind != Anomaly,
		got.Dst.IsValid() && got.Dst != to.Addr(),
		got.Ports && got.DstPort != to.Port():
		t.Fatalf("parse() says %v\nLinux makes of it %s to %v\n%s", got, use, to, hex.Dump(frame))
	}
}

// checkPrefix fails if what was said of the frame's first bytes, and would not be asked
// again, is not what is said of the whole.
func checkPrefix(t testing.TB, a *arena, frame []byte, cut int, whole Result) {
	t.Helper()
	part, err := a.parse(frame[:cut])
	if err != nil {
		t.Fatalf("%v\n%s", err, hex.Dump(frame[:cut]))
	}
	if want := oracleSays(frame[:cut]); part != want {
		t.Fatalf("of %d bytes, parse() says %v\noracle says %v\n%s", cut, part, want, hex.Dump(frame))
	}
	if cut < headers && !part.final() {
		return
	}
	if part != whole {
		t.Fatalf("of %d bytes, parse() says %v\nof all, %v\n%s", cut, part, whole, hex.Dump(frame))
	}
}

// TestRandomFrames compares parse() with the oracle and with Linux on frames that are nearly
// valid, and asks that each result occurs, so that it is known to reach the depths.
func TestRandomFrames(t *testing.T) {
	const frames = 400_000
	a := testArena(t)
	random := rand.NewChaCha8([32]byte{1})
	cut := rand.New(random)
	seen := map[Kind]map[Reason]int{SYN: {}, Anomaly: {}, Pass: {}, Truncated: {}}
	uses := map[Use]int{}
	for choices := range draw.Recipes(random, frames, 200) {
		r := recipe{choices}
		frame := r.frame()
		got := checkFrame(t, a, frame, cut.IntN(len(frame)+1), cut.IntN(len(frame)+1), min(len(frame), headers))
		seen[got.Kind][got.Reason]++
		use, _ := linuxMakes(frame)
		uses[use]++
	}
	t.Logf("%v\n%v", seen, uses)
	for kind, reasons := range map[Kind][]Reason{
		SYN:       {""},
		Anomaly:   {Fragment, VLANTags, Extension, SYNData, SYNFlags},
		Pass:      {NotIP, NotTCP, NotSYN, Malformed, FragmentTail},
		Truncated: {""},
	} {
		for _, reason := range reasons {
			if seen[kind][reason] < frames/1000 {
				t.Errorf("only %d of %d frames were %s (%s)", seen[kind][reason], frames, kind, reason)
			}
		}
	}
}

// TestRandomBytes feeds parse() what is hardly ever a frame.
func TestRandomBytes(t *testing.T) {
	a := testArena(t)
	random := rand.NewChaCha8([32]byte{2})
	length := rand.New(random)
	for range 100_000 {
		frame := make([]byte, length.IntN(600))
		_, _ = random.Read(frame) // cannot fail
		checkFrame(t, a, frame)
	}
}
