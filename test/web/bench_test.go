// SPDX-License-Identifier: Apache-2.0

package web

import "testing"

// BenchmarkFirstPaint opens the page in a new tab: how long until something is seen, until the
// first figures are, and how many bytes have come for the page.
func BenchmarkFirstPaint(b *testing.B) {
	var paint, figures, bytes float64
	for b.Loop() {
		s := serve(b) // on a port of its own: nothing is in the browser's cache
		c := newScene()
		c.crowd = 1
		s.play(c, 60)
		p := open(b, s, desktop)
		p.text("#tiles", "Served")
		figures += is[float64](p, "performance.now()")
		p.until("performance.getEntriesByName('first-contentful-paint').length > 0")
		paint += is[float64](p, "performance.getEntriesByName('first-contentful-paint')[0].startTime")
		bytes += is[float64](p, "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"+
			".filter((r) => !r.name.endsWith('/live')).reduce((n, r) => n + r.transferSize, 0)")
		p.shut()
	}
	b.ReportMetric(paint/float64(b.N), "ms/first-paint")
	b.ReportMetric(figures/float64(b.N), "ms/first-figures")
	b.ReportMetric(bytes/float64(b.N), "bytes/page")
}
