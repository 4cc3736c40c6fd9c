// SPDX-License-Identifier: Apache-2.0

package http

import (
	"bufio"
	"bytes"
	"io"
	"math/rand/v2"
	std "net/http"
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
	s := scanner{a: a}
	r := twin.Feed(t, &s, chunkSize, b, cut, skip)
	return s.must(t, b, r.Step, r.Used)
}

// must is result() of what http_scan() may end with.
func (s *scanner) must(t testing.TB, b []byte, step Step, used int) Result {
	t.Helper()
	r, err := s.result(step, used)
	if err != nil {
		t.Fatalf("%v\n%q", err, b)
	}
	return r
}

// checkStream holds what the scanner says of a connection's first bytes against all that is
// known of them. The bytes are cut into pieces of at most the given sizes, too.
func checkStream(t testing.TB, a *arena, b []byte, sizes ...int) Result {
	t.Helper()
	got := scan(t, a, b, twin.Whole, twin.None)
	if want := oracleSays(b); got != want {
		t.Fatalf("http_scan() says %+v\noracle says      %+v\n%q", got, want, b)
	}
	twin.CheckPieces(t, b, got, func(cut, skip twin.Cut) Result { return scan(t, a, b, cut, skip) }, sizes...)
	checkGo(t, b, got)
	return got
}

// checkGo fails if net/http frames a request otherwise, or ends its chunks elsewhere. It may
// take what we do not follow.
func checkGo(t testing.TB, b []byte, got Result) {
	t.Helper()
	in := bytes.NewReader(b)
	buffered := bufio.NewReader(in)
	req, err := std.ReadRequest(buffered)
	if err != nil || got.Step == Lost {
		return
	}
	length := int64(got.Framing.Length)
	if got.Framing.Chunked {
		length = -1
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
	}
	used := len(b) - in.Len() - buffered.Buffered()
	same := req.ContentLength == length || got.Framing.Endless && req.ContentLength > maxLength
	if got.Step != End || got.Used != used || !same || req.Close != got.Framing.Closes {
		t.Fatalf("http_scan() says %+v\nnet/http: %d bytes, Content-Length %d, closes %v\n%q",
			got, used, req.ContentLength, req.Close, b)
	}
}

// TestRandomHeads compares http_scan() with the oracle and with net/http on heads that are
// nearly valid, and asks that each result occurs, so that it is known to reach the depths.
func TestRandomHeads(t *testing.T) {
	const heads = 200_000
	a := testArena(t)
	random := rand.NewChaCha8([32]byte{1})
	size := rand.New(random)
	seen := map[Step]int{}
	flags := map[string]int{}
	for choices := range draw.Recipes(random, heads, 250) {
		r := recipe{choices}
		b := r.stream()
		if size.IntN(4) == 0 {
			b = b[:size.IntN(len(b)+1)]
		}
		got := checkStream(t, a, b, []int{1, 4, 20, 200}[size.IntN(4)])
		seen[got.Step]++
		for name, set := range map[string]bool{
			"length": got.Framing.Length > 0, "closes": got.Framing.Closes, "chunked": got.Framing.Chunked,
			"chunks end": got.Framing.Chunked && got.Step == End, "in chunks": got.InBody,
			"upgrade": got.Framing.Upgrade, "expect": got.Framing.Expect, "head": got.Framing.Head,
			"h2c": got.Framing.H2C, "endless": got.Framing.Endless, "preface": got.Preface,
			"line to come": got.Step == More && !got.Line, "line": got.Step == More && got.Line,
		} {
			if set {
				flags[name]++
			}
		}
	}
	t.Log(seen, flags)
	if len(seen) != 3 || len(flags) != 13 {
		t.Errorf("of %d heads some results never came", heads)
	}
	for what, n := range flags {
		if n < heads/200 {
			t.Errorf("only %d of %d heads: %s", n, heads, what)
		}
	}
	for what, n := range seen {
		if n < heads/20 {
			t.Errorf("only %d of %d heads: %s", n, heads, what)
		}
	}
}
