// SPDX-License-Identifier: Apache-2.0

package http

import (
	"bufio"
	"bytes"
	"io"
	"math/rand/v2"
	std "net/http"
	"strings"
	"testing"

	"narthex/test/draw"
	"narthex/test/twin"
)

// nginx is a response.
const nginx = "HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Fri, 21 Nov 2025 21:24:00 GMT\r\n" +
	"Content-Type: text/html\r\nContent-Length: 615\r\nLast-Modified: Fri, 21 Nov 2025 20:00:00 GMT\r\n" +
	"Connection: keep-alive\r\nETag: \"6554f3a1-267\"\r\nAccept-Ranges: bytes\r\n\r\n"

// responses are heads as servers write them.
var responses = []struct {
	name, text string
	status     int
	closes     bool
}{
	{"nginx", nginx, 200, false},
	{"nginx, error", "HTTP/1.1 502 Bad Gateway\r\nServer: nginx/1.22.1\r\nDate: Fri, 21 Nov 2025 21:24:00 GMT\r\n" +
		"Content-Type: text/html\r\nContent-Length: 157\r\nConnection: close\r\n\r\n", 502, true},
	{"nginx, chunks", "HTTP/1.1 200 OK\r\nServer: nginx\r\nDate: Fri, 21 Nov 2025 21:24:00 GMT\r\n" +
		"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\nVary: Accept-Encoding\r\n\r\n", 200, false},
	{"nginx, not modified", "HTTP/1.1 304 Not Modified\r\nServer: nginx/1.22.1\r\nDate: Fri, 21 Nov 2025 21:24:00 GMT\r\n" +
		"Last-Modified: Fri, 21 Nov 2025 20:00:00 GMT\r\nConnection: keep-alive\r\nETag: \"6554f3a1-267\"\r\n\r\n", 304, false},
	{"Apache", "HTTP/1.1 200 OK\r\nDate: Fri, 21 Nov 2025 21:24:00 GMT\r\nServer: Apache/2.4.62 (Debian)\r\n" +
		"Last-Modified: Fri, 21 Nov 2025 20:00:00 GMT\r\nETag: \"29cd-6119e7c1ad2a3\"\r\nAccept-Ranges: bytes\r\nContent-Length: 10701\r\n" +
		"Vary: Accept-Encoding\r\nContent-Type: text/html\r\n\r\n", 200, false},
	{"Apache to HTTP/1.0", "HTTP/1.1 200 OK\r\nDate: Fri, 21 Nov 2025 21:24:00 GMT\r\nServer: Apache/2.4.62 (Debian)\r\n" +
		"Content-Length: 10701\r\nKeep-Alive: timeout=5, max=100\r\nConnection: Keep-Alive\r\nContent-Type: text/html\r\n\r\n", 200, false},
	{"Apache, error", "HTTP/1.1 400 Bad Request\r\nDate: Fri, 21 Nov 2025 21:24:00 GMT\r\nServer: Apache/2.4.62 (Debian)\r\n" +
		"Content-Length: 301\r\nConnection: close\r\nContent-Type: text/html; charset=iso-8859-1\r\n\r\n", 400, true},
	{"HAProxy, no server", "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 107\r\ncache-control: no-cache\r\ncontent-type: text/html\r\n\r\n", 503, false},
	{"HAProxy, closing", "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 107\r\ncache-control: no-cache\r\ncontent-type: text/html\r\n" +
		"connection: close\r\n\r\n", 503, true},
	{"HAProxy, old", "HTTP/1.0 503 Service Unavailable\r\nCache-Control: no-cache\r\nConnection: close\r\nContent-Type: text/html\r\n\r\n", 503, true},
	{"HAProxy, redirect", "HTTP/1.1 301 Moved Permanently\r\ncontent-length: 0\r\nlocation: https://www.example.org/\r\n\r\n", 301, false},
	{"Go", "HTTP/1.1 200 OK\r\nDate: Fri, 21 Nov 2025 21:24:00 GMT\r\nContent-Length: 6\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n", 200, false},
	{"Go, error", "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n", 400, true},
	{"Go to HTTP/1.0", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nDate: Fri, 21 Nov 2025 21:24:00 GMT\r\nContent-Length: 6\r\n" +
		"Content-Type: text/plain; charset=utf-8\r\n\r\n", 200, false},
	{"Go, nothing", "HTTP/1.1 204 No Content\r\nDate: Fri, 21 Nov 2025 21:24:00 GMT\r\n\r\n", 204, false},
	{"Python", "HTTP/1.0 200 OK\r\nServer: SimpleHTTP/0.6 Python/3.11.2\r\nDate: Fri, 21 Nov 2025 21:24:00 GMT\r\n" +
		"Content-type: text/html; charset=utf-8\r\nContent-Length: 342\r\n\r\n", 200, true},
	{"Python, error", "HTTP/1.0 404 File not found\r\nServer: SimpleHTTP/0.6 Python/3.11.2\r\nDate: Fri, 21 Nov 2025 21:24:00 GMT\r\n" +
		"Connection: close\r\nContent-Type: text/html;charset=utf-8\r\nContent-Length: 335\r\n\r\n", 404, true},
	{"Python, HTTP/1.1", "HTTP/1.1 200 OK\r\nServer: BaseHTTP/0.6 Python/3.11.2\r\nDate: Fri, 21 Nov 2025 21:24:00 GMT\r\n" +
		"Content-Length: 2\r\n\r\n", 200, false},
}

