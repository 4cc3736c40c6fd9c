// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"narthex/internal/live"
)

// patience bounds waits for what must happen soon; it is no figure.
const patience = 30 * time.Second

func none(context.Context) (<-chan live.View, error) { return nil, nil }

func get(h http.Handler, method, url string, headers ...string) *http.Response {
	r := httptest.NewRequest(method, url, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func dashboard() http.Handler {
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "narthex_up 1\n") })
	return Handler(live.Feed{Watch: none, Past: noPast}, "shop.example:9464", []string{"status.example"}, metrics)
}

// TestIsSmall bounds what a browser loads before it shows the page.
func TestIsSmall(t *testing.T) {
	const most = 200_000
	var all, zipped int
	for path, f := range pageFiles() {
		all += len(f.plain)
		zipped += min(len(f.plain), len(f.zipped))
		if f.kind == "text/plain; charset=utf-8" && path != "/assets/LICENSE" {
			t.Errorf("%s has no media type", path)
		}
	}
	t.Logf("%d bytes, %d as they are sent", all, zipped)
	if all > most {
		t.Errorf("the page is %d bytes, more than %d", all, most)
	}
}

// TestPageIsWhole asks for all that the page refers to.
func TestPageIsWhole(t *testing.T) {
	h := dashboard()
	body, _ := io.ReadAll(get(h, "GET", "http://localhost/").Body)
	refers := 0
	for _, part := range strings.Split(string(body), `="`) {
		path, _, _ := strings.Cut(part, `"`)
		if !strings.HasPrefix(path, "/") || path == "/metrics" {
			continue
		}
		refers++
		if got := get(h, "GET", "http://localhost"+path).StatusCode; got != http.StatusOK {
			t.Errorf("%s: status %d", path, got)
		}
	}
	if refers < 10 {
		t.Errorf("the page refers to %d files only", refers)
	}
	if strings.Contains(string(body), "<style") || strings.Contains(string(body), "//cdn") || strings.Contains(string(body), "style=") {
		t.Error("the page holds what its content policy forbids")
	}
}

func TestWhoIsAnswered(t *testing.T) {
	for _, c := range []struct {
		method, url string
		headers     []string
		want        int
	}{
		{"GET", "http://localhost:9464/", nil, 200},
		{"HEAD", "http://localhost:9464/", nil, 200},
		{"GET", "http://127.0.0.1:9464/", nil, 200},
		{"GET", "http://127.8.9.10/", nil, 200},
		{"GET", "http://[::1]:9464/", nil, 200},
		{"GET", "http://SHOP.example.:1/", nil, 200},
		{"GET", "http://Status.example/", nil, 200},
		{"GET", "http://rebound.example/", nil, 421},
		{"GET", "http://rebound.example/live", nil, 421},
		{"GET", "http://rebound.example/assets/main.js", nil, 421},
		{"GET", "http://localhost.rebound.example/", nil, 421},
		{"GET", "http://192.0.2.1/", nil, 421},
		{"GET", "http://rebound.example/metrics", nil, 200},
		{"GET", "http://localhost/live", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors"}, 403},
		{"GET", "http://localhost/", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 200},
		{"GET", "http://localhost/nothing", nil, 404},
		{"GET", "http://localhost/assets/", nil, 404},
		{"POST", "http://localhost/", nil, 405},
		{"PUT", "http://localhost/live", nil, 405},
		{"DELETE", "http://localhost/metrics", nil, 405},
		{"OPTIONS", "http://localhost/nothing", nil, 405},
	} {
		if got := get(dashboard(), c.method, c.url, c.headers...); got.StatusCode != c.want {
			t.Errorf("%s %s %v: status %d, want %d", c.method, c.url, c.headers, got.StatusCode, c.want)
		}
	}
}

// TestOwnAddress answers to the address that a connection has come to.
func TestOwnAddress(t *testing.T) {
	for host, want := range map[string]int{"192.0.2.1:9464": 200, "192.0.2.2:9464": 421} {
		r := httptest.NewRequest("GET", "http://"+host+"/", nil)
		local := &net.TCPAddr{IP: net.ParseIP("192.0.2.1"), Port: 9464}
		w := httptest.NewRecorder()
		dashboard().ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, local)))
		if w.Code != want {
			t.Errorf("%s: status %d, want %d", host, w.Code, want)
		}
	}
}

