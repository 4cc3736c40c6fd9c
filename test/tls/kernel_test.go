// SPDX-License-Identifier: Apache-2.0

package tls

import (
	"math/rand/v2"
	"testing"

	"github.com/cilium/ebpf"

	"narthex/test/draw"
	"narthex/test/tls/tlsprog"
	"narthex/test/twin"
)

// mostInstructions is the budget for the verifier's way through the scanner.
const mostInstructions = 20_000

func loadKernel(t testing.TB) *tlsprog.TLSObjects {
	t.Helper()
	var k tlsprog.TLSObjects
	twin.Load(t, tlsprog.LoadTLSObjects, &k)
	return &k
}

// TestKernel compares what the kernel's form of the scanner says with what the native form
// does, which all other tests are of.
func TestKernel(t *testing.T) {
	k, a := loadKernel(t), testArena(t)
	run := func(p *ebpf.Program, b []byte) Result {
		t.Helper()
		ret := twin.Run(t, p, b)
		var used uint32
		twin.Get(t, k.Used, &used)
		return Result{steps[ret], int(used)}
	}
	check := func(b []byte) {
		t.Helper()
		b = b[:min(len(b), twin.MostFrame)]
		want := scan(t, a, b, twin.Whole, twin.None)
		if got := run(k.TlsRead, b); got != want {
			t.Errorf("tls_scan() says in the kernel %+v\nnatively                     %+v\n%x", got, want, b)
		}
		if got := run(k.TlsFollow, b); got != want {
			t.Errorf("tls_scan() and tls_skip() say in the kernel %+v\nnatively                                    %+v\n%x", got, want, b)
		}
	}
	for _, h := range hellos {
		check([]byte(h.text))
	}
	for choices := range draw.Recipes(rand.NewChaCha8([32]byte{4}), 5_000, 60) {
		r := recipe{choices}
		if b := r.stream(); len(b) > 0 {
			check(b)
		}
	}
}

// TestVerifierCost keeps the scanner well within what the verifier looks at.
func TestVerifierCost(t *testing.T) {
	k := loadKernel(t)
	twin.CheckCost(t, mostInstructions, map[string]*ebpf.Program{"tls_read": k.TlsRead, "tls_follow": k.TlsFollow})
}
