// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// look is how a series is drawn. Colour, shape and dashes each tell series apart, so that those do
// who see no colours.
type look struct {
	line  draw.LineStyle
	glyph draw.GlyphStyle
}

// Colours that nearly everybody can tell apart: Okabe and Ito, Color Universal Design, 2008, without
// the yellow, which is too bright on white.
var (
	blue       = color.RGBA{0x00, 0x72, 0xB2, 0xFF}
	vermillion = color.RGBA{0xD5, 0x5E, 0x00, 0xFF}
	green      = color.RGBA{0x00, 0x9E, 0x73, 0xFF}
	orange     = color.RGBA{0xE6, 0x9F, 0x00, 0xFF}
	purple     = color.RGBA{0xCC, 0x79, 0xA7, 0xFF}
	sky        = color.RGBA{0x56, 0xB4, 0xE9, 0xFF}
	black      = color.RGBA{0x00, 0x00, 0x00, 0xFF}
	grey       = color.RGBA{0xDD, 0xDD, 0xDD, 0xFF}
)

// Ours have thick whole lines and filled shapes, peers thin lines with dashes and open shapes.
var (
	ourColours  = []color.Color{blue, vermillion, black, purple}
	ourShapes   = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, diamond{}}
	peerColours = []color.Color{green, orange, purple, sky, black, vermillion}
	peerShapes  = []draw.GlyphDrawer{draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.CrossGlyph{}, draw.RingGlyph{}, diamond{open: true}}
	peerDashes  = [][]vg.Length{nil, {6, 3}, {2, 2}, {8, 3, 2, 3}}
)

// looks are those of the series.
func (p *Plot) looks() []look {
	var all []look
	ours, peers := 0, 0
	for _, s := range p.Series {
		var l look
		if s.Ours {
			l.line = draw.LineStyle{Color: ourColours[ours%len(ourColours)], Width: 2.4}
			l.glyph = draw.GlyphStyle{Color: l.line.Color, Radius: 3.6, Shape: ourShapes[ours%len(ourShapes)]}
			ours++
		} else {
			l.line = draw.LineStyle{Color: peerColours[peers%len(peerColours)], Width: 1.1, Dashes: peerDashes[peers%len(peerDashes)]}
			l.glyph = draw.GlyphStyle{Color: l.line.Color, Radius: 3.4, Shape: peerShapes[peers%len(peerShapes)]}
			peers++
		}
		all = append(all, l)
	}
	return all
}

// diamond is a shape that the library lacks.
type diamond struct{ open bool }

// DrawGlyph draws it.
func (d diamond) DrawGlyph(c *draw.Canvas, s draw.GlyphStyle, at vg.Point) {
	r := s.Radius * 1.2
	var p vg.Path
	p.Move(vg.Point{X: at.X - r, Y: at.Y})
	p.Line(vg.Point{X: at.X, Y: at.Y + r})
	p.Line(vg.Point{X: at.X + r, Y: at.Y})
	p.Line(vg.Point{X: at.X, Y: at.Y - r})
	p.Close()
	c.SetLineStyle(draw.LineStyle{Color: s.Color, Width: 0.6})
	if c.Stroke(p); !d.open {
		c.Fill(p)
	}
}

// line is a series in a diagram: through the medians, with bars from the least to the most sample.
type line struct {
	Series
	look
	x, y *scale
}

// Plot draws it.
func (l *line) Plot(c draw.Canvas, p *plot.Plot) {
	toX, toY := p.Transforms(&c)
	bar := draw.LineStyle{Color: l.line.Color, Width: 0.9}
	var at []vg.Point
	for _, point := range l.Points {
		if !drawable(point) {
			continue
		}
		x := toX(l.x.within(point.X))
		least, most := Range(point.Samples)
		low, high := toY(l.y.within(least)), toY(l.y.within(most))
		if len(point.Samples) > 1 {
			c.StrokeLine2(bar, x, low, x, high)
			c.StrokeLine2(bar, x-3, low, x+3, low)
			c.StrokeLine2(bar, x-3, high, x+3, high)
		}
		at = append(at, vg.Point{X: x, Y: toY(l.y.within(Median(point.Samples)))})
	}
	if len(at) > 1 {
		c.StrokeLines(l.line, at)
	}
	for _, point := range at {
		c.DrawGlyphNoClip(l.glyph, point)
	}
}

// grid is pale lines at labelled ticks.
type grid struct{}

// Plot draws it.
func (grid) Plot(c draw.Canvas, p *plot.Plot) {
	toX, toY := p.Transforms(&c)
	pale := draw.LineStyle{Color: grey, Width: 0.5}
	for _, t := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
		if x := toX(t.Value); !t.IsMinor() && c.ContainsX(x) {
			c.StrokeLine2(pale, x, c.Min.Y, x, c.Max.Y)
		}
	}
	for _, t := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
		if y := toY(t.Value); !t.IsMinor() && c.ContainsY(y) {
			c.StrokeLine2(pale, c.Min.X, y, c.Max.X, y)
		}
	}
}

// entry is one of the legend.
type entry struct {
	name string
	look
	x vg.Length // from the left
}

// Widths in an entry of the legend.
const (
	exampleWidth = 30 // of the piece of line
	entryGap     = 5  // between it and the name
	entryMargin  = 16 // to the next entry
)

// legend arranges entries in rows.
func (p *Plot) legend() [][]entry {
	var rows [][]entry
	var x vg.Length
	looks := p.looks()
	for i, s := range p.Series {
		width := exampleWidth + entryGap + entryMargin + style(10).Width(s.Name)
		if i == 0 || x+width > plotWidth-2*plotMargin {
			rows, x = append(rows, nil), 0
		}
		last := len(rows) - 1
		rows[last] = append(rows[last], entry{s.Name, looks[i], x})
		x += width
	}
	return rows
}

// draw draws an entry.
func (e entry) draw(c draw.Canvas, x, y vg.Length) {
	c.StrokeLine2(e.line, x, y, x+exampleWidth, y)
	c.DrawGlyphNoClip(e.glyph, vg.Point{X: x + exampleWidth/2, Y: y})
	s := style(10)
	s.XAlign, s.YAlign = draw.XLeft, draw.YCenter
	c.FillText(s, vg.Point{X: x + exampleWidth + entryGap, Y: y}, e.name)
}
