// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Sizes of a diagram in points. The legend's rows come on top of its height.
const (
	plotWidth   = 500
	plotHeight  = 310
	plotMargin  = 8
	rowHeight   = 16
	labelHeight = 17 // of an axis
	pngDPI      = 144
)

// write draws the plot into NAME.svg and NAME.png of a folder. The files are the same each time.
func (p *Plot) write(dir, name string) error {
	legend := p.legend()
	height := vg.Length(plotHeight + 2*plotMargin + rowHeight*len(legend))
	svg := vgsvg.New(plotWidth, height)
	p.draw(draw.New(svg), legend)
	var out bytes.Buffer
	if _, err := svg.WriteTo(&out); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, name+".svg"), portable(out.Bytes()), 0o644); err != nil {
		return err
	}
	image := vgimg.NewWith(vgimg.UseWH(plotWidth, height), vgimg.UseDPI(pngDPI))
	p.draw(draw.New(image), legend)
	out.Reset()
	if err := png.Encode(&out, image.Image()); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".png"), out.Bytes(), 0o644)
}

// written is a text in an SVG file.
var written = regexp.MustCompile(`<text ([^>]*font-size:([0-9.]+)px[^>]*)>([^<]*)</text>`)

// portable has texts be as wide as they were meant where another font takes the place of the one
// that is not within the file.
func portable(svg []byte) []byte {
	svg = bytes.ReplaceAll(svg, []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;"))
	return written.ReplaceAllFunc(svg, func(text []byte) []byte {
		m := written.FindSubmatch(text)
		size, err := strconv.ParseFloat(string(m[2]), 64)
		if err != nil || len(m[3]) == 0 {
			return text
		}
		width := style(vg.Length(size)).Width(html.UnescapeString(string(m[3])))
		return fmt.Appendf(nil, `<text textLength="%.2f" lengthAdjust="spacingAndGlyphs" %s>%s</text>`, width.Points(), m[1], m[3])
	})
}

// draw draws the diagram with the legend below it, where no line runs.
func (p *Plot) draw(c draw.Canvas, legend [][]entry) {
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	c = draw.Crop(c, plotMargin, -plotMargin, plotMargin, -plotMargin)
	below := vg.Length(rowHeight * len(legend))
	p.drawAxes(draw.Crop(c, 0, 0, below, 0))
	for i, row := range legend {
		y := c.Min.Y + below - vg.Length(rowHeight)*(vg.Length(i)+0.5)
		for _, e := range row {
			e.draw(c, c.Min.X+e.x, y)
		}
	}
}

// drawAxes draws what is above the legend. The library would give labels of logarithmic axes room
// where they are not.
func (p *Plot) drawAxes(c draw.Canvas) {
	d := p.diagram()
	within := draw.Crop(c, labelHeight, 0, labelHeight, 0)
	d.Draw(within)
	data := d.DataCanvas(within)
	x := fit(style(11), p.X.Label, data.Size().X)
	x.YAlign = draw.YBottom
	c.FillText(x, vg.Point{X: data.Center().X, Y: c.Min.Y + 4}, p.X.Label)
	y := fit(style(11), p.Y.Label, data.Size().Y)
	y.Rotation = math.Pi / 2
	c.FillText(y, vg.Point{X: c.Min.X, Y: data.Center().Y}, p.Y.Label)
}

// diagram is what is between the axes' labels.
func (p *Plot) diagram() *plot.Plot {
	d := plot.New()
	d.Title.Text = p.Title
	d.Title.TextStyle = fit(style(12), p.Title, plotWidth-2*plotMargin)
	d.Title.Padding = 6
	x, y := p.scales()
	x.dress(&d.X)
	y.dress(&d.Y)
	d.Add(grid{})
	looks := p.looks()
	for _, ours := range []bool{false, true} { // ours above the others'
		for i, s := range p.Series {
			if s.Ours == ours {
				d.Add(&line{s, looks[i], x, y})
			}
		}
	}
	x.limit(&d.X)
	y.limit(&d.Y)
	return d
}

// style is that of text of a size.
func style(size vg.Length) text.Style {
	return text.Style{
		Color:   color.Black,
		Font:    font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size),
		XAlign:  draw.XCenter,
		YAlign:  draw.YTop,
		Handler: plot.DefaultTextHandler,
	}
}

// fit makes a text smaller until it is no wider than that.
func fit(s text.Style, what string, width vg.Length) text.Style {
	for s.Width(what) > width && s.Font.Size > 6 {
		s.Font.Size -= 0.5
	}
	return s
}

// alt describes the diagram to those who do not see it.
func (p *Plot) alt() string {
	names := ""
	for i, s := range p.Series {
		if i > 0 {
			names += ", "
		}
		names += s.Name
	}
	return fmt.Sprintf("Line plot: %s. %s over %s; lines: %s.", p.Title, p.Y.Label, p.X.Label, names)
}
