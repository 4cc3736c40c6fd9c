// SPDX-License-Identifier: Apache-2.0

package twin

import (
	"io"
	"os"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
)

// MostFrame is less than the kernel takes for a test run, in bytes.
const MostFrame = 3000

// ethernet is what a test run wants in front of what is read: a header of no protocol that the
// kernel looks into.
var ethernet = [14]byte{12: 0x88, 13: 0xb5}

// Frame puts bytes into a frame.
func Frame(b []byte) []byte { return slices.Concat(ethernet[:], b) }

// Load loads programs into a struct of objects, until the test ends.
func Load(tb testing.TB, load func(objects any, opts *ebpf.CollectionOptions) error, objects io.Closer) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Fatal("this test loads eBPF programs: run it as root, for example with make test")
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		tb.Fatal(err)
	}
	if err := load(objects, nil); err != nil {
		tb.Fatalf("%+v", err)
	}
	tb.Cleanup(func() {
		if err := objects.Close(); err != nil {
			tb.Error(err)
		}
	})
}

// Run runs a program over bytes in a frame. Returns what it returned.
func Run(tb testing.TB, p *ebpf.Program, b []byte) uint32 {
	tb.Helper()
	ret, err := p.Run(&ebpf.RunOptions{Data: Frame(b)})
	if err != nil {
		tb.Fatal(err)
	}
	return ret
}

// Get reads a variable of a program.
func Get(tb testing.TB, from *ebpf.Variable, to any) {
	tb.Helper()
	if err := from.Get(to); err != nil {
		tb.Fatal(err)
	}
}

// CheckCost fails if the verifier looked at more than so many instructions of one of some programs,
// by name, of the million that a program has.
func CheckCost(tb testing.TB, most uint32, programs map[string]*ebpf.Program) {
	tb.Helper()
	for name, p := range programs {
		info, err := p.Info()
		if err != nil {
			tb.Fatal(err)
		}
		n, ok := info.VerifiedInstructions()
		if !ok {
			tb.Fatal("the kernel does not say how many instructions the verifier looked at")
		}
		tb.Logf("%s: %d instructions", name, n)
		if n > most {
			tb.Errorf("the verifier looked at %d instructions of %s; more than %d", n, name, most)
		}
	}
}
