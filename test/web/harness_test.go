// SPDX-License-Identifier: Apache-2.0

// Package web tests the dashboard in a real browser.
package web

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"narthex/internal/lab/reexec"
	"narthex/internal/live"
	"narthex/internal/web"
)

// pictures is a folder for pictures of what the tests see: go test ./test/web -pictures DIR.
var pictures = flag.String("pictures", "", "folder to write pictures of the pages to")

// browser is the one Chromium of all tests.
var browser context.Context

// patience bounds waits for what must happen soon; it is no figure.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	reexec.Main()
	flag.Parse()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WSURLReadTimeout(patience),
		chromedp.Flag("lang", "en"), chromedp.Env("TZ=UTC"))
	allocator, release := chromedp.NewExecAllocator(context.Background(), options...)
	var quit context.CancelFunc
	browser, quit = chromedp.NewContext(allocator)
	code := 1
	if err := chromedp.Do(browser); err != nil {
		fmt.Fprintf(os.Stderr, "start Chromium: %v; scripts/setup test installs it\n", err)
	} else {
		code = m.Run()
	}
	quit()
	release()
	os.Exit(code)
}

// feed is a daemon that says what a test has it say. Who comes late hears the last view first.
type feed struct {
	mu       sync.Mutex
	last     *live.View
	watchers map[chan live.View]struct{}
}

func newFeed() *feed { return &feed{watchers: map[chan live.View]struct{}{}} }

func (f *feed) watch(ctx context.Context) (<-chan live.View, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	views := make(chan live.View, 2000)
	if f.last != nil {
		views <- *f.last
	}
	f.watchers[views] = struct{}{}
	context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watchers, views)
	})
	return views, nil
}

func (f *feed) tell(v live.View) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = &v
	for views := range f.watchers {
		views <- v
	}
}

func (f *feed) watching() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.watchers)
}

// server is the dashboard on an address that stays when it ends.
type server struct {
	t       testing.TB
	feed    *feed
	address string
	http    *http.Server
	past    live.Past
	long    []live.PastView
}

func serve(t testing.TB) *server {
	t.Helper()
	s := &server{t: t, feed: newFeed(), address: "127.0.0.1:0"}
	s.start()
	t.Cleanup(func() { s.http.Close() })
	return s
}

// pastOf is the last hour, or what a test has for longer times.
func (s *server) pastOf(of time.Duration) []live.PastView {
	if of > time.Hour {
		return s.long
	}
	return s.past.Views()
}

func (s *server) start() {
	s.t.Helper()
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.address = listener.Addr().String()
	s.http = &http.Server{Handler: web.Handler(live.Feed{Watch: s.feed.watch, Past: s.pastOf}, s.address, nil, http.NotFoundHandler()), ReadHeaderTimeout: patience}
	go s.http.Serve(listener)
}

// end breaks all connections, as the end of a daemon does.
func (s *server) end() {
	s.t.Helper()
	if err := s.http.Close(); err != nil {
		s.t.Fatal(err)
	}
}

// page is a tab with the dashboard in it.
type page struct {
	t    testing.TB
	ctx  context.Context
	shut context.CancelFunc // closes the tab

	mu    sync.Mutex
	asked []string // addresses that were asked
	wrong []string // errors that the browser has told of
}

// screen is what a page is looked at on.
type screen struct {
	width, height int64
	dark          bool
}

var desktop = screen{width: 1440, height: 900}

func open(t testing.TB, s *server, on screen) *page {
	t.Helper()
	ctx, shut := chromedp.NewContext(browser)
	t.Cleanup(shut)
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	t.Cleanup(cancel)
	p := &page{t: t, ctx: ctx, shut: shut}
	if err := chromedp.Listen(ctx, p.listen); err != nil {
		t.Fatal(err)
	}
	scheme := "light"
	if on.dark {
		scheme = "dark"
	}
	call(p, network.Enable, network.EnableParams{})
	call(p, log.Enable, cdp.Empty{})
	p.resize(on.width, on.height)
	p.scheme(scheme)
	p.do(chromedp.Navigate("http://" + s.address + "/"))
	return p
}

// resize makes the screen so large; a narrow one is a phone's.
func (p *page) resize(width, height int64) {
	p.t.Helper()
	call(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 600,
	})
}

// scheme chooses between light and dark.
func (p *page) scheme(name string) {
	p.t.Helper()
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
	})
}

func (p *page) listen(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		p.asked = append(p.asked, e.Request.URL)
	case *runtime.EventExceptionThrown:
		p.wrong = append(p.wrong, fmt.Sprintf("%+v", e.ExceptionDetails))
	case *log.EventEntryAdded: // of the browser itself, such as a breach of the content policy
		if e.Entry.Level == "error" {
			p.wrong = append(p.wrong, e.Entry.Text+" "+e.Entry.URL)
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" {
			p.wrong = append(p.wrong, fmt.Sprintf("%+v", e.Args))
		}
	}
}

func (p *page) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.t.Fatal(err)
	}
}

// call sends a command to the browser.
func call[P, R any](p *page, command cdp.Command[P, R], params P) R {
	p.t.Helper()
	r, err := chromedp.Call(p.ctx, command, params)
	if err != nil {
		p.t.Fatal(err)
	}
	return r
}

// is returns what an expression is in the page.
func is[T any](p *page, expression string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// until waits for an expression to be true in the page.
func (p *page) until(expression string) {
	p.t.Helper()
	for end := time.Now().Add(patience); !is[bool](p, expression); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("still not: %s\nthe page says: %s\nerrors: %v", expression, is[string](p, "document.body.innerText"), p.errors())
		}
	}
}

func (p *page) errors() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.wrong)
}

// text waits until an element shows a text.
func (p *page) text(selector, text string) {
	p.t.Helper()
	p.until(fmt.Sprintf("document.querySelector(%q)?.textContent.includes(%q) === true", selector, text))
}

// picture writes what is seen to the folder of pictures, if there is one.
func (p *page) picture(name string, whole bool) {
	p.t.Helper()
	if *pictures == "" {
		return
	}
	shoot := chromedp.CaptureScreenshot()
	if whole {
		shoot = chromedp.FullScreenshot(100)
	}
	png, err := chromedp.Run(p.ctx, shoot)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*pictures, name+".png"), png, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// connected waits until the page watches.
func (s *server) connected() {
	s.t.Helper()
	for end := time.Now().Add(patience); s.feed.watching() == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatal("the page does not watch")
		}
	}
}

// show opens the dashboard for a scene that is about to begin, and waits until the page watches.
func show(t testing.TB, on screen) (*server, *page, *scene) {
	t.Helper()
	s := serve(t)
	p := open(t, s, on)
	s.connected()
	return s, p, newScene()
}

// play tells of some seconds of a scene.
func (s *server) play(c *scene, seconds int) {
	for range seconds {
		s.feed.tell(c.next())
	}
}
