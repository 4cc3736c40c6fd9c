// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"testing"

	"narthex/test/twin"
)

// TestRandom gives random policies some heads. The campaign gives them more.
func TestRandom(t *testing.T) {
	var c Checker
	var tally Tally
	heads := 0
	for n := uint64(0); heads < 100_000; n++ {
		h, err := c.Episode(7, n, &tally)
		if heads += h; err != nil {
			t.Fatal(err)
		}
	}
	t.Log(tally)
	for outcome, n := range tally[:Complex] {
		if n < heads/20 {
			t.Errorf("%d of %d heads had outcome %d: random heads are not what they should be", n, heads, outcome)
		}
	}
	if n := tally[Complex]; n > heads/100 {
		t.Errorf("%d of %d heads were too complex", n, heads)
	}
}

// TestSanitized does the same with the source compiled such that it stops at what C leaves
// undefined, and at memory that is not its own.
func TestSanitized(t *testing.T) {
	cmd := exec.Command("go", "run", "-asan", "./campaign", "-n", "30000", "-seed", "3")
	cmd.Env = append(os.Environ(), "ASAN_OPTIONS=detect_leaks=0",
		"CGO_CFLAGS=-g -O1 -fsanitize=undefined -fno-sanitize=alignment -fno-sanitize-recover=undefined",
		"CGO_LDFLAGS=-fsanitize=undefined")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// draws returns what policies and heads may be drawn from.
func draws(seed byte, n int) [][]byte {
	random := rand.NewChaCha8([32]byte{seed})
	out := make([][]byte, n)
	for i := range out {
		out[i] = make([]byte, policyChoices+headChoices)
		_, _ = random.Read(out[i]) // cannot fail
	}
	return out
}

// TestKernel compares what the kernel's form of the reader finds with what the native form does,
// which most other tests are of.
func TestKernel(t *testing.T) {
	k := loadKernel(t)
	var c Checker
	for _, choices := range draws(4, 25) {
		d := &dice{choices}
		p := d.requests()
		if c.Use(p, 1) != nil {
			continue
		}
		k.use(t, upload(t, &c.im))
		like := patternsOf(p)
		for i, choices := range draws(choices[0], 200) {
			d := &dice{choices}
			e := d.ends()
			head := d.head(like)
			head = head[:frame(head, chunkSize)]
			slot := i%2 == 0
			if len(head) == 0 || len(head) > twin.MostFrame && !slot {
				continue
			}
			if got, want := k.match(t, head, slot, e), c.r.match(head, slot, e); got != want && !(got.refused && want.refused) {
				t.Fatalf("in the kernel %+v, natively %+v: %q under %+v", got, want, head, p.Requests)
			}
		}
	}
}

// FuzzDrawn changes decisions on how policies and heads are drawn.
func FuzzDrawn(f *testing.F) {
	for _, choices := range draws(3, 32) {
		f.Add(choices, uint16(choices[0]))
	}
	var c Checker
	f.Fuzz(func(t *testing.T, choices []byte, piece uint16) {
		n := min(len(choices), policyChoices)
		p := (&dice{choices[:n]}).requests()
		if c.Use(p, 1) != nil {
			return
		}
		head := (&dice{choices[n:]}).head(patternsOf(p))
		for which := range 2 {
			if _, err := c.try(head, 1+uint64(piece)%chunkSize, which, anywhere); err != nil {
				t.Fatalf("%v: %q under %+v", err, head, p.Requests)
			}
		}
	})
}

// FuzzHead changes bytes of heads.
func FuzzHead(f *testing.F) {
	for _, tt := range cases {
		for _, head := range heads(tt.head) {
			f.Add(head)
		}
	}
	c := newChecker(f, guarded)
	f.Fuzz(func(t *testing.T, head []byte) {
		for i, piece := range []uint64{1, 7, 100, chunkSize} {
			if _, err := c.try(head, piece, i*serverEvery, anywhere); err != nil {
				t.Fatalf("%v, in pieces of %d: %q", err, piece, head)
			}
			if _, err := c.try(head, piece, 1, anywhere); err != nil {
				t.Fatalf("%v, in pieces of %d: %q", err, piece, head)
			}
		}
	})
}

// anywhere is between whom a request is where that does not matter.
var anywhere = ends{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddrPort("10.0.0.1:80")}
