// SPDX-License-Identifier: Apache-2.0

package http

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"narthex/test/http/httpprog"
)

// mostInstructions is the budget for the verifier's way through the scanner, of the million
// that a program has.
const mostInstructions = 150_000

// What a test run wants in front of what is scanned: an Ethernet header of no protocol that
// the kernel looks into.
var ethernet = [14]byte{12: 0x88, 13: 0xb5}

// stepNames translates enum http_step as the programs return it.
var stepNames = map[uint32]Step{0: More, 1: End, 2: Lost}

// kernel is the scanner loaded.
type kernel struct {
	httpprog.HTTPObjects
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
	if err := httpprog.LoadHTTPObjects(&k.HTTPObjects, nil); err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { k.Close() })
	return &k
}

func frame(b []byte) []byte { return append(ethernet[:], b...) }

// scan is http_scan() in the kernel, by one of the programs.
func (k *kernel) scan(t testing.TB, p *ebpf.Program, b []byte) Result {
	t.Helper()
	ret, err := p.Run(&ebpf.RunOptions{Data: frame(b)})
	if err != nil {
		t.Fatal(err)
	}
	step, ok := stepNames[ret]
	if !ok {
		t.Fatalf("http_scan() returned %d\n%q", ret, b)
	}
	var used uint32
	var inBody, pastLine, preface bool
	var head httpprog.HTTPHttpHead
	if err := k.Used.Get(&used); err != nil {
		t.Fatal(err)
	}
	if err := k.Head.Get(&head); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[*ebpf.Variable]*bool{k.InBody: &inBody, k.PastLine: &pastLine, k.Preface: &preface} {
		if err := from.Get(to); err != nil {
			t.Fatal(err)
		}
	}
	r, err := result(step, int(used), said{head.Length, head.Flags, head.Seen, head.Size, inBody, pastLine, preface})
	if err != nil {
		t.Fatalf("%v\n%q", err, b)
	}
	return r
}

// readAnswer is read_response() in the kernel.
func (k *kernel) readAnswer(t testing.TB, b []byte) Answer {
	t.Helper()
	if _, err := k.HttpResponse.Run(&ebpf.RunOptions{Data: frame(b)}); err != nil {
		t.Fatal(err)
	}
	var a httpprog.HTTPHttpAnswer
	if err := k.Answer.Get(&a); err != nil {
		t.Fatal(err)
	}
	return Answer{int(a.Status), a.Closes, a.Ended}
}

// TestKernel compares what the kernel's form of the scanner says with what the native form
// does, which all other tests are of.
func TestKernel(t *testing.T) {
	k, a := loadKernel(t), testArena(t)
	check := func(b []byte) {
		t.Helper()
		b = b[:min(len(b), mostBytes)]
		if got, want := k.scan(t, k.HttpFollow, b), scan(t, a, b, whole, whole); got != want {
			t.Errorf("http_scan() and http_skip() say in the kernel %+v\nnatively                                     %+v\n%q", got, want, b)
		}
		b = b[:min(len(b), chunkSize)]
		if got, want := k.scan(t, k.HttpRequest, b), scan(t, a, b, whole, none); got != want {
			t.Errorf("http_scan() says in the kernel %+v\nnatively                      %+v\n%q", got, want, b)
		}
		if got, want := k.readAnswer(t, b), a.readAnswer(b, nil); got != want {
			t.Errorf("read_response() says in the kernel %+v\nnatively                          %+v\n%q", got, want, b)
		}
	}
	for _, h := range heads {
		check([]byte(h.text))
		check([]byte(h.text)[:1+len(h.text)/2])
	}
	for _, r := range responses {
		for n := range len(r.text) {
			check([]byte(r.text)[:n+1])
		}
	}
	for _, text := range denseAnswers() {
		check([]byte(text))
	}
	random := rand.NewChaCha8([32]byte{4})
	choices := make([]byte, 250)
	for range 5_000 {
		_, _ = random.Read(choices) // cannot fail
		for _, make := range []func(*recipe) []byte{(*recipe).stream, (*recipe).answer} {
			r := recipe(choices)
			if b := make(&r); len(b) > 0 {
				check(b)
			}
		}
	}
}

// TestVerifierCost keeps the scanner well within what the verifier looks at.
func TestVerifierCost(t *testing.T) {
	k := loadKernel(t)
	for name, p := range map[string]*ebpf.Program{
		"http_nothing": k.HttpNothing, "http_request": k.HttpRequest, "http_response": k.HttpResponse, "http_follow": k.HttpFollow,
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

// Each figure is the median of so many test runs of so many frames.
const (
	benchRuns   = 31
	benchRepeat = 100_000
)

// once returns what a run of a program takes, in ns.
func once(b *testing.B, p *ebpf.Program, frame []byte) float64 {
	b.Helper()
	_, d, err := p.Benchmark(frame, benchRepeat, nil)
	if err != nil {
		b.Fatal(err)
	}
	return float64(d.Nanoseconds())
}

// measure reports what a program costs over one that only copies the bytes, run in turns.
func (k *kernel) measure(b *testing.B, p *ebpf.Program, text string) {
	b.Helper()
	f := frame([]byte(text))
	once(b, p, f) // warms caches
	var net, empty []float64
	for range benchRuns {
		all, copied, nothing := once(b, p, f), once(b, k.HttpNothing, f), once(b, k.HttpEmpty, f)
		net, empty = append(net, all-copied), append(empty, copied-nothing)
	}
	slices.Sort(net)
	slices.Sort(empty)
	b.ReportMetric(net[benchRuns/2], "ns/scan")
	b.ReportMetric(net[benchRuns/2]/float64(len(text)), "ns/byte")
	b.ReportMetric(net[benchRuns*3/4]-net[benchRuns/4], "ns-iqr")
	b.ReportMetric(empty[benchRuns/2], "ns/copy")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkScan reads requests of one segment, or the first chunk of one.
func BenchmarkScan(b *testing.B) {
	k := loadKernel(b)
	for _, c := range []struct{ name, text string }{
		{"wrk", wrk}, {"curl", curl}, {"browser", browser}, {"post", post}, {"cookies", cookies}, {"chunks", chunks},
	} {
		text := c.text[:min(len(c.text), chunkSize)]
		b.Run(fmt.Sprintf("%s-%d", c.name, len(text)), func(b *testing.B) { k.measure(b, k.HttpRequest, text) })
	}
}

// BenchmarkAnswer reads the head of a response.
func BenchmarkAnswer(b *testing.B) {
	k := loadKernel(b)
	b.Run(fmt.Sprintf("nginx-%d", len(nginx)), func(b *testing.B) { k.measure(b, k.HttpResponse, nginx) })
}
