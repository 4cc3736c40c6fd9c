// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestShowsOverload follows a server from calm into overload.
func TestShowsOverload(t *testing.T) {
	s, p, c := show(t, desktop)
	s.play(c, 180)
	p.text("#headline-word", "Calm")
	p.text("#served", "gold")
	p.text("#rejected", "Nobody was turned away.")
	calm := is[int](p, painted("waiting"))
	p.picture("calm", true)
	c.crowd = 0.3
	s.play(c, 5)
	c.crowd = 1
	s.play(c, 75)
	p.text("#headline-word", "Overload")
	p.text("#headline-text", "24 of 24 in service")
	p.text("#announce", "Overload")
	p.text("#tiles", "Turned away")
	p.text("#rejected", "max_wait")
	p.text("#classes", "bronze")
	p.text("#rules", "search")
	p.text("#sources", "198.51.100.23")
	if is[bool](p, `document.querySelector('#sources').textContent.includes('192.0.2.77')`) {
		t.Error("a source that was never turned away is among those that were")
	}
	p.text("#decisions", "overload begins")
	p.text("#policy", "/etc/narthex/policy.yaml")
	if now := is[int](p, painted("waiting")); now < calm+100 {
		t.Errorf("the chart of who waits has %d coloured points, %d before the overload", now, calm)
	}
	p.picture("desktop", true)
	p.clean(s)
	p.resize(1280, 1340)
	p.do(chromedp.Evaluate[chromedp.Void]("location.hash = 'shop'"))
	p.until("document.querySelector('#service').value === 'shop' && document.querySelector('#served canvas').getBoundingClientRect().width < 420")
	p.picture("dashboard", false)
}

// painted counts points of a chart that have a colour of their own, not a grey of the page.
func painted(chart string) string {
	return `(() => {
		const canvas = document.querySelector('#` + chart + ` canvas');
		const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
		let n = 0;
		for (let i = 0; i < data.length; i += 4) {
			if (data[i + 3] > 0 && Math.max(data[i], data[i + 1], data[i + 2]) - Math.min(data[i], data[i + 1], data[i + 2]) > 60) n++;
		}
		return n;
	})()`
}

// clean fails if the page has asked anybody but its server, or the browser has told of errors,
// of which a breach of the content policy is one.
func (p *page) clean(s *server) {
	p.t.Helper()
	for _, wrong := range p.errors() {
		p.t.Errorf("the browser tells of an error: %s", wrong)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.asked) == 0 {
		p.t.Error("no request was seen")
	}
	for _, asked := range p.asked {
		if u, err := url.Parse(asked); err != nil || u.Host != s.address {
			p.t.Errorf("the page asks %s", asked)
		}
	}
}

// TestPolicyHolds breaks the content policy, which the browser has to tell of: else clean could
// not fail.
func TestPolicyHolds(t *testing.T) {
	_, p, _ := show(t, desktop)
	p.do(chromedp.Evaluate[chromedp.Void](`(() => {
		const image = new Image();
		image.src = 'http://192.0.2.1/picture.png';
		document.body.append(image);
	})()`))
	for end := time.Now().Add(patience); len(p.errors()) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the browser does not tell of a picture from elsewhere")
		}
	}
	if why := p.errors()[0]; !strings.Contains(why, "Content Security Policy") {
		t.Errorf("the browser tells of %q", why)
	}
}

// TestPhone shows the page on a narrow screen: nothing is cut off, and one scrolls in one
// direction.
func TestPhone(t *testing.T) {
	s, p, c := show(t, screen{width: 360, height: 780})
	s.play(c, 60)
	c.crowd = 1
	s.play(c, 60)
	p.text("#headline-word", "Overload")
	if width := is[int](p, "document.documentElement.scrollWidth"); width > 360 {
		t.Errorf("the page is %d pixels wide on a screen of 360: %s", width, is[string](p, wide))
	}
	p.fits()
	if !slices.Contains(p.tree(), node{"table", "Classes"}) {
		t.Error("the table of classes is no table any more")
	}
	p.picture("phone", true)
	p.resize(820, 1180)
	p.until("document.querySelector('#served canvas').getBoundingClientRect().width > 330")
	p.fits()
	p.picture("tablet", true)
}

// fits fails if anything is cut off.
func (p *page) fits() {
	p.t.Helper()
	if beyond := is[string](p, wide); beyond != "" {
		p.t.Errorf("beyond the right edge of the screen: %s", beyond)
	}
}

// wide lists what is beyond the right edge.
const wide = `[...document.querySelectorAll('main *, header *, footer *')]
	.filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && getComputedStyle(e).clipPath === 'none' && !e.closest('thead, .unseen'))
	.map((e) => e.tagName + '.' + e.className + '#' + e.id).slice(0, 5).join(' ')`

