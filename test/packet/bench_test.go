// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"narthex/internal/datapath"
	"narthex/internal/lists"
	"narthex/internal/policy"
	"narthex/test/nettest"
	"narthex/test/packet/benchprog"
)

// Each figure is the median of so many test runs of so many frames.
const (
	benchRuns   = 31
	benchRepeat = 100_000
)

const benchSources = benchprog.Sources

// bench are the benchmark programs over an instance's own maps.
type bench struct {
	s *subject
	*benchprog.Programs
}

func loadBench(b *testing.B, text string, sources int) *bench {
	b.Helper()
	s := loadConfig(b, datapath.Config{Sources: sources}, text)
	programs, err := benchprog.Load(s.pin())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(programs.Close)
	return &bench{s, programs}
}

// from puts the sources into the table of the benchmark programs.
func (n *bench) from(b *testing.B, list []netip.Addr) {
	b.Helper()
	if err := n.From(list); err != nil {
		b.Fatal(err)
	}
}

// once times a test run of benchRepeat frames and returns ns for one.
func (n *bench) once(b *testing.B, prog string, f []byte, want uint32) float64 {
	b.Helper()
	d, err := n.Time(prog, f, benchRepeat, want)
	if err != nil {
		b.Fatal(err)
	}
	return float64(d)
}

// measure reports the cost of a program over that of another, run in turns: ns/decision
// is the median of the differences, ns/run the median with the cost of the test run.
func (n *bench) measure(b *testing.B, prog, over string, f []byte) {
	b.Helper()
	n.once(b, prog, f, xdpPass) // warms caches and makes the buckets
	var all, net []float64
	for range benchRuns {
		a, z := n.once(b, prog, f, xdpPass), n.once(b, over, f, xdpPass)
		all, net = append(all, a), append(net, a-z)
	}
	slices.Sort(all)
	slices.Sort(net)
	b.ReportMetric(net[benchRuns/2], "ns/decision")
	b.ReportMetric(all[benchRuns/2], "ns/run")
	b.ReportMetric(net[benchRuns*3/4]-net[benchRuns/4], "ns-iqr")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkStart loads all programs and makes the maps of an instance, at their default sizes: what a daemon's start
// takes beside reading its policy.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		s, err := open(datapath.Config{})
		nettest.Check(b, err)
		b.StopTimer()
		nettest.Check(b, s.remove())
		b.StartTimer()
	}
}

// generous is a rule's rate of which no benchmark uses up the burst.
const generous = "rate: 1000000/s, burst: 1000000"

// BenchmarkOneRule decides by one rule. The sources are one, and so is the bucket.
func BenchmarkOneRule(b *testing.B) {
	for _, per := range []string{"rule", "source"} {
		for _, to := range []string{"10.0.0.1:80", "[fd00::1]:80"} {
			b.Run(fmt.Sprintf("per=%s/%s", per, family(to)), func(b *testing.B) {
				n := loadBench(b, bucketPolicy(generous+", per: "+per), 0)
				n.from(b, []netip.Addr{netip.MustParseAddr(source4or6(to))})
				n.measure(b, "bench_known", "bench_nothing", syn(netip.AddrPortFrom(netip.MustParseAddr(source4or6(to)), 4000).String(), to).bytes(b))
			})
		}
	}
}

func family(to string) string {
	if strings.HasPrefix(to, "[") {
		return "v6"
	}
	return "v4"
}

func source4or6(to string) string {
	if family(to) == "v6" {
		return "2001:db8::1"
	}
	return "203.0.113.1"
}

// BenchmarkManyRules decides by one of 10,000 rules of mixed prefixes, half of them IPv6,
// for 16,384 sources that have a bucket each.
func BenchmarkManyRules(b *testing.B) {
	text, v4, v6 := manyRules(10_000)
	for _, c := range []struct {
		to   string
		from []netip.Addr
	}{{"10.0.0.1:80", v4}, {"[fd00::1]:80", v6}} {
		b.Run(family(c.to), func(b *testing.B) {
			n := loadBench(b, text, 0)
			n.from(b, c.from)
			n.measure(b, "bench_known", "bench_nothing", syn(netip.AddrPortFrom(c.from[0], 4000).String(), c.to).bytes(b))
		})
	}
}

