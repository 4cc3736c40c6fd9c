// SPDX-License-Identifier: Apache-2.0

package tls

import (
	"math/rand/v2"
	"testing"

	"narthex/test/draw"
	"narthex/test/twin"
)

func testArena(t testing.TB) *arena {
	t.Helper()
	return &arena{twin.Guarded(t, chunkRoom)}
}

// scan feeds a scanner bytes, cut as the function says, until it stops. Before each piece it may
// skip what another function says.
func scan(t testing.TB, a *arena, b []byte, cut, skip twin.Cut) Result {
	t.Helper()
	return Result(twin.Feed(t, &scanner{a: a}, chunkSize, b, cut, skip))
}

// checkStream holds what the scanner says of a connection's first bytes against all that is
// known of them. The bytes are cut into pieces of at most the given sizes, too.
func checkStream(t testing.TB, a *arena, b []byte, sizes ...int) Result {
	t.Helper()
	got := scan(t, a, b, twin.Whole, twin.None)
	step, used := oracleReads(b)
	if got.Step != step || step != Lost && got.Used != used {
		t.Fatalf("tls_scan() says %+v\noracle says      %q, %d\n%x", got, step, used, b)
	}
	if step == Lost && (oracleSays(b[:got.Used]) != Lost || oracleSays(b[:got.Used-1]) != More) {
		t.Fatalf("tls_scan() says %+v, but that byte is not what makes it so\n%x", got, b)
	}
	twin.CheckPieces(t, b, got, func(cut, skip twin.Cut) Result { return scan(t, a, b, cut, skip) }, sizes...)
	return got
}

// checkCuts does the same for one cut, at every byte.
func checkCuts(t testing.TB, a *arena, b []byte) {
	t.Helper()
	want := scan(t, a, b, twin.Whole, twin.None)
	for first := 1; first < len(b); first++ {
		if got := scan(t, a, b, twin.After(first, chunkSize), twin.None); got != want {
			t.Fatalf("cut after %d of %d bytes: %+v, not %+v", first, len(b), got, want)
		}
		if got := scan(t, a, b[:first], twin.Whole, twin.Whole); first < want.Used && got != (Result{More, first}) {
			t.Fatalf("of %d bytes %d: %+v", len(b), first, got)
		}
	}
}

// TestRandomStreams compares tls_scan() with the oracle on what is nearly valid, and asks that
// each result occurs, so that it is known to reach the depths.
func TestRandomStreams(t *testing.T) {
	const streams = 5_000
	a := testArena(t)
	random := rand.NewChaCha8([32]byte{1})
	size := rand.New(random)
	seen := map[Step]int{}
	for choices := range draw.Recipes(random, streams, 60) {
		r := recipe{choices}
		b := r.stream()
		if size.IntN(4) == 0 {
			b = b[:size.IntN(len(b)+1)]
		}
		seen[checkStream(t, a, b, []int{1, 4, 20, 200}[size.IntN(4)]).Step]++
	}
	t.Log(seen)
	for _, step := range []Step{More, End, Lost} {
		if seen[step] < streams/20 {
			t.Errorf("only %d of %d: %s", seen[step], streams, step)
		}
	}
}
