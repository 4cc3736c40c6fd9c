// SPDX-License-Identifier: Apache-2.0

package client

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"narthex/test/client/clientprog"
	"narthex/test/draw"
	"narthex/test/twin"
)

// mostInstructions is the budget for the verifier's way through one of the readers.
const mostInstructions = 20_000

// mostOfFingerprint is the same for what also sorts and hashes, and has a program of its own in the gate.
const mostOfFingerprint = 100_000

// kernel is the readers loaded.
type kernel struct {
	clientprog.ClientObjects
}

func loadKernel(t testing.TB) *kernel {
	t.Helper()
	var k kernel
	twin.Load(t, clientprog.LoadClientObjects, &k.ClientObjects)
	return &k
}

// run runs a program over bytes, and takes what came of it from a variable.
func run(t testing.TB, p *ebpf.Program, b []byte, from *ebpf.Variable, to any) uint32 {
	t.Helper()
	ret := twin.Run(t, p, b)
	twin.Get(t, from, to)
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
		b = b[:min(len(b), twin.MostFrame)]
		if got, want := k.names(t, b), readNames(t, a, b, twin.Whole); got != want {
			t.Errorf("hello_names() says in the kernel %+v\nnatively                       %+v\n%x", got, want, b)
		}
	}
	for _, h := range hellos {
		check(plain(h.extensions))
	}
	check(dense())
	for choices := range draw.Recipes(rand.NewChaCha8([32]byte{4}), 2_000, 100) {
		r := recipe{choices}
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
	for choices := range draw.Recipes(rand.NewChaCha8([32]byte{4}), 2_000, 80) {
		r := recipe{choices}
		check(r.address())
	}
}

func TestKernelForwarded(t *testing.T) {
	k, a := loadKernel(t), testArena(t)
	for choices := range draw.Recipes(rand.NewChaCha8([32]byte{4}), 1_000, 60) {
		r := recipe{choices}
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
		b = b[:min(len(b), twin.MostFrame)]
		if len(b) == 0 {
			return // no frame has no bytes
		}
		scanned := scanProxy(t, a, b, twin.Whole, twin.None)
		var n uint32
		if step := steps[run(t, k.ClientProxy, b, k.Used, &n)]; step != scanned.Step || int(n) != scanned.Used {
			t.Errorf("proxy_scan() says in the kernel %s, %d\nnatively                      %+v\n%q", step, n, scanned, b)
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
	for choices := range draw.Recipes(rand.NewChaCha8([32]byte{4}), 2_000, 80) {
		r := recipe{choices}
		check(r.proxy())
	}
}

// TestVerifierCost keeps the readers well within what the verifier looks at.
func TestVerifierCost(t *testing.T) {
	k := loadKernel(t)
	twin.CheckCost(t, mostInstructions, map[string]*ebpf.Program{
		"hello_names()": k.ClientHello, "read_address()": k.ClientAddress, "forwarded_last()": k.ClientForwarded,
		"proxy_scan()": k.ClientProxy, "proxy_address()": k.ClientProxyAddress,
	})
	twin.CheckCost(t, mostOfFingerprint, map[string]*ebpf.Program{"ja4_read() and ja4_finish()": k.ClientJa4})
}