func TestHeaders(t *testing.T) {
	for _, path := range []string{"/", "/assets/main.js", "/nothing"} {
		h := get(dashboard(), "GET", "http://localhost"+path).Header
		policy := h.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self';", "frame-ancestors 'none'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: content policy %q is without %q", path, policy, want)
			}
		}
		if strings.Contains(policy, "unsafe") || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: headers %v", path, h)
		}
	}
}

func TestFilesAreSentOnce(t *testing.T) {
	first := get(dashboard(), "GET", "http://localhost/assets/main.js", "Accept-Encoding", "br, gzip;q=0.8")
	if first.Header.Get("Content-Encoding") != "gzip" {
		t.Fatalf("headers %v: not compressed", first.Header)
	}
	unzipped, err := gzip.NewReader(first.Body)
	if err != nil {
		t.Fatal(err)
	}
	zipped, err := io.ReadAll(unzipped)
	if err != nil {
		t.Fatal(err)
	}
	plain, _ := io.ReadAll(get(dashboard(), "GET", "http://localhost/assets/main.js", "Accept-Encoding", "gzip;q=0").Body)
	if string(zipped) != string(plain) {
		t.Error("the file is another when it is compressed")
	}
	tag := first.Header.Get("ETag")
	if again := get(dashboard(), "GET", "http://localhost/assets/main.js", "Accept-Encoding", "gzip", "If-None-Match", tag); again.StatusCode != http.StatusNotModified {
		t.Errorf("status %d for a file that has not changed", again.StatusCode)
	}
}

// watching serves views from a channel over a real connection.
func watching(t *testing.T, views <-chan live.View) *httptest.Server {
	t.Helper()
	watch := func(context.Context) (<-chan live.View, error) { return views, nil }
	s := httptest.NewServer(Handler(live.Feed{Watch: watch, Past: noPast}, "", nil, http.NotFoundHandler()))
	t.Cleanup(s.CloseClientConnections)
	t.Cleanup(s.Close)
	return s
}

// TestStream reads views as a browser does, until the daemon ends.
func TestStream(t *testing.T) {
	views := make(chan live.View)
	s := watching(t, views)
	r, _ := http.NewRequest("GET", s.URL+"/live", nil)
	r.Header.Set("Accept-Encoding", "gzip, br")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("media type %q", got)
	}
	if got := resp.Header.Get("Content-Encoding"); got != "" {
		t.Errorf("encoding %q: each who watches would cost a compressor's memory", got)
	}
	lines := bufio.NewScanner(resp.Body)
	for i := range 3 {
		sent := live.View{Time: time.Unix(int64(i), 0).UTC(), Interval: 1}
		views <- sent
		if got := nextView(t, lines); !got.Time.Equal(sent.Time) {
			t.Errorf("view of %v, want %v", got.Time, sent.Time)
		}
	}
	close(views)
	for lines.Scan() {
		if lines.Text() != "" {
			t.Errorf("%q after the end", lines.Text())
		}
	}
}

// TestViewIsEncodedOnce has two watch the same views.
func TestViewIsEncodedOnce(t *testing.T) {
	encoded := 0
	s := newStream(none)
	s.encode = func(v live.View) ([]byte, error) {
		encoded++
		return message(v)
	}
	for i := range 3 {
		v := live.View{Time: time.Unix(int64(i), 0), Interval: float64(i)}
		want, _ := message(v)
		for range 2 {
			if got, err := s.eventOf(v); err != nil || string(got) != string(want) {
				t.Errorf("event %q, %v, want %q", got, err, want)
			}
		}
	}
	if encoded != 3 {
		t.Errorf("3 views were encoded %d times for two", encoded)
	}
}

