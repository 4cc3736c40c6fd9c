// SPDX-License-Identifier: Apache-2.0

package http

import (
	"strings"
	"testing"

	"narthex/test/twin"
)

// heads are requests with what is known of them by heart.
var heads = []struct {
	name    string
	text    string // the head and its chunks alone, up to the byte with which it ends or is lost
	step    Step
	framing Framing
}{
	{"wrk", wrk, End, Framing{}},
	{"curl", curl, End, Framing{}},
	{"browser", browser, End, Framing{}},
	{"empty lines before", "\r\n\r\n\r\nGET / HTTP/1.1\r\n\r\n", End, Framing{}},
	{"HTTP/1.0", "GET / HTTP/1.0\r\n\r\n", End, Framing{Closes: true}},
	{"HTTP/1.0 keeps alive", "GET / HTTP/1.0\r\nCONNECTION:\tfoo ,Keep-Alive \r\n\r\n", End, Framing{}},
	{"close", "GET / HTTP/1.1\r\nconnection: a,,close\r\n\r\n", End, Framing{Closes: true}},
	{"close as part of a token", "GET / HTTP/1.1\r\nconnection: closed, not-close, close x\r\n\r\n", End, Framing{}},
	{"body", "POST / HTTP/1.1\r\nContent-length:0012 \r\n\r\n", End, Framing{Length: 12}},
	{"longest body", "PUT / HTTP/1.1\r\nContent-Length: 1073741824\r\n\r\n", End, Framing{Length: 1 << 30}},
	{"chunks", chunks, End, chunked},
	{"no chunk", chunkedHead + "0\r\n\r\n", End, chunked},
	{"many chunks", chunkedHead + strings.Repeat("1\r\nx\r\n", 300) + "0\r\n\r\n", End, chunked},
	{"long chunk", chunkedHead + "400\r\n" + strings.Repeat("0\r\n\r\n\r\n\n", 128) + "\r\n0\r\n\r\n", End, chunked},
	{"sizes", chunkedHead + "0000000A\r\n0123456789\r\nb\r\n0123456789a\r\n00000000\r\n\r\n", End, chunked},
	{"extensions", chunkedHead + "1;a=b\r\nx\r\n1 ; a=\"b;\"\t\r\nx\r\n1;\r\nx\r\n0;~\r\n\r\n", End, chunked},
	{"space behind a size", chunkedHead + "1\t \r\nx\r\n0 \r\n\r\n", End, chunked},
	{"trailers", chunkedHead + "0\r\nConnections: close\r\nX: y\r\n\r\n", End, chunked},
	{"coding", "GET / HTTP/1.1\r\nConnection: close\r\nTRANSFER-ENCODING:\tCHUNKED \t\r\n\r\n0\r\n\r\n", End, Framing{Chunked: true, Closes: true}},
	{"chunks expected", chunkedHead, More, chunked},
	{"chunk's size not yet ended", chunkedHead + "5\r", More, chunked},
	{"chunk not yet ended", chunkedHead + "5\r\nhell", More, chunked},
	{"longest chunk", chunkedHead + "40000000\r\nhello", More, chunked},
	{"end of a chunk not yet there", chunkedHead + "5\r\nhello", More, chunked},
	{"trailers not yet ended", chunkedHead + "0\r\n\r", More, chunked},
	{"Expect", "POST / HTTP/1.1\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\n", End, Framing{Length: 1, Expect: true}},
	{"longer body", "GET / HTTP/1.1\r\nContent-Length: 1073741825\r\n\r\n", End, endless},
	{"length of 64 bits and a little", "GET / HTTP/1.1\r\nContent-Length: 18446744073709551621\r\n\r\n", End, endless},
	{"length of many digits", "GET / HTTP/1.1\r\nContent-Length: " + strings.Repeat("90", 500) + " \r\n\r\n", End, endless},
	{"length of many zeros", "GET / HTTP/1.1\r\nContent-Length: " + strings.Repeat("0", 1000) + "7\r\n\r\n", End, Framing{Length: 7}},
	{"WebSocket", "GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", End, Framing{Upgrade: true}},
	{"Upgrade that Connection does not name", "GET / HTTP/1.1\r\nUpgrade: x\r\n\r\n", End, Framing{}},
	{"h2c", "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n", End, Framing{Upgrade: true, H2C: true}},
	{"h2c that Connection does not name", "GET / HTTP/1.1\r\nUpgrade: h2c\r\n\r\n", End, Framing{H2C: true}},
	{"h2c among others", "GET / HTTP/1.1\r\nUpgrade: websocket ,,\tH2C\t, IRC/6.9\r\n\r\n", End, Framing{H2C: true}},
	{"h2c in the second Upgrade", "GET / HTTP/1.1\r\nUpgrade: websocket\r\nUPGRADE:h2C\r\n\r\n", End, Framing{H2C: true}},
	{"h2c as part of a token", "GET / HTTP/1.1\r\nUpgrade: h2, h2c-16, xh2c, h2c/1, h2cx, h2c x\r\n\r\n", End, Framing{}},
	{"h2c in another header", "GET / HTTP/1.1\r\nX-Upgrade: h2c\r\nConnection: h2c\r\nExpect: h2c\r\nUpgrades: h2c\r\n\r\n", End, Framing{}},
	{"h2c and chunks", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nUpgrade: h2c\r\n\r\n1\r\nx\r\n0\r\n\r\n", End, Framing{Chunked: true, H2C: true}},
	{"PRI as a method of HTTP/1", "PRI * HTTP/1.1\r\n\r\n", End, Framing{}},
	{"PRI as a method of HTTP/1.0", "PRI / HTTP/1.0\r\n\r\n", End, Framing{Closes: true}},
	{"method like POST and PRI", "PUT / HTTP/1.1\r\n\r\n", End, Framing{}},
	{"method longer than PRI", "PRIX / HTTP/1.1\r\n\r\n", End, Framing{}},
	{"CONNECT", "CONNECT a:1 HTTP/1.1\r\n\r\n", End, Framing{Upgrade: true}},
	{"HEAD", "HEAD / HTTP/1.1\r\n\r\n", End, Framing{Head: true}},
	{"not yet ended", "GET / HTTP/1.1\r\nHost: a\r\n\r", More, Framing{}},
	{"nothing but empty lines", strings.Repeat("\r\n", 300), More, Framing{}},

	{"TLS", "\x16", Lost, Framing{}},
	{"HTTP/2", preface, Lost, Framing{}},
	{"HTTP/2.1", "PRI * HTTP/2.1", Lost, Framing{}},
	{"HTTP/3 with HTTP/2's method", "PRI * HTTP/3", Lost, Framing{}},
	{"HTTP/1.2 with HTTP/2's method", "PRI * HTTP/1.2", Lost, Framing{}},
	{"HTTP/2 with another method", "GET * HTTP/2", Lost, Framing{}},
	{"HTTP/2 without a target", "PRI  ", Lost, Framing{}},
	{"h2c in a head that is lost", "GET / HTTP/1.1\r\nUpgrade: h2c\r\n:", Lost, Framing{}},
	{"h2c before chunks that are lost", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nUpgrade: h2c\r\n\r\nx", Lost, Framing{}},
	{"HTTP/0.9", "GET /\r", Lost, Framing{}},
	{"HTTP/1.2", "GET / HTTP/1.2", Lost, Framing{}},
	{"space before the method", " ", Lost, Framing{}},
	{"request line ends in LF", "GET / HTTP/1.1\n", Lost, Framing{}},
	{"header ends in LF", "GET / HTTP/1.1\r\nHost: a\n", Lost, Framing{}},
	{"length ends in LF", "GET / HTTP/1.1\r\nContent-Length: 5\n", Lost, Framing{}},
	{"list ends in LF", "GET / HTTP/1.1\r\nConnection: close\n", Lost, Framing{}},
	{"head ends in LF", "GET / HTTP/1.1\r\nHost: a\r\n\n", Lost, Framing{}},
	{"empty line of LF before", "\n", Lost, Framing{}},
	{"trailer ends in LF", chunkedHead + "0\r\nX: y\n", Lost, Framing{}},
	{"trailers end in LF", chunkedHead + "0\r\n\n", Lost, Framing{}},
	{"method in small letters", "g", Lost, Framing{}},
	{"method with a small letter", "GEt", Lost, Framing{}},
	{"longer method with a small letter", "PRIx", Lost, Framing{}},
	{"no method token", "GE(", Lost, Framing{}},
	{"two spaces", "GET  ", Lost, Framing{}},
	{"space behind the version", "GET / HTTP/1.1 ", Lost, Framing{}},
	{"two lengths", "GET / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length:", Lost, Framing{}},
	{"list of lengths", "GET / HTTP/1.1\r\nContent-Length: 5,", Lost, Framing{}},
	{"length with a sign", "GET / HTTP/1.1\r\nContent-Length: +", Lost, Framing{}},
	{"length in two parts", "GET / HTTP/1.1\r\nContent-Length: 5 5", Lost, Framing{}},
	{"no length", "GET / HTTP/1.1\r\nContent-Length: \r", Lost, Framing{}},
	{"longer body in two parts", "GET / HTTP/1.1\r\nContent-Length: 1073741825 5", Lost, Framing{}},
	{"longer body with a letter", "GET / HTTP/1.1\r\nContent-Length: 99999999999999999999x", Lost, Framing{}},
	{"two lengths, the first longer", "GET / HTTP/1.1\r\nContent-Length: 1073741825\r\nContent-Length:", Lost, Framing{}},
	{"longer body and chunks", "GET / HTTP/1.1\r\nContent-Length: 1073741825\r\nTransfer-Encoding:", Lost, Framing{}},
	{"length and chunks", "GET / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding:", Lost, Framing{}},
	{"chunks and length", "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length:", Lost, Framing{}},
	{"chunks in HTTP/1.0", "GET / HTTP/1.0\r\nTransfer-Encoding:", Lost, Framing{}},
	{"two codings", "GET / HTTP/1.1\r\nTransfer-Encoding: g", Lost, Framing{}},
	{"two codings, chunks first", "GET / HTTP/1.1\r\nTransfer-Encoding: chunked,", Lost, Framing{}},
	{"coding with a parameter", "GET / HTTP/1.1\r\nTransfer-Encoding: chunked;", Lost, Framing{}},
	{"another coding", "GET / HTTP/1.1\r\nTransfer-Encoding: chunkedx", Lost, Framing{}},
	{"part of a coding", "GET / HTTP/1.1\r\nTransfer-Encoding: chunke\r", Lost, Framing{}},
	{"vertical tab before the coding", "GET / HTTP/1.1\r\nTransfer-Encoding: \x0b", Lost, Framing{}},
	{"coding on the next line", "GET / HTTP/1.1\r\nTransfer-Encoding:\r", Lost, Framing{}},
	{"coding twice", "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-encoding:", Lost, Framing{}},
	{"no size", chunkedHead + "\r", Lost, Framing{}},
	{"space before a size", chunkedHead + " ", Lost, Framing{}},
	{"extension without a size", chunkedHead + ";", Lost, Framing{}},
	{"hexadecimal with a prefix", chunkedHead + "0x", Lost, Framing{}},
	{"size with a sign", chunkedHead + "-", Lost, Framing{}},
	{"size in two parts", chunkedHead + "5 5", Lost, Framing{}},
	{"nine digits", chunkedHead + "000000005", Lost, Framing{}},
	{"longer chunk", chunkedHead + "40000001", Lost, Framing{}},
	{"much longer chunk", chunkedHead + "FFFFFFFF", Lost, Framing{}},
	{"size ends in LF", chunkedHead + "5\n", Lost, Framing{}},
	{"size ends in CR", chunkedHead + "5\rh", Lost, Framing{}},
	{"size ends in CR CR", chunkedHead + "5\r\r", Lost, Framing{}},
	{"LF in an extension", chunkedHead + "5;a=\"\n", Lost, Framing{}},
	{"CR in an extension", chunkedHead + "5;a=\"\r\"", Lost, Framing{}},
	{"line end in a quoted extension", chunkedHead + "5;a=\"\r\n\"5\r\n0;", Lost, Framing{}},
	{"byte beyond ASCII in an extension", chunkedHead + "5;\xff", Lost, Framing{}},
	{"NUL in an extension", chunkedHead + "5;\x00", Lost, Framing{}},
	{"data longer than said", chunkedHead + "5\r\nhello!", Lost, Framing{}},
	{"data end in LF", chunkedHead + "5\r\nhello\n", Lost, Framing{}},
	{"data end in CR", chunkedHead + "5\r\nhello\r0", Lost, Framing{}},
	{"length in a trailer", chunkedHead + "0\r\nContent-Length:", Lost, Framing{}},
	{"Connection in a trailer", chunkedHead + "0\r\nX: y\r\nConnection:", Lost, Framing{}},
	{"Upgrade in a trailer", chunkedHead + "0\r\nUpgrade:", Lost, Framing{}},
	{"Expect in a trailer", chunkedHead + "0\r\nexpect:", Lost, Framing{}},
	{"coding in a trailer", chunkedHead + "0\r\nX: y\r\nTransfer-Encoding:", Lost, Framing{}},
	{"folded trailer", chunkedHead + "0\r\nX: y\r\n ", Lost, Framing{}},
	{"chunk behind the last", chunkedHead + "0\r\n5\r", Lost, Framing{}},
	{"chunks in HTTP/1.0", "GET / HTTP/1.0\r\nTransfer-Encoding:", Lost, Framing{}},
	{"space before the colon", "GET / HTTP/1.1\r\nContent-Length ", Lost, Framing{}},
	{"VT before the colon", "GET / HTTP/1.1\r\nContent-Length\x0b", Lost, Framing{}},
	{"no-break space before the colon", "GET / HTTP/1.1\r\nContent-Length\xa0", Lost, Framing{}},
	{"two hosts", "GET / HTTP/1.1\r\nHost: a\r\nhOST:", Lost, Framing{}},
	{"folded line", "GET / HTTP/1.1\r\nHost: a\r\n ", Lost, Framing{}},
	{"NUL", "GET / HTTP/1.1\r\nHost: a\x00", Lost, Framing{}},
	{"bare CR", "GET / HTTP/1.1\r\nHost: a\rb", Lost, Framing{}},
	{"CR CR LF", "GET / HTTP/1.1\r\nHost: a\r\r", Lost, Framing{}},
	{"line without colon", "GET / HTTP/1.1\r\nHost\n", Lost, Framing{}},
	{"line without a name", "GET / HTTP/1.1\r\n:", Lost, Framing{}},
}

// What clients send.
const (
	wrk     = "GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nX-Class: important\r\n\r\n"
	curl    = "GET /index.html HTTP/1.1\r\nHost: www.example.org\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n"
	browser = "GET /shop/item?id=4711 HTTP/1.1\r\n" +
		"Host: www.example.org\r\n" +
		"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n" +
		"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n" +
		"Accept-Language: en-GB,en;q=0.7,de;q=0.3\r\n" +
		"Accept-Encoding: gzip, deflate, br, zstd\r\n" +
		"Referer: https://www.example.org/shop/\r\n" +
		"Connection: keep-alive\r\n" +
		"Cookie: session=0123456789abcdef0123456789abcdef; theme=dark; consent=1\r\n" +
		"Upgrade-Insecure-Requests: 1\r\n" +
		"Sec-Fetch-Dest: document\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Site: same-origin\r\n" +
		"Priority: u=0, i\r\n\r\n"
	post = "POST /cart HTTP/1.1\r\nHost: www.example.org\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: 27\r\n" +
		"Content-Type: application/json\r\nConnection: close\r\nAccept-Encoding: gzip\r\n\r\n"
)

// What comes in chunks.
const (
	chunkedHead = "POST /upload HTTP/1.1\r\nHost: www.example.org\r\nUser-Agent: curl/7.88.1\r\nTransfer-Encoding: chunked\r\n\r\n"
	chunks      = chunkedHead + "5\r\nhello\r\n00F;name=value\r\n, chunked world\r\n0\r\nX-Sum: 1\r\n\r\n"
)

// preface is what a client that knows of the server's HTTP/2 begins with, as far as it is read.
const preface = "PRI * HTTP/2.0"

var (
	chunked = Framing{Chunked: true}
	endless = Framing{Endless: true}
)

// cookies is a request that is mostly one line.
var cookies = "GET / HTTP/1.1\r\nHost: www.example.org\r\nCookie: " + strings.Repeat("name=0123456789abcdef; ", 19) + "\r\n\r\n"

// TestHeads checks the heads, with something behind them, cut in two anywhere and in many.
func TestHeads(t *testing.T) {
	a := testArena(t)
	for _, h := range heads {
		t.Run(h.name, func(t *testing.T) {
			want := Result{
				Step: h.step, Used: len(h.text), Framing: h.framing,
				Line: h.step != Lost && strings.Contains(h.text, " HTTP/1."), Preface: h.text == preface,
			}
			if h.framing.Chunked && h.step != Lost {
				want.Head = strings.Index(h.text, "\r\n\r\n") + 4
				want.InBody = h.step == More
			} else if h.step == End {
				want.Head = len(h.text)
			}
			if h.step == Lost {
				want.Used = 0
				checkEarly(t, a, h.text)
			}
			b := []byte(h.text)
			if h.step == End {
				b = append(b, "GET / HTTP/1.1\r\nConnection: close\r\n\r\n"...)
			}
			if got := checkStream(t, a, b, 1, 2, 5, 50); got != want {
				t.Fatalf("%+v, not %+v", got, want)
			}
			for first := 1; first < len(b); first++ {
				got := scan(t, a, b, twin.After(first, chunkSize), twin.None)
				if got != want {
					t.Fatalf("cut after %d bytes: %+v, not %+v", first, got, want)
				}
			}
		})
	}
}

// checkEarly fails if what makes a head lost is not its last byte.
func checkEarly(t *testing.T, a *arena, lost string) {
	t.Helper()
	if got := checkStream(t, a, []byte(lost[:len(lost)-1])); got.Step != More {
		t.Errorf("without its last byte: %+v", got)
	}
}

// TestDense reads what takes the most steps for its bytes: a chunk full of it is still read to
// its end.
func TestDense(t *testing.T) {
	a := testArena(t)
	for _, c := range []struct{ start, again string }{
		{"", "\r\n"}, {"", "A"}, {"GET ", "a"}, {"GET / HTTP/1.1\r\n", "a:\r\n"},
		{"GET / HTTP/1.1\r\n", "a:\t\r\n"}, {"GET / HTTP/1.1\r\n", "c:\r\n"}, {"GET / HTTP/1.1\r\nA:", "\t"},
		{"GET / HTTP/1.1\r\nContent-Length:", " "}, {"GET / HTTP/1.1\r\nContent-Length:", "0"},
		{"GET / HTTP/1.1\r\nContent-Length: 1", "\t"}, {"GET / HTTP/1.1\r\nConnection:", ","},
		{"GET / HTTP/1.1\r\nConnection:", "c,"}, {"GET / HTTP/1.1\r\nConnection:", "close,"},
		{"GET / HTTP/1.1\r\nConnection:", "close x, "}, {"GET / HTTP/1.1\r\nConnection:", "x"},
		{"GET / HTTP/1.1\r\n", "Connection:\r\n"}, {"GET / HTTP/1.1\r\n", "Connection:c\r\n"}, {"GET / HTTP/1.1\r\n", "c"},
		{"GET / HTTP/1.1\r\n", "Expect:1\r\nUpgrade:\r\n"},
		{"GET / HTTP/1.1\r\nUpgrade:", "h"}, {"GET / HTTP/1.1\r\nUpgrade:", "h2c,"}, {"GET / HTTP/1.1\r\nUpgrade:", "h2c x,"}, {"GET / HTTP/1.1\r\n", "Upgrade:h2c\r\n"},
		{"PRI ", "*"}, {"GET / HTTP/1.1\r\nContent-Length:", "9"}, {"GET / HTTP/1.1\r\nTransfer-Encoding:", " "},
		{chunkedHead, "1\r\nx\r\n"}, {chunkedHead + "1;", "x"}, {chunkedHead + "1", " "}, {chunkedHead + "0\r\n", "a:\r\n"},
		{chunkedHead + "1\r\nx\r\n0\r\n", "a:\t\r\n"}, {chunkedHead + "F00\r\n", "x"},
	} {
		b := []byte(c.start + strings.Repeat(c.again, 2*chunkSize/len(c.again)))
		if got := checkStream(t, a, b, 1, 3, 300); got.Step != More {
			t.Errorf("%q: %+v", b, got)
		}
	}
}
