// SPDX-License-Identifier: Apache-2.0

package tls

import (
	"math/rand/v2"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"narthex/test/tls/tlsprog"
)

const (
	// mostInstructions is the budget for the verifier's way through the scanner.
	mostInstructions = 20_000
	// mostFrame is less than the kernel takes for a test run.
	mostFrame = 3000
)

// What a test run wants in front of what is scanned: an Ethernet header of no protocol that
// the kernel looks into.
var ethernet = [14]byte{12: 0x88, 13: 0xb5}

func loadKernel(t testing.TB) *tlsprog.TLSObjects {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test loads eBPF programs: run it as root, for example with make test")
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	var k tlsprog.TLSObjects
	if err := tlsprog.LoadTLSObjects(&k, nil); err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { k.Close() })
	return &k
}

// TestKernel compares what the kernel's form of the scanner says with what the native form
// does, which all other tests are of.
func TestKernel(t *testing.T) {
	k, a := loadKernel(t), testArena(t)
	run := func(p *ebpf.Program, b []byte) Result {
		t.Helper()
		ret, err := p.Run(&ebpf.RunOptions{Data: append(ethernet[:], b...)})
		if err != nil {
			t.Fatal(err)
		}
		var used uint32
		if err := k.Used.Get(&used); err != nil {
			t.Fatal(err)
		}
		return Result{steps[ret], int(used)}
	}
	check := func(b []byte) {
		t.Helper()
		b = b[:min(len(b), mostFrame)]
		want := scan(t, a, b, whole, none)
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
	random := rand.NewChaCha8([32]byte{4})
	choices := make([]byte, 60)
	for range 5_000 {
		_, _ = random.Read(choices) // cannot fail
		r := recipe(choices)
		if b := r.stream(); len(b) > 0 {
			check(b)
		}
	}
}

// TestVerifierCost keeps the scanner well within what the verifier looks at.
func TestVerifierCost(t *testing.T) {
	k := loadKernel(t)
	for name, p := range map[string]*ebpf.Program{"tls_read": k.TlsRead, "tls_follow": k.TlsFollow} {
		info, err := p.Info()
		if err != nil {
			t.Fatal(err)
		}
		n, ok := info.VerifiedInstructions()
		if !ok {
			t.Fatal("the kernel does not say how many instructions the verifier looked at")
		}
		t.Logf("%s: %d instructions", name, n)
		if n > mostInstructions {
			t.Errorf("the verifier looked at %d instructions of %s; more than %d", n, name, mostInstructions)
		}
	}
}
