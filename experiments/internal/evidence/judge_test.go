// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestHolds(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		name  string
		claim Claim
		want  Verdict
	}{
		{"at the bound from below", AtLeast(Figure, "", "", 2, 1, 2, 3), Holds},
		{"below it", AtLeast(Figure, "", "", 2.01, 1, 2, 3), Fails},
		{"at the bound from above", AtMost(Figure, "", "", 2, 1, 2, 3), Holds},
		{"above it", AtMost(Figure, "", "", 1.99, 1, 2, 3), Fails},
		{"within a range", Between(Shape, "", "", 1, 2, 1.5), Holds},
		{"below a range", Between(Shape, "", "", 1, 2, 0.9), Fails},
		{"above a range", Between(Shape, "", "", 1, 2, 2.1), Fails},
		{"one outlier of three", AtMost(Shape, "", "", 2, 1, 2, 100), Holds},
		{"the mean of the two in the middle", AtLeast(Shape, "", "", 2.5, 4, 1, 2, 3), Holds},
		{"infinite", AtLeast(Shape, "", "", 2, inf, inf), Holds},
		{"no samples", AtLeast(Shape, "", "", 0), NotJudged},
		{"no number", AtLeast(Shape, "", "", 0, 1, nan, 2), NotJudged},
		{"no bound", Claim{Samples: []float64{1}}, NotJudged},
	} {
		if got := c.claim.Verdict(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if c.claim.Holds() != (c.want == Holds) {
			t.Errorf("%s: Holds() is %v", c.name, c.claim.Holds())
		}
	}
}

func TestVerdict(t *testing.T) {
	good, bad, unmeasured := AtLeast(Shape, "", "", 1, 2), AtLeast(Figure, "", "", 3, 2), AtLeast(Figure, "", "", 3)
	for _, c := range []struct {
		name                string
		result              Result
		all, shape, figures Verdict
	}{
		{"all hold", Result{Claims: []Claim{good, AtMost(Figure, "", "", 2, 1)}}, Holds, Holds, Holds},
		{"of one kind", Result{Claims: []Claim{good}}, Holds, Holds, NoClaim},
		{"a figure fails", Result{Claims: []Claim{good, bad}}, Fails, Holds, Fails},
		{"a figure is missing", Result{Claims: []Claim{good, unmeasured}}, NotJudged, Holds, NotJudged},
		{"one is missing, one fails", Result{Claims: []Claim{unmeasured, bad, good}}, Fails, Holds, Fails},
		{"no claims", Result{}, NotJudged, NotJudged, NotJudged},
		{"an invalid run", Result{Claims: []Claim{good, bad}, Invalid: []string{"x"}}, NotJudged, NotJudged, NotJudged},
		{"a run done again", Result{Claims: []Claim{good}, Repeated: []string{"x"}}, Holds, Holds, NoClaim},
	} {
		r := &c.result
		if r.Verdict() != c.all || r.VerdictOn(Shape) != c.shape || r.VerdictOn(Figure) != c.figures {
			t.Errorf("%s: %s, shape %s, figures %s; want %s, %s, %s", c.name,
				r.Verdict(), r.VerdictOn(Shape), r.VerdictOn(Figure), c.all, c.shape, c.figures)
		}
	}
}

func TestStanding(t *testing.T) {
	for _, c := range []struct {
		samples []float64
		low     bool
		want    Standing
	}{
		{[]float64{1.2, 1.3, 1.1}, false, Better},
		{[]float64{1.2, 1.3, 1.1}, true, Worse},
		{[]float64{0.8, 0.9, 0.7}, false, Worse},
		{[]float64{0.8, 0.9, 0.7}, true, Better},
		{[]float64{0.8, 0.9, 1.001}, false, Alike},
		{[]float64{0.975, 0.98, 0.96}, false, Alike},
		{[]float64{0.96}, false, Worse},
		{[]float64{math.Inf(1)}, false, Better},
		{[]float64{math.NaN()}, false, NotCompared},
		{nil, true, NotCompared},
	} {
		q := Ratio{Samples: c.samples, Low: c.low}
		if got := q.Standing(); got != c.want {
			t.Errorf("%v, less is better %v: %s, want %s", c.samples, c.low, got, c.want)
		}
	}
}

// TestPeersFirst has what a peer does better said before everything else.
func TestPeersFirst(t *testing.T) {
	r := &Result{
		Claims: []Claim{AtLeast(Shape, "rises", "", 1, 2), AtLeast(Figure, "is reached", "/s", 3, 2)},
		Ratios: []Ratio{
			{What: "rate", Peer: "nothing", Samples: []float64{30}},
			{What: "rate", Peer: "nginx", Samples: []float64{1}},
			{What: "p99", Peer: "HAProxy", Samples: []float64{1.2, 1.4, 1.3}, Low: true},
			{What: "rate", Peer: "nginx", Samples: []float64{0.5}},
		},
	}
	want := []string{
		"Worse than HAProxy: p99, ours is 1.3 (1.2 to 1.4) × theirs; less is better.",
		"Worse than nginx: rate, ours is 0.5 × theirs.",
		"Does not hold: is reached; wanted ≥ 3 /s, got 2 /s.",
		"Holds: rises; wanted ≥ 1, got 2.",
		"Like nginx: rate, ours is 1 × theirs.",
		"Better than nothing: rate, ours is 30 × theirs.",
	}
	if got := r.Findings(); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	var peers []string
	for _, p := range r.ByPeer() {
		peers = append(peers, p.Peer)
		if p.Peer == "nginx" && (p.Of != 2 || p.Samples[0] != 0.5) {
			t.Errorf("nginx: %v of %d, want the least favourable of 2", p.Samples, p.Of)
		}
	}
	if want := []string{"HAProxy", "nginx", "nothing"}; !slices.Equal(peers, want) {
		t.Errorf("peers %v, want %v", peers, want)
	}
}

// TestInvalidComparison has ratios of an invalid result speak against us alone.
func TestInvalidComparison(t *testing.T) {
	r := &Result{Invalid: []string{"x"}, Ratios: []Ratio{{Peer: "a", Samples: []float64{2}}, {Peer: "b", Samples: []float64{0.5}}}}
	all := r.Compared()
	if all[0].Peer != "b" || all[0].Standing != Worse || all[1].Standing != NotCompared {
		t.Errorf("compared: %+v", all)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 3: "3", 0.5: "0.5", 1.234: "1.23", 12.345: "12.3", 123.4: "123", 12345.6: "12,346", 1e6: "1,000,000",
		-1234: "-1,234", 0.01234: "0.0123", 99.96: "100", math.Inf(1): "∞", math.Inf(-1): "-∞",
	} {
		if got := Number(v); got != want {
			t.Errorf("Number(%v) = %q, want %q", v, got, want)
		}
	}
}
