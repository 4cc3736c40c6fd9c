// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// Figure is one row of the table.
type Figure struct {
	Part, What, Unit string
	Samples          []float64
	Wanted           *Bound // nil: for information
	Note             string // on how to read it, or why it was not measured
}

// Bound is what a figure must keep to.
type Bound struct {
	least, most float64
	every       bool // each sample must, not just their median
}

// AtMost is a bound of the median from above, AtLeast one from below.
func AtMost(v float64) *Bound  { return &Bound{least: math.Inf(-1), most: v} }
func AtLeast(v float64) *Bound { return &Bound{least: v, most: math.Inf(1)} }

// Always is a bound that no sample may exceed.
func Always(least, most float64) *Bound { return &Bound{least, most, true} }

func (b *Bound) String() string {
	switch {
	case b == nil:
		return ""
	case b.least == b.most:
		return Number(b.least)
	case b.least == -b.most:
		return "±" + Number(b.most)
	case math.IsInf(b.least, -1):
		return "≤ " + Number(b.most)
	case math.IsInf(b.most, 1):
		return "≥ " + Number(b.least)
	}
	return Number(b.least) + "–" + Number(b.most)
}

// holds reports whether the figure keeps to its bound. One without samples does not.
func (f *Figure) holds() bool {
	if f.Wanted == nil {
		return true
	}
	if len(f.Samples) == 0 {
		return false
	}
	judged := []float64{f.Median()}
	if f.Wanted.every {
		judged = f.Samples
	}
	return !slices.ContainsFunc(judged, func(v float64) bool { return !(v >= f.Wanted.least && v <= f.Wanted.most) })
}

func allHold(figures []Figure) bool {
	return !slices.ContainsFunc(figures, func(f Figure) bool { return !f.holds() })
}

// Median is the sample in the middle, NaN without samples.
func (f *Figure) Median() float64 { return f.quantile(0.5) }

// Median is that of the samples, NaN if there are none.
func Median(samples []float64) float64 { return (&Figure{Samples: samples}).Median() }

// Interval is one in which the median of what was sampled is with a probability of 95 %, or all samples where they
// are too few for that.
func Interval(samples []float64) (low, high float64) {
	s := slices.Sorted(slices.Values(samples))
	if len(s) == 0 {
		return math.NaN(), math.NaN()
	}
	n := float64(len(s))
	k := max(0, int(math.Floor((n-1.96*math.Sqrt(n))/2))-1)
	return s[k], s[len(s)-1-k]
}

// quantile interpolates between samples.
func (f *Figure) quantile(share float64) float64 {
	if len(f.Samples) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(f.Samples))
	at := share * float64(len(s)-1)
	low := int(at)
	high := min(low+1, len(s)-1)
	return s[low] + (at-float64(low))*(s[high]-s[low])
}

// verdict is the last column.
func (f *Figure) verdict() string {
	switch {
	case f.Wanted == nil:
		return ""
	case f.holds():
		return "yes"
	case len(f.Samples) == 0:
		return "NOT MEASURED"
	}
	return "NO"
}

// Spread is the quartiles, or nothing for a single sample.
func (f *Figure) Spread() string {
	if len(f.Samples) < 2 {
		return ""
	}
	return fmt.Sprintf("%s–%s (%d)", Number(f.quantile(0.25)), Number(f.quantile(0.75)), len(f.Samples))
}

func printTable(w io.Writer, figures []Figure) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\tfigure\tmedian\tquartiles (samples)\twanted\tholds?")
	last := ""
	for _, f := range figures {
		part, median := f.Part, ""
		if part == last {
			part = ""
		}
		last = f.Part
		if len(f.Samples) > 0 {
			median = strings.TrimSpace(Number(f.Median()) + " " + f.Unit)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", part, f.What, median, f.Spread(), f.Wanted, f.verdict())
	}
	t.Flush()
	for _, f := range figures {
		if f.Note != "" {
			fmt.Fprintf(w, "%s, %s: %s\n", f.Part, f.What, f.Note)
		}
	}
}

// Number writes four significant digits.
func Number(v float64) string {
	switch a := math.Abs(v); {
	case v == math.Trunc(v), a >= 1000:
		return fmt.Sprintf("%.0f", v)
	case a >= 100:
		return fmt.Sprintf("%.1f", v)
	case a >= 10:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// MarshalJSON adds what follows from the samples.
func (f Figure) MarshalJSON() ([]byte, error) {
	row := map[string]any{"part": f.Part, "what": f.What, "unit": f.Unit, "note": f.Note, "samples": f.Samples}
	if len(f.Samples) > 0 {
		row["median"] = f.Median()
		row["quartiles"] = [2]float64{f.quantile(0.25), f.quantile(0.75)}
	}
	if f.Wanted != nil {
		row["wanted"], row["holds"] = f.Wanted.String(), f.holds()
	}
	return json.Marshal(row)
}
