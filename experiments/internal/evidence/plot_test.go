// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// plots are of all kinds of axes, and with all that experiments may find.
func plots() map[string]*Plot {
	line := func(name string, ours bool, ys ...float64) Series {
		s := Series{Name: name, Ours: ours}
		for i, y := range ys {
			s.Points = append(s.Points, Point{float64(100 * i), []float64{y, 1.1 * y, 0.9 * y}})
		}
		return s
	}
	linear := &Plot{Title: "A <plot> & more", X: Axis{Label: "offered (/s)"}, Y: Axis{Label: "served (/s)"}, Series: []Series{
		line("Narthex", true, 380, 381, 379), line("nothing", false, 380, 90, 10), line("nginx limit_req", false, 360, 300, 200),
	}}
	log := &Plot{Title: "log", X: Axis{Label: "x", Log: true}, Y: Axis{Label: "y", Log: true}, Series: []Series{
		line("Narthex", true, 380, 0, 379e3), line("nothing", false, 0, 0, 0),
	}}
	ticks := &Plot{Title: "names", X: Axis{Label: "limit", Ticks: []string{"none", "(300, 300)"}}, Series: []Series{
		{Name: "high", Ours: true, Points: []Point{{0, []float64{1}}, {1, []float64{2}}}},
	}}
	odd := line("odd", false, math.NaN(), math.Inf(1), 5)
	odd.Points = append(odd.Points, Point{X: 7}, Point{X: 8, Samples: []float64{1, 2, math.Inf(1)}})
	return map[string]*Plot{
		"linear": linear, "log": log, "ticks": ticks, "empty": {}, "odd": {Series: []Series{odd}},
		"log of nothing": {X: Axis{Log: true}, Y: Axis{Log: true}, Series: []Series{line("0", true, 0)}},
		"flat":           {Series: []Series{line("0", true, 0, 0)}}, "far": {Series: []Series{{Points: []Point{{5e6, []float64{3}}}}}},
	}
}

func TestPlots(t *testing.T) {
	for name, p := range plots() {
		first, again := t.TempDir(), t.TempDir()
		for _, dir := range []string{first, again} {
			if err := p.write(dir, "plot"); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		for _, file := range []string{"plot.svg", "plot.png"} {
			a, b := read(t, first, file), read(t, again, file)
			if !bytes.Equal(a, b) {
				t.Errorf("%s: %s is another one each time", name, file)
			}
		}
		svg := read(t, first, "plot.svg")
		texts := wellFormed(t, string(svg), true)
		if bytes.Count(svg, []byte("<text ")) != bytes.Count(svg, []byte(" textLength=")) {
			t.Errorf("%s: some texts are as wide as a font happens to be", name)
		}
		if bytes.Contains(svg, []byte("NaN")) || bytes.Contains(svg, []byte("Inf")) {
			t.Errorf("%s: the diagram has places that are none", name)
		}
		for _, want := range append([]string{p.Title, p.X.Label, p.Y.Label}, p.X.Ticks...) {
			if !strings.Contains(texts, want) {
				t.Errorf("%s: the diagram does not say %q", name, want)
			}
		}
		for _, s := range p.Series {
			if !strings.Contains(texts, s.Name) {
				t.Errorf("%s: no line is called %q", name, s.Name)
			}
		}
		picture, err := png.Decode(bytes.NewReader(read(t, first, "plot.png")))
		if err != nil || picture.Bounds().Dx() != plotWidth*pngDPI/72 {
			t.Errorf("%s: picture: %v", name, err)
		} else if r, g, b, a := picture.At(1, 1).RGBA(); r&g&b&a != 0xffff {
			t.Errorf("%s: the background is not white", name)
		}
	}
}

// TestLooks has each of many lines look unlike every other, without its colour, too.
func TestLooks(t *testing.T) {
	p := &Plot{}
	for i := range 12 {
		p.Series = append(p.Series, Series{Ours: i < 4})
	}
	type seen struct {
		shape  any
		dashes int
		width  float64
	}
	all := map[seen]bool{}
	for _, l := range p.looks() {
		all[seen{l.glyph.Shape, len(l.line.Dashes)*10 + int(sum(l)), float64(l.line.Width)}] = true
	}
	if len(all) != len(p.Series) {
		t.Errorf("%d lines have %d looks in grey", len(p.Series), len(all))
	}
}

func sum(l look) (length float64) {
	for _, d := range l.line.Dashes {
		length += float64(d)
	}
	return length
}

func TestScale(t *testing.T) {
	for _, c := range []struct {
		name        string
		axis        Axis
		values      []float64
		zero        bool
		least, most float64
	}{
		{"from 0", Axis{}, []float64{100, 200}, true, 0, 206},
		{"far from 0", Axis{}, []float64{100, 200}, false, 97, 203},
		{"not far from 0", Axis{}, []float64{10, 200}, false, 0, 206},
		{"decades", Axis{Log: true}, []float64{3, 700}, true, 2, 1000},
		{"0 has a place below", Axis{Log: true}, []float64{0, 3, 700}, true, 1, 1000},
		{"one value", Axis{Log: true}, []float64{10}, true, 10, 20},
	} {
		s := newScale(c.axis, c.values, c.zero)
		if math.Abs(s.least-c.least) > 1e-9 || math.Abs(s.most-c.most) > 1e-9 {
			t.Errorf("%s: %v to %v, want %v to %v", c.name, s.least, s.most, c.least, c.most)
		}
	}
}

func read(t *testing.T, dir, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// wellFormed fails unless all elements are closed, and returns the text between them.
func wellFormed(t *testing.T, page string, strict bool) (text string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict, d.AutoClose, d.Entity = strict, xml.HTMLAutoClose, xml.HTMLEntity
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return text
		}
		if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
		if chars, ok := token.(xml.CharData); ok {
			text += string(chars)
		}
	}
}
