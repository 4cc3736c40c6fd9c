// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"math"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// swatch is a colour of a chart's legend: what it is of, and where its middle is on the page.
type swatch struct {
	Chart, Name string
	X, Y        float64
}

const swatches = `[...document.querySelectorAll('.swatch:not(.dashed)')].filter((s) => s.closest('figure')).map((s) => {
	const box = s.getBoundingClientRect();
	return {Chart: s.closest('figure').innerText.split('\n')[0], Name: s.parentElement.textContent, X: box.x + box.width / 2 + scrollX, Y: box.y + box.height / 2 + scrollY};
})`

// TestColourBlind looks at pictures of an overload as those see them who lack one kind of cones: in
// each chart every colour of the legend is another.
func TestColourBlind(t *testing.T) {
	for _, dark := range []bool{false, true} {
		s, p, c := show(t, screen{width: 1280, height: 800, dark: dark})
		s.play(c, 30)
		c.crowd, c.every = 1, true
		s.play(c, 60)
		p.text("#rejected", "no_server")
		p.do(chromedp.Evaluate[chromedp.Void]("document.querySelectorAll('.chart > div:last-child').forEach((legend) => { legend.style.height = 'auto'; })")) // no row is scrolled away
		for _, eyes := range []string{"none", "deuteranopia", "protanopia", "tritanopia"} {
			call(p, emulation.SetEmulatedVisionDeficiency, emulation.SetEmulatedVisionDeficiencyParams{Type: emulation.SetEmulatedVisionDeficiencyType(eyes)})
			p.apart(eyes, dark)
			p.picture("overload-"+eyes, true)
		}
		p.shut()
	}
}

// apart compares the colours within each chart.
func (p *page) apart(eyes string, dark bool) {
	p.t.Helper()
	list := is[[]swatch](p, swatches)
	shot, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		p.t.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		p.t.Fatal(err)
	}
	compared, least := 0, math.Inf(1)
	for i, a := range list {
		for _, b := range list[:i] {
			if a.Chart != b.Chart || a.Name == b.Name {
				continue
			}
			compared++
			d := distance(at(picture, a), at(picture, b))
			if least = min(least, d); d < 10 {
				p.t.Errorf("%s, dark %v: in %q %s and %s are %.1f apart", eyes, dark, a.Chart, a.Name, b.Name, d)
			}
		}
	}
	if compared < 28 {
		p.t.Errorf("%d pairs of colours in %d swatches", compared, len(list))
	}
	p.t.Logf("%s, dark %v: the nearest of %d pairs of colours are %.1f apart", eyes, dark, compared, least)
}

// at returns the CIE L*a*b* of a swatch in a picture.
func at(picture image.Image, s swatch) [3]float64 {
	c := color.NRGBAModel.Convert(picture.At(int(s.X), int(s.Y))).(color.NRGBA)
	var rgb [3]float64
	for i, n := range [3]uint8{c.R, c.G, c.B} {
		if rgb[i] = float64(n) / 255; rgb[i] <= 0.04045 {
			rgb[i] /= 12.92
		} else {
			rgb[i] = math.Pow((rgb[i]+0.055)/1.055, 2.4)
		}
	}
	white := [3]float64{0.9505, 1, 1.089}
	var f [3]float64
	for i, row := range [3][3]float64{{0.4124, 0.3576, 0.1805}, {0.2126, 0.7152, 0.0722}, {0.0193, 0.1192, 0.9505}} {
		t := (row[0]*rgb[0] + row[1]*rgb[1] + row[2]*rgb[2]) / white[i]
		if f[i] = math.Cbrt(t); t <= 0.008856 {
			f[i] = 7.787*t + 16.0/116
		}
	}
	return [3]float64{116*f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])}
}

func distance(a, b [3]float64) float64 {
	return math.Sqrt((a[0]-b[0])*(a[0]-b[0]) + (a[1]-b[1])*(a[1]-b[1]) + (a[2]-b[2])*(a[2]-b[2]))
}
