// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg/draw"
)

// scale is what an axis shows.
type scale struct {
	log         bool
	least, most float64
	ticks       []plot.Tick
}

// drawable reports whether a point has a place.
func drawable(p Point) bool {
	m := Median(p.Samples)
	return !math.IsNaN(m) && !math.IsInf(m, 0) && !math.IsNaN(p.X) && !math.IsInf(p.X, 0)
}

// scales are what the axes show: all points with their bars.
func (p *Plot) scales() (x, y *scale) {
	var xs, ys []float64
	for _, s := range p.Series {
		for _, point := range s.Points {
			if drawable(point) {
				xs = append(xs, point.X)
				ys = append(ys, point.Samples...)
			}
		}
	}
	if n := len(p.X.Ticks); n > 0 {
		x = &scale{least: -0.4, most: float64(n) - 0.6, ticks: named(p.X.Ticks)}
	} else {
		x = newScale(p.X, xs, false)
	}
	return x, newScale(p.Y, ys, true)
}

// named are the ticks of x = 0, 1, 2, …
func named(names []string) (ticks []plot.Tick) {
	for i, name := range names {
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: name})
	}
	return ticks
}

// newScale has all finite values within it. A linear one begins at 0, unless it need not and all
// are far from it. A logarithmic one has no place for 0, which is drawn at its lower end, below
// everything else.
func newScale(a Axis, values []float64, zero bool) *scale {
	s := &scale{log: a.Log, least: math.Inf(1), most: math.Inf(-1)}
	below := false
	for _, v := range values {
		switch {
		case math.IsInf(v, 0):
		case a.Log && v <= 0:
			below = true
		default:
			s.least, s.most = min(s.least, v), max(s.most, v)
		}
	}
	switch {
	case s.least > s.most: // nothing is drawn
		s.least, s.most = 0, 1
		if a.Log {
			s.least = 0.1
		}
	case a.Log && below:
		s.least /= 3
	}
	if a.Log {
		s.least, s.most = nice(s.least, false), nice(s.most, true)
		if s.least == s.most {
			s.most = nice(2*s.most, true)
		}
		s.ticks = decades(s.least, s.most)
		if below {
			s.ticks = append([]plot.Tick{{Value: s.least, Label: "0"}}, slices.DeleteFunc(s.ticks, func(t plot.Tick) bool { return t.Value < 2*s.least })...)
		}
		return s
	}
	if zero || s.least < 0.3*s.most {
		s.least = min(s.least, 0)
	}
	if s.least == s.most {
		s.least, s.most = s.least-0.5, s.most+0.5
		if zero {
			s.least, s.most = 0, 1
		}
	}
	margin := 0.03 * (s.most - s.least)
	s.most += margin
	if s.least != 0 {
		s.least -= margin
	}
	s.ticks = steps(s.least, s.most)
	return s
}

// nice is 1, 2 or 5 times a power of ten next to a value.
func nice(v float64, above bool) float64 {
	ten := math.Pow10(int(math.Floor(math.Log10(v))))
	const close = 1 + 1e-9
	steps := []float64{1, 2, 5, 10}
	if above {
		for _, s := range steps {
			if v <= s*ten*close {
				return s * ten
			}
		}
	}
	below := ten
	for _, s := range steps {
		if v >= s*ten/close {
			below = s * ten
		}
	}
	return below
}

// decades are ticks of a logarithmic axis: labelled powers of ten, on a short one also twice and
// five times these.
func decades(least, most float64) (ticks []plot.Tick) {
	short := most/least < 200
	for e := math.Floor(math.Log10(least)); e <= math.Ceil(math.Log10(most)); e++ {
		for i := 1.0; i < 10; i++ {
			v := i * math.Pow10(int(e))
			if v < least*(1-1e-9) || v > most*(1+1e-9) {
				continue
			}
			t := plot.Tick{Value: v}
			if i == 1 || short && (i == 2 || i == 5) {
				t.Label = Number(v)
			}
			ticks = append(ticks, t)
		}
	}
	return ticks
}

// steps are about six labelled ticks of a linear axis.
func steps(least, most float64) (ticks []plot.Tick) {
	step := nice((most-least)/7, true)
	for i := math.Ceil(least / step); i*step <= most; i++ {
		ticks = append(ticks, plot.Tick{Value: i * step, Label: Number(i * step)})
	}
	return ticks
}

// within is a value as the axis can show it.
func (s *scale) within(v float64) float64 { return max(s.least, min(s.most, v)) }

// dress gives the diagram's axis its ticks and kind.
func (s *scale) dress(a *plot.Axis) {
	a.Tick.Label.Font = style(9.5).Font
	a.LineStyle = draw.LineStyle{Color: black, Width: 0.8}
	a.Padding = 0
	if s.log {
		a.Scale = plot.LogScale{}
	}
	a.Tick.Marker = plot.ConstantTicks(s.ticks)
}

// limit sets the diagram's range.
func (s *scale) limit(a *plot.Axis) { a.Min, a.Max = s.least, s.most }