// manyRules makes rules of prefixes of all lengths, nested as chance has it, and sources
// within them.
func manyRules(n int) (text string, v4, v6 []netip.Addr) {
	r := rand.New(rand.NewPCG(1, 2))
	var t strings.Builder
	fmt.Fprintln(&t, "version: 1\nservices: [{name: shop, listen: [\"*:80\"]}]\nconnections:")
	seen := map[netip.Prefix]bool{}
	for i := 0; i < n; {
		p, a := randomPrefix(r, i%2 == 0)
		if seen[p] {
			continue
		}
		seen[p] = true
		fmt.Fprintf(&t, "  - {name: r%d, from: [\"%s\"], %s, per: source}\n", i, p, generous)
		if a.Is4() {
			v4 = append(v4, a)
		} else {
			v6 = append(v6, a)
		}
		i++
	}
	for len(v4) < benchSources || len(v6) < benchSources {
		v4 = append(v4, within(r, v4[r.IntN(n/2)], 24))
		v6 = append(v6, within(r, v6[r.IntN(n/2)], 64))
	}
	return t.String(), v4[:benchSources], v6[:benchSources]
}

// randomPrefix returns a prefix with the lengths that lists of networks have, and an
// address in it.
func randomPrefix(r *rand.Rand, v4 bool) (netip.Prefix, netip.Addr) {
	var b [16]byte
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	if v4 {
		b[0] = 11 + b[0]%200
		a := netip.AddrFrom4([4]byte(b[:4]))
		bits := []int{8, 12, 16, 16, 20, 22, 24, 24, 24, 28, 32, 32}[r.IntN(12)]
		return netip.PrefixFrom(a, bits).Masked(), a
	}
	b[0], b[1] = 0x20, 1+b[1]%16
	a := netip.AddrFrom16(b)
	bits := []int{29, 32, 36, 40, 44, 48, 48, 56, 56, 64, 64, 128}[r.IntN(12)]
	return netip.PrefixFrom(a, bits).Masked(), a
}

// within returns another address with the same first bits.
func within(r *rand.Rand, a netip.Addr, bits int) netip.Addr {
	b := a.AsSlice()
	for i := bits / 8; i < len(b); i++ {
		b[i] = byte(r.Uint32())
	}
	out, _ := netip.AddrFromSlice(b)
	return out
}

// BenchmarkNewSource decides for sources never seen, each of which takes over a bucket of
// a table that is full.
func BenchmarkNewSource(b *testing.B) {
	for _, to := range []string{"10.0.0.1:80", "[fd00::1]:80"} {
		b.Run(family(to), func(b *testing.B) {
			n := loadBench(b, bucketPolicy(generous+", per: {v4: 32, v6: 128}"), 0)
			n.from(b, []netip.Addr{netip.MustParseAddr(source4or6(to))})
			f := syn(netip.AddrPortFrom(netip.MustParseAddr(source4or6(to)), 4000).String(), to).bytes(b)
			for range 2 * datapath.DefaultSources / benchRepeat {
				n.once(b, "bench_fresh", f, xdpPass)
			}
			n.measure(b, "bench_fresh", "bench_nothing", f)
			if u, err := n.s.Sources(); err != nil || u.Used < u.Size*99/100 {
				b.Fatalf("the table was not full: %+v, %v", u, err)
			}
		})
	}
}

// BenchmarkPassing is the cost for packets that are not policed, over an empty program.
func BenchmarkPassing(b *testing.B) {
	text, _, _ := manyRules(10_000)
	for _, c := range []struct {
		name  string
		frame *frame
	}{
		{"not a SYN/v4", with(func(f *frame) { f.tcp.SYN, f.tcp.ACK = false, true })},
		{"not a SYN/v6", with6(func(f *frame) { f.tcp.SYN, f.tcp.ACK = false, true })},
		{"SYN to no service/v4", with(func(f *frame) { f.to = addrPort("10.0.0.1:81") })},
		{"SYN to no service/v6", with6(func(f *frame) { f.to = addrPort("[fd00::1]:81") })},
		{"SYN forwarded/v4", with(func(f *frame) { f.to = addrPort("10.0.7.7:80") })},
	} {
		b.Run(c.name, func(b *testing.B) {
			n := loadBench(b, text, 0)
			n.measure(b, "narthex_xdp_syn", "bench_empty", c.frame.bytes(b))
		})
	}
}

