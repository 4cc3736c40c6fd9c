// SPDX-License-Identifier: Apache-2.0

package http

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"narthex/test/draw"
	"narthex/test/http/httpprog"
	"narthex/test/twin"
)

// mostInstructions is the budget for the verifier's way through the scanner, of the million
// that a program has.
const mostInstructions = 150_000

// kernel is the scanner loaded.
type kernel struct {
	httpprog.HTTPObjects
}

func loadKernel(t testing.TB) *kernel {
	t.Helper()
	var k kernel
	twin.Load(t, httpprog.LoadHTTPObjects, &k.HTTPObjects)
	return &k
}

// scan is http_scan() in the kernel, by one of the programs.
func (k *kernel) scan(t testing.TB, p *ebpf.Program, b []byte) Result {
	t.Helper()
	ret := twin.Run(t, p, b)
	step, ok := steps[ret]
	if !ok {
		t.Fatalf("http_scan() returned %d\n%q", ret, b)
	}
	var used uint32
	var inBody, pastLine, preface bool
	var head httpprog.HTTPHttpHead
	twin.Get(t, k.Used, &used)
	twin.Get(t, k.Head, &head)
	twin.Get(t, k.InBody, &inBody)
	twin.Get(t, k.PastLine, &pastLine)
	twin.Get(t, k.Preface, &preface)
	r, err := result(step, int(used), said{head.Length, head.Flags, head.Seen, head.Size, inBody, pastLine, preface})
	if err != nil {
		t.Fatalf("%v\n%q", err, b)
	}
	return r
}

// scanAnswer is answer_scan() in the kernel.
func (k *kernel) scanAnswer(t testing.TB, b []byte) Answer {
	t.Helper()
	step := steps[twin.Run(t, k.HttpResponse, b)]
	var a httpprog.HTTPHttpAnswer
	var used uint32
	twin.Get(t, k.Answer, &a)
	twin.Get(t, k.Used, &used)
	return answerOf(step, int(used), int(a.Status), int(a.At), a.Head.Flags, a.Head.Seen, a.Head.Length, Label{a.Head.Label.Class, int(a.Head.Label.Lasts)})
}

// TestKernel compares what the kernel's form of the scanner says with what the native form
// does, which all other tests are of.
func TestKernel(t *testing.T) {
	k, a := loadKernel(t), testArena(t)
	check := func(b []byte) {
		t.Helper()
		b = b[:min(len(b), mostBytes)]
		if got, want := k.scan(t, k.HttpFollow, b), scan(t, a, b, twin.Whole, twin.Whole); got != want {
			t.Errorf("http_scan() and http_skip() say in the kernel %+v\nnatively                                     %+v\n%q", got, want, b)
		}
		b = b[:min(len(b), chunkSize)]
		if got, want := k.scan(t, k.HttpRequest, b), scan(t, a, b, twin.Whole, twin.None); got != want {
			t.Errorf("http_scan() says in the kernel %+v\nnatively                      %+v\n%q", got, want, b)
		}
		if got, want := k.scanAnswer(t, b), scanAnswer(t, a, b, twin.Whole, twin.None); got != want {
			t.Errorf("answer_scan() says in the kernel %+v\nnatively                        %+v\n%q", got, want, b)
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
	for choices := range draw.Recipes(rand.NewChaCha8([32]byte{4}), 5_000, 250) {
		for _, make := range []func(*recipe) []byte{(*recipe).stream, (*recipe).answer} {
			r := recipe{choices}
			if b := make(&r); len(b) > 0 {
				check(b)
			}
		}
	}
}

// TestVerifierCost keeps the scanner well within what the verifier looks at.
func TestVerifierCost(t *testing.T) {
	k := loadKernel(t)
	twin.CheckCost(t, mostInstructions, map[string]*ebpf.Program{
		"http_nothing": k.HttpNothing, "http_request": k.HttpRequest, "http_response": k.HttpResponse, "http_follow": k.HttpFollow,
	})
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
	f := twin.Frame([]byte(text))
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
