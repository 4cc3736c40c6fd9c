// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestDayIsInOrderAndOfItsLength(t *testing.T) {
	for _, n := range []int{0, 1, 50_000} {
		day := Generate(1, n)
		if len(day) != n {
			t.Fatalf("%d requests, want %d", len(day), n)
		}
		for i, r := range day {
			if r.At < 0 || r.At >= Day || i > 0 && r.At < day[i-1].At {
				t.Fatalf("request %d is at %v", i, r.At)
			}
			if r.Size < 1 {
				t.Fatalf("request %d has %d bytes", i, r.Size)
			}
		}
	}
}

func TestSeedMakesTheDay(t *testing.T) {
	if !slices.Equal(Generate(7, 5000), Generate(7, 5000)) {
		t.Error("one seed makes two days")
	}
	if slices.Equal(Generate(7, 5000), Generate(8, 5000)) {
		t.Error("two seeds make one day")
	}
}

func TestDayHasItsProfile(t *testing.T) {
	day := Generate(3, 400_000)
	hours := make([]float64, 24)
	seen := map[int]bool{}
	for _, r := range day {
		if !seen[r.Session] {
			seen[r.Session] = true
			hours[int(r.At.Hours())]++
		}
	}
	for h, n := range hours {
		want := profile(time.Duration(h)*time.Hour+30*time.Minute) / 24
		if got := n / float64(len(seen)); math.Abs(got/want-1) > 0.1 {
			t.Errorf("from %d h on: %.4f of the sessions, want %.4f", h, got, want)
		}
	}
}

// TestSession compares what a session has with the models' means.
func TestSession(t *testing.T) {
	day := Generate(4, 400_000)
	sessions, pages := map[int]bool{}, 0.0
	for _, r := range day {
		sessions[r.Session] = true
		if r.Page {
			pages++
		}
	}
	// Of a Pareto distribution that begins at 1, cut to whole numbers, the mean is Σ P(X ≥ n) = ζ(α).
	zeta := 0.0
	for n := 1.0; n < 1e5; n++ {
		zeta += math.Pow(n, -embeddedAlpha)
	}
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"pages of a session", pages / float64(len(sessions)), pagesMean},
		{"embedded files of a page", float64(len(day))/pages - 1, zeta},
	} {
		if math.Abs(c.got/c.want-1) > 0.03 {
			t.Errorf("%s: %.3f, want %.3f", c.what, c.got, c.want)
		}
	}
}

// hill estimates the index of a distribution's tail by the largest samples (Hill, Annals of
// Statistics 3, 1975).
func hill(samples []float64, largest int) float64 {
	s := slices.Sorted(slices.Values(samples))
	s = s[len(s)-largest-1:]
	sum := 0.0
	for _, v := range s[1:] {
		sum += math.Log(v / s[0])
	}
	return float64(largest) / sum
}

func TestTails(t *testing.T) {
	m := model{rand.New(rand.NewPCG(5, 5))}
	const n = 200_000
	for _, c := range []struct {
		what    string
		draw    func() float64
		largest int
		want    float64
	}{
		{"sizes", func() float64 { return float64(m.size()) }, n / 20, tailAlpha},
		{"times between pages", func() float64 { return m.inactive().Seconds() }, n / 10, inactiveAlpha},
		{"embedded files", func() float64 { return m.pareto(embeddedLeast, embeddedAlpha) }, n / 10, embeddedAlpha},
	} {
		samples := make([]float64, n)
		for i := range samples {
			samples[i] = c.draw()
		}
		// The estimate's error is about 1/√largest of it.
		if got := hill(samples, c.largest); math.Abs(got/c.want-1) > 0.05 {
			t.Errorf("%s: the tail's index is %.3f, want %.3f", c.what, got, c.want)
		}
	}
}

// TestBody compares quantiles below the tail with those of the models.
func TestBody(t *testing.T) {
	m := model{rand.New(rand.NewPCG(6, 6))}
	const n = 100_000
	for _, c := range []struct {
		what string
		draw func() float64
		want float64 // of the median
	}{
		// The body is cut off at the tail, which takes away so much of it.
		{"sizes", func() float64 { return float64(m.size()) }, bodyQuantile(0.5 / (1 - tailShare))},
		{"times between files", func() float64 { return m.active().Seconds() }, activeScale * math.Pow(math.Ln2, 1/activeShape)},
	} {
		samples := make([]float64, n)
		for i := range samples {
			samples[i] = c.draw()
		}
		slices.Sort(samples)
		if got := samples[n/2]; math.Abs(got/c.want-1) > 0.05 {
			t.Errorf("%s: the median is %.4g, want %.4g", c.what, got, c.want)
		}
	}
}

// bodyQuantile is one of the sizes that are less than those of the tail.
func bodyQuantile(share float64) float64 {
	below := (1 + math.Erf((math.Log(tailFrom)-bodyMu)/bodySigma/math.Sqrt2)) / 2
	return math.Exp(bodyMu + bodySigma*math.Sqrt2*math.Erfinv(2*share*below-1))
}