// scanAnswer feeds a scanner bytes, cut as the function says, until it stops. Before each piece it may
// skip what another function says.
func scanAnswer(t testing.TB, a *arena, b []byte, cut, skip twin.Cut) Answer {
	t.Helper()
	s := newAnswerScanner(a)
	r := twin.Feed(t, &s, chunkSize, b, cut, skip)
	return s.result(r.Step, r.Used)
}

// TestResponses compares answer_scan() with net/http on what servers write, and with the oracle on all
// beginnings of that, in pieces, too.
func TestResponses(t *testing.T) {
	a := testArena(t)
	for _, r := range responses {
		t.Run(r.name, func(t *testing.T) {
			b := []byte(r.text)
			got := checkAnswer(t, a, b, 1, 4, 20)
			if !got.Ended || got.Status != r.status || got.Closes != r.closes {
				t.Errorf("answer_scan() says %+v", got)
			}
			for n := range b {
				checkAnswer(t, a, b[:n], 1, 7)
			}
		})
	}
}

// TestLabels reads what applications say of their clients.
func TestLabels(t *testing.T) {
	a := testArena(t)
	for value, lasts := range map[string]int{
		"gold": 0, "gold; for=10m": 600, " gold;for=600": 600, "gold ; for=2h ": 7200, "gold; for=30s; x=y": 30, "gold; x=y; FOR=1m": 60,
		"gold; for=": 0, "gold; for=m": 0, "gold; for=1d": 0, "gold; for=1h30m": 0, "gold; for=9999h": mostLabelLasts, "gold; fort=1m": 0,
	} {
		b := []byte("HTTP/1.1 200 OK\r\nNarthex-Class: silver\r\nnarthex-class:" + value + "\r\nContent-Length: 0\r\n\r\n")
		got := checkAnswer(t, a, b, 1, 3, 16)
		if want := (Label{goldHash, lasts}); got.Label != want {
			t.Errorf("%q: %+v, want %+v", value, got.Label, want)
		}
	}
}

// goldHash is FNV-1a of "gold".
const goldHash = 0xec66d793

// TestStatus reads what is too short, and what is no status, with any byte in it.
func TestStatus(t *testing.T) {
	a := testArena(t)
	for _, text := range []string{"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.0 503\r\n\r\nbody", "HTTP/1.0 000 \r\n\r\nbody", "HTTP/1.0 099 x\n\nbody"} {
		for n := range 17 {
			checkAnswer(t, a, []byte(text)[:n], 1)
		}
		for at := range 14 {
			for c := range 256 {
				b := []byte(text)
				b[at] = byte(c)
				checkAnswer(t, a, b, 1, 5)
			}
		}
	}
}

// denseAnswers take the most steps for their bytes.
func denseAnswers() []string {
	var all []string
	for _, again := range []string{"a:\r\n", "Connection:close\r\n", "Connection:,,,,,,\r\n", "Connection: keep-alive\r\na:\r\n"} {
		for _, last := range []string{"Connection:close\r\n\r\n", "Connection:keep-alive\r\n\r\n", "\r\n"} {
			for _, version := range []string{"HTTP/1.0", "HTTP/1.1"} {
				start := version + " 200\r\n"
				n := (chunkSize - len(start) - len(last)) / len(again)
				all = append(all, start+strings.Repeat(again, n)+last)
			}
		}
	}
	all = append(all, "HTTP/1.1 200\r\nTransfer-Encoding:chunked\r\n\r\n"+strings.Repeat("1\r\na\r\n", 75)+"0\r\n\r\n")
	return all
}