// nextView reads an event. It has come whole before anything else is sent.
func nextView(t *testing.T, lines *bufio.Scanner) (v live.View) {
	t.Helper()
	for lines.Scan() {
		if text, is := strings.CutPrefix(lines.Text(), "data: "); is {
			if err := json.Unmarshal([]byte(text), &v); err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("the stream ended: %v", lines.Err())
	return v
}

// TestWatchersAreBounded refuses who comes when all places are taken, and lets somebody in when
// one has gone.
func TestWatchersAreBounded(t *testing.T) {
	s := watching(t, make(chan live.View))
	ask := func() (*http.Response, context.CancelFunc) {
		ctx, cancel := context.WithCancel(t.Context())
		r, _ := http.NewRequestWithContext(ctx, "GET", s.URL+"/live", nil)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return resp, cancel
	}
	var last context.CancelFunc
	for range mostWatchers {
		resp, cancel := ask()
		defer cancel()
		if last = cancel; resp.StatusCode != http.StatusOK {
			t.Fatalf("status %d", resp.StatusCode)
		}
	}
	resp, cancel := ask()
	defer cancel()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Fatalf("status %d for one too many, headers %v", resp.StatusCode, resp.Header)
	}
	last()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		resp, cancel := ask()
		defer cancel()
		if resp.StatusCode == http.StatusOK {
			return
		}
		if time.Now().After(end) {
			t.Fatal("nobody is let in after one has gone")
		}
	}
}

// TestSlowReaderIsDropped writes to who does not read, until that is given up.
func TestSlowReaderIsDropped(t *testing.T) {
	written := make(chan error, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		out := sender{control: http.NewResponseController(w), w: w, slowest: 20 * time.Millisecond}
		for {
			if err := out.send(make([]byte, 1<<20)); err != nil {
				written <- err
				return
			}
		}
	}))
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
	select {
	case err := <-written:
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("given up by %v", err)
		}
	case <-time.After(patience):
		t.Error("who does not read holds up the daemon")
	}
}

func noPast(time.Duration) []live.PastView { return []live.PastView{} }

// TestColours has the reasons' colours be told apart also by who does not see green: as far as
// lightness and what is left of hue differ there (Machado, Oliveira and Fernandes, 2009).
func TestColours(t *testing.T) {
	style, err := embedded.ReadFile("page/style.css")
	if err != nil {
		t.Fatal(err)
	}
	deuteranope := [3][3]float64{{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}}
	found := regexp.MustCompile(`--r([0-7]): #([0-9a-f]{6});`).FindAllStringSubmatch(string(style), -1)
	if len(found) != 16 {
		t.Fatalf("%d colours of reasons, want 8 for each of two schemes", len(found))
	}
	for scheme := range 2 {
		for i := range 8 {
			for j := range i {
				a, b := found[8*scheme+i][2], found[8*scheme+j][2]
				if d := distance(seen(a, deuteranope), seen(b, deuteranope)); d < 20 {
					t.Errorf("scheme %d: #%s and #%s are %.1f apart to a deuteranope", scheme, a, b, d)
				}
			}
		}
	}
}

// seen returns the CIE L*a*b* of a colour through eyes with such a matrix.
func seen(hex string, eyes [3][3]float64) (lab [3]float64) {
	var rgb, felt [3]float64
	for i := range rgb {
		n, _ := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		if rgb[i] = float64(n) / 255; rgb[i] <= 0.04045 {
			rgb[i] /= 12.92
		} else {
			rgb[i] = math.Pow((rgb[i]+0.055)/1.055, 2.4)
		}
	}
	for i := range felt {
		for j := range rgb {
			felt[i] += eyes[i][j] * rgb[j]
		}
		felt[i] = min(max(felt[i], 0), 1)
	}
	white := [3]float64{0.9505, 1, 1.089}
	var f [3]float64
	for i, row := range [3][3]float64{{0.4124, 0.3576, 0.1805}, {0.2126, 0.7152, 0.0722}, {0.0193, 0.1192, 0.9505}} {
		t := (row[0]*felt[0] + row[1]*felt[1] + row[2]*felt[2]) / white[i]
		if f[i] = math.Cbrt(t); t <= 0.008856 {
			f[i] = 7.787*t + 16.0/116
		}
	}
	return [3]float64{116*f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])}
}

func distance(a, b [3]float64) float64 {
	return math.Sqrt((a[0]-b[0])*(a[0]-b[0]) + (a[1]-b[1])*(a[1]-b[1]) + (a[2]-b[2])*(a[2]-b[2]))
}