// BenchmarkMirror is the cost of a decision that is copied, if the budget and the choice of sources allow
// it, in relation to one that is not, in turns: at worst one source makes all of a flood, and is chosen; else
// so many sources do that one of 64 is.
func BenchmarkMirror(b *testing.B) {
	for _, c := range []struct {
		name    string
		sources int
		mask    uint32
	}{{"one source", 1, 0}, {"many sources", benchSources, 63}} {
		b.Run(c.name, func(b *testing.B) {
			n := loadBench(b, bucketPolicy(generous+", per: source"), 0)
			var from []netip.Addr
			for i := range c.sources {
				from = append(from, netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)}))
			}
			n.from(b, from)
			f := syn("203.0.113.1:4000", "10.0.0.1:80").bytes(b)
			n.once(b, "bench_known", f, xdpPass)
			var ratios []float64
			for range benchRuns {
				bare := n.once(b, "bench_known", f, xdpPass) - n.once(b, "bench_nothing", f, xdpPass)
				n.copyUntil(b, ^uint64(0)>>1, c.mask)
				copied := n.once(b, "bench_known", f, xdpPass) - n.once(b, "bench_nothing", f, xdpPass)
				n.copyUntil(b, 0, 0)
				ratios = append(ratios, copied/bare)
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[benchRuns/2], "copied/not")
			b.ReportMetric(ratios[benchRuns*3/4]-ratios[benchRuns/4], "iqr")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// copyUntil has the benchmark programs copy what they decide about until then, in ns of their clock.
func (n *bench) copyUntil(b *testing.B, until uint64, mask uint32) {
	b.Helper()
	if err := n.Map("mirror").Put(uint32(0), struct {
		Until uint64
		Mask  uint32
		_     uint32
	}{Until: until, Mask: mask}); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkLists is what a decision costs more if the source is looked for among 5 million entries of lists, in
// one that has a part of the sources, over the same rule without lists; and how long the table takes to get there.
func BenchmarkLists(b *testing.B) {
	const entries = 5_000_000
	random := rand.New(rand.NewPCG(1, 2))
	address := func(is4 bool) netip.Addr {
		var a [16]byte
		for i := range a {
			a[i] = byte(random.Uint32())
		}
		if is4 {
			return netip.AddrFrom4([4]byte{1 + a[0]%220, a[1], a[2], a[3]})
		}
		return netip.AddrFrom16([16]byte{0x20, a[1] % 30, a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15]})
	}
	for _, to := range []string{"10.0.0.1:80", "[fd00::1]:80"} {
		b.Run(family(to), func(b *testing.B) {
			is4 := family(to) == "v4"
			var text []byte
			var from []netip.Addr
			for i := range entries {
				a := address(is4)
				if len(from) < benchSources && i%8 == 0 {
					from = append(from, a, address(is4)) // one that is in it, one that is hardly ever
				}
				text = append(a.AppendTo(text), '\n')
			}
			n := loadBench(b, "version: 1\nservices: [{name: shop, listen: [\"*:80\"]}]\nconnections:\n  - {name: all, "+generous+"}\n", 0)
			n.from(b, from[:benchSources])
			f := syn(netip.AddrPortFrom(from[0], 4000).String(), to).bytes(b)
			b.ReportMetric(0, "ns/op")
			without := n.median(b, f)
			began := time.Now()
			l, err := lists.Parse("bench", text, entries)
			if err != nil {
				b.Fatal(err)
			}
			read := time.Since(began)
			table, err := lists.Build([]*lists.List{l})
			if err != nil {
				b.Fatal(err)
			}
			built := time.Since(began)
			kernel, err := n.s.NewLists(table)
			if err != nil {
				b.Fatal(err)
			}
			p, _, err := policy.Parse("bench.yaml", []byte("version: 1\nlists: {a: {file: a}}\nservices: [{name: shop, listen: [\"*:80\"]}]\nconnections:\n  - {name: listed, from: \"@a\", "+generous+"}\n  - {name: all, "+generous+"}\n"))
			if err != nil {
				b.Fatal(err)
			}
			tables, _, err := policy.Compile(p)
			if err != nil {
				b.Fatal(err)
			}
			for i := range tables.Rules {
				tables.Rules[i].Interval = 1
			}
			if err := n.s.Apply(datapath.State{Tables: tables, Locals: locals, Lists: kernel}); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(time.Since(began).Seconds(), "s-to-publish")
			b.ReportMetric(read.Seconds(), "s-to-read")
			b.ReportMetric((built - read).Seconds(), "s-to-build")
			b.ReportMetric(float64(table.Bytes())/(1<<20), "MiB")
			b.ReportMetric(n.median(b, f)-without, "ns-more")
		})
	}
}

// median is that of the costs of a decision over those of the test run.
func (n *bench) median(b *testing.B, f []byte) float64 {
	b.Helper()
	n.once(b, "bench_known", f, xdpPass)
	var net []float64
	for range benchRuns {
		net = append(net, n.once(b, "bench_known", f, xdpPass)-n.once(b, "bench_nothing", f, xdpPass))
	}
	slices.Sort(net)
	return net[benchRuns/2]
}
