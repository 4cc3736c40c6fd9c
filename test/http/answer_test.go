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

// TestResponses compares read_response() with net/http on what servers write, and with the
// oracle on all beginnings of that, behind which in the chunk may be the rest, or anything.
func TestResponses(t *testing.T) {
	a := testArena(t)
	for _, r := range responses {
		t.Run(r.name, func(t *testing.T) {
			b := []byte(r.text)
			if got, want := checkAnswer(t, a, b), (Answer{r.status, r.closes, true}); got != want {
				t.Errorf("read_response() says %+v, not %+v", got, want)
			}
			resp, err := std.ReadResponse(bufio.NewReader(bytes.NewReader(b)), nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != r.status || resp.Close != r.closes {
				t.Errorf("net/http: status %d, closes %v", resp.StatusCode, resp.Close)
			}
			for n := range b {
				checkAnswer(t, a, b[:n], b[n:])
				checkAnswer(t, a, b[:n], endings...)
			}
		})
	}
}

// TestStatus reads what is too short, and what is no status, with any byte in it.
func TestStatus(t *testing.T) {
	a := testArena(t)
	for _, text := range []string{"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.0 503\r\n\r\nbody", "HTTP/1.0 000 \r\n\r\nbody", "HTTP/1.0 099 x\n\nbody"} {
		for n := range 17 {
			got := checkAnswer(t, a, []byte(text)[:n], []byte(text)[n:])
			if n < 12 && got != (Answer{}) {
				t.Errorf("of %d bytes: %+v", n, got)
			}
		}
		for at := range 14 {
			for c := range 256 {
				b := []byte(text)
				b[at] = byte(c)
				if got := checkAnswer(t, a, b); got.Status == 0 && got != (Answer{}) {
					t.Errorf("%+v\n%q", got, b)
				}
			}
		}
	}
}

// connectionLines are some that say something, some that nearly do.
var connectionLines = []string{
	"Connection: close", "connection:close", "CONNECTION: Keep-Alive", "Connection:keep-alive", "Connection:  close",
	"Connection: closed", "Connection: clos", "Connection: keep\ralive", "Connection : close", "Connection:\tclose", "X-Connection: close",
	"Connection: Upgrade, close", "Connection: close, Upgrade", "\xe3onnection: close", "Connectio\x0e: close",
}

// TestChunkEnd puts a line anywhere, up to the chunk's end and beyond, and ends the bytes anywhere
// in or behind it.
func TestChunkEnd(t *testing.T) {
	a := testArena(t)
	for _, line := range connectionLines {
		for _, version := range []string{"HTTP/1.0", "HTTP/1.1"} {
			start := version + " 200 OK\r\nA:"
			for pad := range 2 * 8 {
				checkEnds(t, a, start+strings.Repeat("x", pad), line)
			}
			for at := chunkSize - len(line) - 16; at <= chunkSize; at++ {
				checkEnds(t, a, start+strings.Repeat("x", at-len(start)-2), line)
			}
		}
	}
}

// checkEnds ends the bytes anywhere in the line or behind it.
func checkEnds(t *testing.T, a *arena, start, line string) {
	t.Helper()
	b := []byte(start + "\r\n" + line + "\r\n\r\nbody")
	for n := len(start); n <= len(b); n++ {
		checkAnswer(t, a, b[:n], b[n:])
	}
}

// denseAnswers take the most steps for their bytes.
func denseAnswers() []string {
	var all []string
	for _, again := range []string{"a\n", "a\r\n", "\xffabcdefg", "\n", "Connection:close\n", "Connection:close\na\n", "Connection: keep-alive\n"} {
		for _, last := range []string{"Connection:close\n", "Connection:keep-alive\n", "\n"} {
			for _, version := range []string{"HTTP/1.0", "HTTP/1.1"} {
				start := version + " 200\n"
				n := (chunkSize - len(start) - len(last) - 7) / len(again)
				all = append(all, start+strings.Repeat(again, n)+last)
			}
		}
	}
	return all
}

// TestDenseAnswers reads a chunk to its end, whatever it takes: the last line says it.
func TestDenseAnswers(t *testing.T) {
	a := testArena(t)
	for _, text := range denseAnswers() {
		checkAnswer(t, a, []byte(text), endings...)
	}
}

// TestRandomAnswers compares read_response() with the oracle and with net/http.
func TestRandomAnswers(t *testing.T) {
	const answers = 50_000
	a := testArena(t)
	seen := map[Answer]int{}
	for choices := range draw.Recipes(rand.NewChaCha8([32]byte{2}), answers, 250) {
		r := recipe{choices}
		got := checkAnswer(t, a, r.answer())
		got.Status = min(got.Status, 1)
		seen[got]++
	}
	t.Log(seen)
	for _, want := range []Answer{{}, {1, false, false}, {1, true, false}, {1, false, true}, {1, true, true}} {
		if seen[want] < answers/100 {
			t.Errorf("only %d of %d answers: %+v", seen[want], answers, want)
		}
	}
}

// checkAnswer holds what is said of a response's first bytes against all that is known. What
// is behind them in the chunk must not matter.
func checkAnswer(t testing.TB, a *arena, b []byte, behind ...[]byte) Answer {
	t.Helper()
	first := b[:min(len(b), chunkSize)]
	want := oracleSaysOfAnswer(first)
	for _, other := range append(behind, endings[len(b)%len(endings)]) {
		if got := a.readAnswer(first, other); got != want {
			t.Fatalf("read_response() says %+v\noracle says          %+v\n%q, behind it %q", got, want, first, other)
		}
	}
	resp, err := std.ReadResponse(bufio.NewReader(io.LimitReader(bytes.NewReader(b), chunkSize)), nil)
	if err == nil && want.Status != 0 && resp.StatusCode != want.Status {
		t.Fatalf("read_response() says %+v\nnet/http: status %d\n%q", want, resp.StatusCode, b)
	}
	return want
}

// answer builds a response.
func (r *recipe) answer() []byte {
	status := draw.Pick(r, "200 OK", "100 Continue", "101 Switching Protocols", "204 ", "404", "503 Service Unavailable", "999 x\x80")
	b := draw.Unlikely(r, 16, "HTTP/1.1", "HTTP/1.0", "HTTP/1.0", "HTTP/1.0", "HTTP/1.2", "HTTP/2", "http/1.1", "ICY", "") + draw.Unlikely(r, 64, " ", "", "  ", "\t") +
		draw.Unlikely(r, 32, status, "20 OK", "2000 OK", "099 x", "+20 x", "200\tOK", "") + r.eol("\r\n")
	for range draw.Pick(r, 1, 2, 3, 4, 5, 6, 8, 12) {
		b += r.header() + r.eol("\r\n")
	}
	return r.damage([]byte(b + draw.Pick(r, "\r\n", "\n", "") + "body"))
}
