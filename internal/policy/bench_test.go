// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
)

// mixedPolicy writes a policy of n rules with prefixes of mixed lengths and both families,
// the same at every call.
func mixedPolicy(n int) []byte {
	rnd := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	b.WriteString("version: 1\nservices:\n  - {name: web, listen: \"*:80\"}\nconnections:\n")
	for i := range n {
		addr := netip.AddrFrom4([4]byte{byte(rnd.IntN(223) + 1), byte(rnd.Uint32()), byte(rnd.Uint32()), byte(rnd.Uint32())})
		bits := 8 + rnd.IntN(25)
		if i%2 == 1 {
			a := [16]byte{0: 0x20, 1: 0x01}
			for j := 2; j < 16; j++ {
				a[j] = byte(rnd.Uint32())
			}
			addr, bits = netip.AddrFrom16(a), 24+rnd.IntN(105)
		}
		fmt.Fprintf(&b, "  - name: rule-%d\n    from: [\"%s\"]\n    rate: %d/s\n    per: source\n", i, netip.PrefixFrom(addr, bits).Masked(), 1+rnd.IntN(1000))
	}
	return b.Bytes()
}

func benchmarkParse(b *testing.B, rules int) {
	data := mixedPolicy(rules)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Parse("bench.yaml", data); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkCompile(b *testing.B, rules int) {
	p, _, err := Parse("bench.yaml", mixedPolicy(rules))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		t, _, err := Compile(p)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(t.Nodes)), "nodes")
	}
}

func BenchmarkParse10000(b *testing.B)    { benchmarkParse(b, 10_000) }
func BenchmarkCompile10000(b *testing.B)  { benchmarkCompile(b, 10_000) }
func BenchmarkParse100000(b *testing.B)   { benchmarkParse(b, 100_000) }
func BenchmarkCompile100000(b *testing.B) { benchmarkCompile(b, 100_000) }

func BenchmarkLookup10000(b *testing.B) {
	p, _, err := Parse("bench.yaml", mixedPolicy(10_000))
	if err != nil {
		b.Fatal(err)
	}
	t, _, err := Compile(p)
	if err != nil {
		b.Fatal(err)
	}
	i := 0
	for b.Loop() {
		t.Lookup(0, p.Connections[i%len(p.Connections)].From[0].First, 1024)
		i++
	}
}
