// SPDX-License-Identifier: Apache-2.0

package tls

import (
	"math/rand/v2"
	"testing"
)

func testArena(t testing.TB) *arena {
	t.Helper()
	a, err := newArena()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// whole is for scan() and gives it as much as there is; none is for its skip and does not.
func whole() int { return 1 << 20 }
func none() int  { return 0 }

// upTo is for scan() and gives it pieces of random size.
func upTo(size int, b []byte) func() int {
	random := rand.New(rand.NewPCG(uint64(len(b)), uint64(size)))
	return func() int { return 1 + random.IntN(size) }
}

// scan feeds a scanner bytes, cut as the function says, until it stops. Before each piece it
// may skip what another function says.
func scan(t testing.TB, a *arena, b []byte, cut, skip func() int) Result {
	t.Helper()
	s := scanner{a: a}
	for at := 0; at < len(b); {
		most := min(skip(), len(b)-at)
		skipped := s.skip(most)
		if skipped > most {
			t.Fatalf("tls_skip() skips %d of %d bytes\n%x", skipped, most, b)
		}
		at += skipped
		n := min(cut(), len(b)-at, chunkSize)
		if n == 0 {
			break
		}
		step, used, err := s.scan(b[at:at+n], byte(at))
		if err != nil {
			t.Fatalf("%v\n%x", err, b)
		}
		at += used
		if step != More {
			return Result{step, at}
		}
	}
	return Result{More, len(b)}
}

// checkStream holds what the scanner says of a connection's first bytes against all that is
// known of them. The bytes are cut into pieces of at most the given sizes, too.
func checkStream(t testing.TB, a *arena, b []byte, sizes ...int) Result {
	t.Helper()
	got := scan(t, a, b, whole, none)
	step, used := oracleReads(b)
	if got.Step != step || step != Lost && got.Used != used {
		t.Fatalf("tls_scan() says %+v\noracle says      %q, %d\n%x", got, step, used, b)
	}
	if step == Lost && (oracleSays(b[:got.Used]) != Lost || oracleSays(b[:got.Used-1]) != More) {
		t.Fatalf("tls_scan() says %+v, but that byte is not what makes it so\n%x", got, b)
	}
	if skipped := scan(t, a, b, whole, whole); skipped != got {
		t.Fatalf("with tls_skip(), tls_scan() says %+v\nwithout, %+v\n%x", skipped, got, b)
	}
	for _, size := range sizes {
		for name, skip := range map[string]func() int{"none": none, "all": whole, "some": upTo(size, b[len(b)/2:])} {
			if cut := scan(t, a, b, upTo(size, b), skip); cut != got {
				t.Fatalf("in pieces of up to %d bytes, %s of them skipped, tls_scan() says %+v\nin one, %+v\n%x", size, name, cut, got, b)
			}
		}
	}
	return got
}

// checkCuts does the same for one cut, at every byte.
func checkCuts(t testing.TB, a *arena, b []byte) {
	t.Helper()
	want := scan(t, a, b, whole, none)
	for first := 1; first < len(b); first++ {
		at := 0 // the bytes come in two pieces, of which each is read by chunks
		cut := func() int {
			n := chunkSize
			if at < first {
				n = min(n, first-at)
			}
			at += n
			return n
		}
		if got := scan(t, a, b, cut, none); got != want {
			t.Fatalf("cut after %d of %d bytes: %+v, not %+v", first, len(b), got, want)
		}
		if got := scan(t, a, b[:first], whole, whole); first < want.Used && got != (Result{More, first}) {
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
	choices := make([]byte, 60)
	for range streams {
		_, _ = random.Read(choices) // cannot fail
		r := recipe(choices)
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
