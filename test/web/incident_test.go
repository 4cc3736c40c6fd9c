// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"narthex/internal/live"
)

// shifted is the cumulative layout shift since the page was opened, all in one window, which is the
// most that it can be; and what moved most.
const shifted = `window.shifts ? window.shifts.reduce((a, s) => a + s.value, 0) : -1`

// TestNothingJumps opens the page on a phone and on a small screen, and follows a server into
// overload: what is shown stays where it was.
func TestNothingJumps(t *testing.T) {
	for _, on := range []screen{{width: 390, height: 844}, {width: 1280, height: 800}} {
		s, p, c := show(t, on)
		p.do(chromedp.Evaluate[chromedp.Void](`window.shifts = [];
			new PerformanceObserver((list) => window.shifts.push(...list.getEntries().map((e) => ({
				value: e.value, what: e.sources.map((s) => s.node && (s.node.id || s.node.className || s.node.nodeName)).join(' ') })))).observe({type: 'layout-shift', buffered: true})`))
		s.play(c, 30)
		p.text("#headline-word", "Calm")
		c.crowd = 0.3
		s.play(c, 5)
		c.crowd = 1
		s.play(c, 75)
		p.text("#headline-word", "Overload")
		p.text("#rejected", "max_wait")
		time.Sleep(300 * time.Millisecond) // for the last picture to be laid out
		got := is[float64](p, shifted)
		t.Logf("at %d pixels the layout shift is %.3f", on.width, got)
		if got < 0 || got > 0.1 {
			t.Errorf("at %d pixels the layout shift is %.3f: %s", on.width, got, is[string](p, `JSON.stringify(window.shifts.filter((s) => s.value > 0.005))`))
		}
		p.clean(s)
	}
}

// TestOpensInAnIncident opens the page when a server has been overloaded for a while: the charts
// show how that began.
func TestOpensInAnIncident(t *testing.T) {
	s := serve(t)
	c := newScene()
	for i := range 180 {
		if i == 60 {
			c.crowd = 1
		}
		if v := c.next(); i%10 == 0 {
			s.past.See(v.Time, v.Status)
		}
	}
	p := open(t, s, screen{width: 1280, height: 800})
	s.connected()
	s.play(c, 2)
	p.text("#headline-word", "Overload")
	if n := is[int](p, painted("inservice")); n < 500 {
		t.Errorf("the chart of who is in service has %d coloured points", n)
	}
	p.text("#inservice", "in service")
	if is[bool](p, `[...document.querySelectorAll('#inservice .swatch')].some((s) => s.parentElement.textContent === 'limit')`) {
		t.Error("the chart of all services has a limit")
	}
	if title := is[string](p, "document.title"); !strings.Contains(title, "Narthex on web1") {
		t.Errorf("the title is %q", title)
	}
	p.text("#tiles", "1 of 2 services at its limit")
	p.clean(s)
}

// TestLooksBackADay looks at what was kept of a day: an incident of hours ago, and the time without figures before.
func TestLooksBackADay(t *testing.T) {
	s := serve(t)
	c, past := newScene(), newScene()
	var m live.Meter
	for i := range 700 {
		past.crowd = 0
		if i > 300 && i < 400 {
			past.crowd = 1
		}
		at := start.Add(time.Duration(i-700) * 2 * time.Minute)
		if v := m.View(at, past.next().Status); i > 0 && (i < 100 || i > 150) {
			s.long = append(s.long, live.Slim(&v))
		}
	}
	p := open(t, s, screen{width: 1280, height: 800})
	s.connected()
	s.play(c, 2)
	p.text("#headline-word", "Calm")
	before := is[int](p, painted("waiting"))
	p.do(chromedp.Evaluate[chromedp.Void](`(() => {
		const select = document.querySelector('#window');
		select.value = '86400';
		select.dispatchEvent(new Event('change'));
	})()`))
	p.until("document.querySelector('#time').min < -80000")
	p.until(fmt.Sprintf("%s > %d", painted("waiting"), before+100))
	p.picture("day", true)
	p.clean(s)
}

// TestPaintsSoon bounds what a browser does before it shows the page, not how fast this machine is: the first
// picture needs the page and its styles alone, and no script, chart or figure.
func TestPaintsSoon(t *testing.T) {
	for _, on := range []screen{{width: 390, height: 844}, {width: 1280, height: 800}} {
		_, p, _ := show(t, on)
		p.until("performance.getEntriesByName('first-contentful-paint').length === 1")
		t.Logf("at %d pixels the first paint is after %.0f ms", on.width, is[float64](p, "performance.getEntriesByName('first-contentful-paint')[0].startTime"))
		if blocking := is[string](p, `performance.getEntriesByType('resource').filter((r) => r.renderBlockingStatus === 'blocking').map((r) => new URL(r.name).pathname).sort().join(' ')`); blocking != "/assets/style.css /assets/uPlot.min.css" {
			t.Errorf("the first paint waits for %s", blocking)
		}
		p.shut()
	}
}