// TestDark follows the colours that the machine is set to, also while the page is open.
func TestDark(t *testing.T) {
	s, p, c := show(t, desktop)
	c.crowd = 1
	s.play(c, 120)
	p.text("#headline-word", "Overload")
	const paper = "getComputedStyle(document.body).backgroundColor"
	const layer = `(() => {
		const canvas = document.querySelector('#syns canvas');
		return [...canvas.getContext('2d').getImageData(canvas.width * 0.9, canvas.height * 0.7, 1, 1).data].join();
	})()`
	light, drawn := is[string](p, paper), is[string](p, layer)
	p.scheme("dark")
	p.until(paper + " !== '" + light + "'")
	p.until(layer + " !== '" + drawn + "'")
	if got := is[string](p, paper); got != "rgb(15, 20, 27)" {
		t.Errorf("the dark page is %s", got)
	}
	p.picture("dark", true)
}

// TestKeyboard reaches everything that can be used with the tabulator key alone, and uses it.
func TestKeyboard(t *testing.T) {
	s, p, c := show(t, desktop)
	c.crowd = 1
	s.play(c, 60)
	p.text("#headline-word", "Overload")
	var reached []string
	for range 14 {
		p.do(chromedp.KeyEvent(kb.Tab))
		reached = append(reached, is[string](p, "document.activeElement.id || document.activeElement.dataset.choose || document.activeElement.textContent"))
	}
	for _, want := range []string{"Skip to the figures", "service", "window", "pause", "shop", "api", "time", "metrics"} {
		if !slices.Contains(reached, want) {
			t.Errorf("the keyboard does not reach %q, only %q", want, reached)
		}
	}
	// Each that can be used can be reached: nothing but buttons, fields and links.
	if odd := is[int](p, "document.querySelectorAll('[onclick], [tabindex]:not([tabindex=\"-1\"]):not([tabindex=\"0\"])').length"); odd != 0 {
		t.Errorf("%d elements are out of the order of the keyboard", odd)
	}
	p.focus("#time")
	for range 10 {
		p.do(chromedp.KeyEvent(kb.ArrowLeft))
	}
	p.text("#time-text", "10 s before")
	p.until("document.querySelector('#waiting thead').textContent.includes('03:00:50')")
	p.picture("back", false)
	p.focus("#now")
	p.do(chromedp.KeyEvent(kb.Enter))
	p.until("document.querySelector('#time-text').textContent === 'now'")
	p.focus("[data-choose=shop]")
	p.do(chromedp.KeyEvent(kb.Enter))
	p.until("document.querySelector('#service').value === 'shop'")
	p.text("#inservice", "24")
	p.focus("#pause")
	p.do(chromedp.KeyEvent(kb.Enter))
	p.text("#connection-text", "paused")
	s.play(c, 5)
	p.until("document.querySelector('#connection-text').textContent === 'paused at 03:01:00'")
	p.do(chromedp.KeyEvent(kb.Enter))
	p.until("document.querySelector('#connection-text').textContent === 'live 03:01:05'")
	p.clean(s)
}

func (p *page) focus(selector string) {
	p.t.Helper()
	root := call(p, dom.GetDocument, dom.GetDocumentParams{}).Root
	found := call(p, dom.QuerySelector, dom.QuerySelectorParams{NodeID: root.NodeID, Selector: selector})
	call(p, dom.Focus, dom.FocusParams{NodeID: found.NodeID})
}

// TestSurvivesRestart has the daemon end and come back: the page says so, and shows for what
// time it knows nothing.
func TestSurvivesRestart(t *testing.T) {
	s, p, c := show(t, desktop)
	s.play(c, 60)
	p.text("#headline-word", "Calm")
	s.end()
	p.text("#connection-text", "connection lost")
	p.text("#banner", "trying again")
	p.text("#banner", "03:01:00")
	p.text("#announce", "Connection lost")
	p.picture("lost", false)
	c.second += 40
	s.feed = newFeed()
	s.start()
	s.connected()
	s.play(c, 30)
	p.until("document.querySelector('#banner').hidden")
	p.text("#connection-text", "live 03:02:10")
	p.text("#announce", "Of 41 s there are no figures")
	p.picture("again", true)
}

// TestShowsPools looks at services that share places: who wants, is due and gets how much. Limits of all are
// that of the pool, not a sum.
func TestShowsPools(t *testing.T) {
	s, p, c := show(t, desktop)
	c.pooled, c.crowd = true, 1
	s.play(c, 20)
	p.text("#headline-word", "Overload")
	p.text("#pools", "platform")
	p.text("#pools", "limit 24, between shares")
	p.text("#tiles", "limit 24 of pool platform")
	if rows := is[int](p, "document.querySelectorAll('#pools tbody tr').length"); rows != 3 {
		t.Errorf("%d rows of a pool with two members", rows)
	}
	p.picture("pools", true)
	p.clean(s)
}