// TestDenseAnswers reads a chunk to its end, whatever it takes.
func TestDenseAnswers(t *testing.T) {
	a := testArena(t)
	for _, text := range denseAnswers() {
		if got := checkAnswer(t, a, []byte(text), 1, 200); got.Step != End {
			t.Errorf("answer_scan() says %+v\n%q", got, text)
		}
	}
}

// TestRandomAnswers compares answer_scan() with the oracle and with net/http.
func TestRandomAnswers(t *testing.T) {
	const answers = 50_000
	a := testArena(t)
	seen := map[string]int{}
	for choices := range draw.Recipes(rand.NewChaCha8([32]byte{2}), answers, 250) {
		r := recipe{choices}
		got := checkAnswer(t, a, r.answer(), 1+len(choices)%40)
		for name, set := range map[string]bool{
			"lost": got.Step == Lost, "head goes on": got.Step == More && !got.Ended, "in chunks": got.Step == More && got.Ended,
			"chunks end": got.Step == End && got.Chunked, "length": got.Length > 0, "no length": got.Ended && !got.Chunked && !got.Sized,
			"closes": got.Closes, "keeps": got.Keeps, "says nothing": got.Ended && !got.Closes && !got.Keeps,
		} {
			if set {
				seen[name]++
			}
		}
	}
	t.Log(seen)
	if len(seen) != 9 {
		t.Errorf("of %d answers some results never came", answers)
	}
	for what, n := range seen {
		if n < answers/500 {
			t.Errorf("only %d of %d answers: %s", n, answers, what)
		}
	}
}

// checkAnswer holds what is said of a response's first bytes against all that is known. The bytes are cut
// into pieces of at most the given sizes, too.
func checkAnswer(t testing.TB, a *arena, b []byte, sizes ...int) Answer {
	t.Helper()
	got := scanAnswer(t, a, b, twin.Whole, twin.None)
	if want := oracleSaysOfAnswer(b); got != want {
		t.Fatalf("answer_scan() says %+v\noracle says        %+v\n%q", got, want, b)
	}
	twin.CheckPieces(t, b, got, func(cut, skip twin.Cut) Answer { return scanAnswer(t, a, b, cut, skip) }, sizes...)
	checkGoOnAnswer(t, b, got)
	return got
}

// checkGoOnAnswer fails if net/http reads a response otherwise. It may take what we do not follow.
func checkGoOnAnswer(t testing.TB, b []byte, got Answer) {
	t.Helper()
	in := bytes.NewReader(b)
	buffered := bufio.NewReader(in)
	resp, err := std.ReadResponse(buffered, nil)
	bare := got.Status < 200 || got.Status == 204 || got.Status == 304
	if err != nil || got.Step != End || bare {
		return
	}
	same := resp.StatusCode == got.Status
	if got.Chunked {
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return
		}
		same = same && got.Used == len(b)-in.Len()-buffered.Buffered()
	} else if got.Sized && got.Length > 0 {
		same = same && resp.ContentLength == int64(got.Length)
	}
	if !same {
		t.Fatalf("answer_scan() says %+v\nnet/http: status %d, Content-Length %d\n%q", got, resp.StatusCode, resp.ContentLength, b)
	}
}

// answer builds a response.
func (r *recipe) answer() []byte {
	status := draw.Pick(r, "200 OK", "100 Continue", "101 Switching Protocols", "204 ", "404", "503 Service Unavailable", "999 x\x80")
	b := draw.Unlikely(r, 16, "HTTP/1.1", "HTTP/1.0", "HTTP/1.0", "HTTP/1.0", "HTTP/1.2", "HTTP/2", "http/1.1", "ICY", "") + draw.Unlikely(r, 64, " ", "", "  ", "\t") +
		draw.Unlikely(r, 32, status, "20 OK", "2000 OK", "099 x", "+20 x", "200\tOK", "") + r.eol("\r\n")
	for range draw.Pick(r, 1, 2, 3, 4, 5, 6, 8, 12) {
		b += r.header() + r.eol("\r\n")
	}
	body := draw.Pick(r, "body", "4\r\nbody\r\n0\r\n\r\n", "4;a=b\r\nbody\r\n3\r\nmor", "0\r\nTrailer: x\r\n\r\n", "0\r\n")
	return r.damage([]byte(b + draw.Pick(r, "\r\n", "\n", "") + body))
}
