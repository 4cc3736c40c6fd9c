// SPDX-License-Identifier: Apache-2.0

package client

import (
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"narthex/test/client/clientprog"
)

const (
	// mostInstructions is the budget for the verifier's way through one of the readers.
	mostInstructions = 20_000
	// mostFrame is less than the kernel takes for a test run.
	mostFrame = 3000
)

// What a test run wants in front of what is read: an Ethernet header of no protocol that the
// kernel looks into.
var ethernet = [14]byte{12: 0x88, 13: 0xb5}

// kernel is the readers loaded.
type kernel struct {
	clientprog.ClientObjects
}

func loadKernel(t testing.TB) *kernel {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test loads eBPF programs: run it as root, for example with make test")
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	var k kernel
	if err := clientprog.LoadClientObjects(&k.ClientObjects, nil); err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { k.Close() })
	return &k
}

// run runs a program over bytes, and takes what came of it from a variable.
func run(t testing.TB, p *ebpf.Program, b []byte, from *ebpf.Variable, to any) uint32 {
	t.Helper()
	ret, err := p.Run(&ebpf.RunOptions{Data: append(ethernet[:], b...)})
	if err != nil {
		t.Fatal(err)
	}
	if err := from.Get(to); err != nil {
		t.Fatal(err)
	}
	return ret
}

// names is hello_names() in the kernel.
func (k *kernel) names(t testing.TB, b []byte) Names {
	t.Helper()
	var n clientprog.ClientTlsNames
	step := steps[run(t, k.ClientHello, b, k.Names, &n)]
	got, err := says(step, n.Flags, n.Name[:n.Sni], n.Protocols[:n.Alpn])
	if err != nil {
		t.Fatalf("%v\n%x", err, b)
	}
	return got
}

// address is the one that a program has found.
func address(t testing.TB, a clientprog.ClientAddress) netip.Addr {
	t.Helper()
	addr, err := addressOf(a.Word, a.V6)
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// TestKernelHello compares what the kernel's form of a reader says with what the native form does,
// which all other tests are of; so do those that follow.
func TestKernelHello(t *testing.T) {
	k, a := loadKernel(t), testArena(t)
	check := func(b []byte) {
		t.Helper()
		b = b[:min(len(b), mostFrame)]
		if got, want := k.names(t, b), readNames(t, a, b, whole); got != want {
			t.Errorf("hello_names() says in the kernel %+v\nnatively                       %+v\n%x", got, want, b)
		}
	}
	for _, h := range hellos {
		check(plain(h.extensions))
	}
	check(dense())
	random := rand.NewChaCha8([32]byte{4})
	choices := make([]byte, 100)
	for range 2_000 {
		_, _ = random.Read(choices) // cannot fail
		r := recipe(choices)
		check(r.hello())
	}
}

func TestKernelAddress(t *testing.T) {
	k, a := loadKernel(t), testArena(t)
	check := func(s string) {
		t.Helper()
		if s == "" {
			return // no frame has no bytes
		}
		want, ok, err := a.readAddress(s, 'x')
		var to clientprog.ClientAddress
		is := run(t, k.ClientAddress, []byte(s), k.Address, &to) == 1
		if err != nil || is != ok || ok && address(t, to) != want {
			t.Errorf("read_address() says in the kernel %t, %+v\nnatively                        %t, %s, %v\n%q", is, to, ok, want, err, s)
		}
	}
	for _, c := range addresses {
		check(c.text)
	}
	random := rand.NewChaCha8([32]byte{4})
	choices := make([]byte, 80)
	for range 2_000 {
		_, _ = random.Read(choices) // cannot fail
		r := recipe(choices)
		check(r.address())
	}
}

func TestKernelForwarded(t *testing.T) {
	k, a := loadKernel(t), testArena(t)
	random := rand.NewChaCha8([32]byte{4})
	choices := make([]byte, 60)
	for range 1_000 {
		_, _ = random.Read(choices) // cannot fail
		r := recipe(choices)
		s := "x" + r.forwarded()
		all, err := a.elements(s, 'x')
		if err != nil {
			t.Fatal(err)
		}
		for i := range len(all) + 1 {
			if err := k.Used.Set(uint32(i)); err != nil {
				t.Fatal(err)
			}
			var f clientprog.ClientForwarded
			found := run(t, k.ClientForwarded, []byte(s), k.Forwarded, &f) == 1
			if found != (i < len(all)) || found && s[f.Begin:f.End] != all[i] {
				t.Fatalf("forwarded_last() says in the kernel %t, %+v\nnatively, of %d of %q\n%q", found, f, i, all, s)
			}
		}
	}
}

func TestKernelProxy(t *testing.T) {
	k, a := loadKernel(t), testArena(t)
	check := func(b []byte) {
		t.Helper()
		b = b[:min(len(b), mostFrame)]
		if len(b) == 0 {
			return // no frame has no bytes
		}
		step, used := scanProxy(t, a, b, whole, none)
		var n uint32
		if got := steps[run(t, k.ClientProxy, b, k.Used, &n)]; got != step || int(n) != used {
			t.Errorf("proxy_scan() says in the kernel %s, %d\nnatively                      %s, %d\n%q", got, n, step, used, b)
		}
		want, wantAddr, err := a.proxyAddress(b[:min(len(b), chunkSize)], 0)
		var to clientprog.ClientAddress
		got := clients[int32(run(t, k.ClientProxyAddress, b, k.Address, &to))]
		if err != nil || got != want || got == Given && address(t, to) != wantAddr {
			t.Errorf("proxy_address() says in the kernel %s, %+v\nnatively                         %s, %s, %v\n%q", got, to, want, wantAddr, err, b)
		}
	}
	for _, h := range headers {
		check([]byte(h.text))
	}
	random := rand.NewChaCha8([32]byte{4})
	choices := make([]byte, 80)
	for range 2_000 {
		_, _ = random.Read(choices) // cannot fail
		r := recipe(choices)
		check(r.proxy())
	}
}

// TestVerifierCost keeps the readers well within what the verifier looks at.
func TestVerifierCost(t *testing.T) {
	k := loadKernel(t)
	for name, p := range map[string]*ebpf.Program{
		"hello_names()": k.ClientHello, "read_address()": k.ClientAddress, "forwarded_last()": k.ClientForwarded,
		"proxy_scan()": k.ClientProxy, "proxy_address()": k.ClientProxyAddress,
	} {
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
