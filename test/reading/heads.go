// SPDX-License-Identifier: Apache-2.0

package reading

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// head is a request's head in parts, each of which may be wrong.
type head struct {
	before                  string // the request line
	method, target, version string
	gaps                    [2]string // between these
	lines                   []string
	ends                    []string // of the request line, each line, and the empty one
	coded                   bool     // one of the lines is to say that the body is in chunks
}

func (h *head) String() string {
	var b strings.Builder
	b.WriteString(h.before + h.method + h.gaps[0] + h.target + h.gaps[1] + h.version)
	b.WriteString(h.end(0))
	for i, l := range h.lines {
		b.WriteString(l + h.end(i+1))
	}
	b.WriteString(h.end(len(h.lines) + 1))
	return b.String()
}

// end is the end of a line: one of those that were drawn, which are for the first lines, or the usual one.
func (h *head) end(line int) string {
	if line < len(h.ends) && h.ends[line] != "" {
		return h.ends[line]
	}
	return "\r\n"
}

// draw makes decisions.
type draw struct{ *rand.Rand }

func one[T any](d *draw, of ...T) T { return of[d.IntN(len(of))] }

// chance is true once in so many times.
func (d *draw) chance(n int) bool { return d.IntN(n) == 0 }

// unlikely is the first but once in so many times.
func (d *draw) unlikely(n int, usual string, of ...string) string {
	if d.chance(n) {
		return one(d, of...)
	}
	return usual
}

// Stream draws a request, with a body if its head says so, by its number: a browser's, changed in a few ways.
func Stream(seed, number uint64) []byte {
	d := &draw{rand.New(rand.NewPCG(seed, number))}
	h := parse(one(d, Browsers...))
	h.target = d.target()
	for range one(d, 0, 1, 1, 2, 2, 3, 5) {
		one(d, changes...)(d, h)
	}
	text := h.String()
	switch {
	case h.coded:
		text += d.chunks()
	case d.chance(2):
		text += d.body()
	}
	if !d.chance(8) {
		text = withoutControls(text)
	}
	if d.chance(16) {
		text = d.damage(text)
	}
	return []byte(text)
}

// withoutControls takes out what nearly no server takes.
func withoutControls(text string) string {
	return string(slices.DeleteFunc([]byte(text), func(b byte) bool { return b < ' ' && b != '\t' && b != '\r' && b != '\n' }))
}

// parse takes a browser's head apart.
func parse(text string) *head {
	lines := strings.Split(strings.TrimSuffix(text, "\r\n\r\n"), "\r\n")
	parts := strings.Split(lines[0], " ")
	return &head{method: parts[0], target: parts[1], version: parts[2], gaps: [2]string{" ", " "}, lines: lines[1:]}
}

// changes are what may be other than in a browser's head.
var changes = []func(*draw, *head){
	(*draw).connection, (*draw).connection, (*draw).connection, (*draw).connection, (*draw).connection,
	(*draw).length, (*draw).length, (*draw).length,
	(*draw).coding, (*draw).coding, (*draw).coding,
	(*draw).method,
	(*draw).host,
	(*draw).version,
	(*draw).upgrade,
	(*draw).rule, (*draw).rule,
	(*draw).absolute,
	(*draw).long, (*draw).lineEnds, (*draw).blanks, (*draw).name,
	(*draw).fold,
	(*draw).long,
}

// add puts lines somewhere among the others.
func (d *draw) add(h *head, lines ...string) {
	h.lines = slices.Insert(h.lines, d.IntN(len(h.lines)+1), lines...)
}

// drop takes lines of a header out.
func (h *head) drop(name string) {
	h.lines = slices.DeleteFunc(h.lines, func(l string) bool {
		return len(l) > len(name) && strings.EqualFold(l[:len(name)], name) && l[len(name)] == ':'
	})
}

func (d *draw) target() string {
	if d.chance(3) {
		return one(d, "/", "/index.html", "/shop/item?id=4711", "/search?q=a+b&page=2", "/%D1%84/%C3%A9?x=%20", "/a/b/c/d.css?v=1.2", "/~user/;s=1", "/x?u=http://b/../c")
	}
	var b strings.Builder
	for range 1 + d.IntN(5) {
		b.WriteString("/" + one(d, "a", "b", "noaccess", "A", "a.b", "index.php", "%61", "%6E%6f", "a%20b", "a+b", "~a", "a,b", "a:b", "a=b", "a@b", "a!b", "a$b", "a'b", "(a)", "*", "-", "_", "%C3%A9"))
		if d.chance(6) {
			b.WriteString(one(d, "/", "//", "/.", "/./", "/.a", "/..a", "%2f", "%2F", ";a=b", ";", "%3b", "%3f", "%23", "%25", "%252e", "%ff", "%c0%af", "%0a", "%5c", "\\", "|", "\"", "<>", "{}", "^", "`", "[]", "\x7f"))
		}
		if d.chance(24) {
			b.WriteString(one(d, "/..", "/.", "/", "//", "/...", "/.a", "/..a", "/%2e%2e", "/%2E", "/.%2e", "%2f", "%2F..%2f", "%2f%2e", "%5c", "\\", "\\..\\", ";a=b", ";", "/..;a", "/.;/", "%3b", "%3f", "%23", "%25", "%252e", "%00",
				"%", "%4", "%zz", "%u0061", "\xc3\xa9", "\xff", "%ff", "%c0%af", "%0a", "%0d%0a", "%09", "%7f", "\x7f", "|", "\"", "<>", "{}", "^", "`", "[]", "\t", "\x01", "\x00", "\x0b", " "))
		}
	}
	if d.chance(16) {
		return b.String() + one(d, "/..", "/.", "/../", "#", "#a", "#?a", "/..?", "/%2e%2e", "/%2e", "/..;a")
	}
	return b.String() + one(d, "", "", "", "/", "/./", "?", "?a=b", "?/../c", "?a?b", "?a#b", "?%zz", "?%00", "?\xff", ";", "/;a", "//", "/%2e/")
}

func (d *draw) absolute(h *head) {
	host := one(d, "x", "x", "www.example.org", "secret.example", "X.example:80", "x:", "x.", "[::1]", "[::1]:80", "user@x", "u:p@x", "", "x%2fy", "x\\y", "x:8o", "x y", "é", "127.0.0.1")
	h.target = one(d, "http://", "http://", "http://", "HTTP://", "https://", "ftp://", "http:/", "http:", "://", "//", "ws://", "") + host + one(d, h.target, h.target, "", "?a=b", "#a")
	if d.chance(2) {
		h.drop("Host")
		d.add(h, "Host: "+host)
	}
	if d.chance(12) {
		h.target = one(d, "*", "**", "/*", "?a", "#", "a", "./a", "%2fa", host+":443")
	}
}

func (d *draw) method(h *head) {
	h.method = one(d, "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "PROPFIND", "M-SEARCH", "CONNECT", "CONNECT", "get", "Get", "FOO", "GETX", "X_Y", "PRI", "G@T", "GE(T", "", "\x80", "A$b", strings.Repeat("A", 40))
	if h.method == "CONNECT" && d.chance(2) {
		h.target = one(d, "x:443", "www.example.org:80", "x", "secret.example", "x:443/a", "*", "user@x:1", "http://x/", "[::1]:1", ":80")
	}
	if h.method == "OPTIONS" && d.chance(2) {
		h.target = "*"
	}
}

func (d *draw) version(h *head) {
	if d.chance(2) {
		h.version = "HTTP/1.0"
		return
	}
	h.version = one(d, "HTTP/1.0", "HTTP/1.2", "HTTP/1.10", "HTTP/01.1", "HTTP/2.0", "HTTP/0.9", "HTTP/9.9", "http/1.1", "HTTP/1", "HTTP/1.", "HTTP/+1.1", "HTTP 1.1", "HTTPS/1.1", "ICY/1.1", "", "HTTP/1.1 x", "HTTP/1.1,", "HTTP/1.01", "HTTP/1.1\x0b")
	if h.version == "" && d.chance(2) {
		h.gaps[1] = ""
	}
}

// spelled is a word in some spelling.
func (d *draw) spelled(word string) string {
	return one(d, word, word, strings.ToUpper(word), strings.ToLower(word))
}

func (d *draw) connection(h *head) {
	h.drop("Connection")
	for range 1 + d.IntN(3) {
		var tokens []string
		for range one(d, 1, 1, 1, 2, 2, 3) {
			tokens = append(tokens, d.spelled(one(d, "close", "close", "close", "keep-alive", "keep-alive", "keep-alive", "upgrade", "TE", "x", "", "closed", "xclose", "not-close", "xkeep-alive", "keep-alivex", "keep_alive",
				"keep alive", "close x", "x close", "\"close\"", "close;q=1", "close=", "close\x0b", "\xe2\x84\xaaeep-alive", "\xff", "close\tkeep-alive", "Host", "X-Rule", "Content-Length", "Transfer-Encoding")))
		}
		d.add(h, d.spelled(one(d, "Connection", "Connection", "Connection", "Connection", "Connection", "Proxy-Connection", "Keep-Alive"))+":"+one(d, " ", " ", "", "\t", "  ", ", ")+
			strings.Join(tokens, one(d, ",", ", ", " , ", ",,", "\t,\t", ";", " "))+one(d, "", "", "", " ", "\t", ","))
	}
}

// bodyLength is how long the body is that a length is meant for.
const bodyLength = 42

func (d *draw) length(h *head) {
	line := d.spelled("Content-Length") + one(d, ": ", ": ", ":", ":\t", ":  ")
	if d.chance(2) {
		d.add(h, line+one(d, "42", "0", "042", "42 ", "42\t", "1", "72", "1000", "70000"))
		return
	}
	for range one(d, 1, 1, 1, 2) {
		d.add(h, line+one(d, "42", "42", "42", "42", "0", "042", "0000000000000000000000042", "42 ", "42\t", "42, 42", "42,42", "42,", ",42", "42, 0", "+42", "-42", "-0", "0x2a", "4_2", "4 2", "42;", "42.0", "4e1", "42 x", "\"42\"",
			"", "42\x0b", "\x0b42", "42\x00", "42\xa0", "\xd9\xa4\xd9\xa2", "18446744073709551658", "4294967338", "99999999999999999999", "9223372036854775808", "1"))
	}
}

func (d *draw) coding(h *head) {
	h.coded = true
	if d.chance(2) {
		d.add(h, d.spelled("Transfer-Encoding")+one(d, ": ", ":", ":\t")+d.spelled("chunked")+one(d, "", "", " ", "\t"))
		return
	}
	for range one(d, 1, 1, 1, 1, 2) {
		d.add(h, d.spelled(one(d, "Transfer-Encoding", "Transfer-Encoding", "Transfer-Encoding", "Transfer-Encoding", "Transfer_Encoding", "TransferEncoding"))+one(d, ": ", ": ", ":", ":\t")+
			d.spelled(one(d, "chunked", "chunked", "chunked", "chunked", "chunked ", "chunked\t", "chunked, chunked", "gzip, chunked", "chunked, gzip", "chunked, identity", "identity", "identity, chunked", "gzip", "chunked;a=b", "chunked,", ",chunked",
				"\"chunked\"", "'chunked'", "xchunked", "chunkedx", "chunke", "\x0bchunked", "chunked\x0b", "\x00chunked", "chunked\x00", "chunked\xa0", "chunked chunked", "chunked\tx", "", "trailers", "c\xc5\xbfhunked")))
	}
	if d.chance(6) {
		d.add(h, "Content-Length: "+one(d, "0", "5", "42"))
	}
	if d.chance(4) {
		d.add(h, "Trailer: X-Rule")
	}
}

func (d *draw) host(h *head) {
	h.drop("Host")
	for range one(d, 0, 1, 1, 1, 1, 1, 2) {
		d.add(h, d.spelled("Host")+one(d, ": ", ":", ":\t")+one(d, "x", "X", "x:80", "x.", "x..", "x:", "x:8o", "x:80:80", "x:99999", "", " ", "[::1]", "[::1]:80", "[::1", "::1", "127.0.0.1:8001", "user@x", "x/y", "x?y", "x#y", "x\\y", "x,y", "x, y", "x y", "x;y",
			"x%2ey", "x_y", "-x", "é", "\xff", "x\x00", "x\x01", "x\t", strings.Repeat("x", 200), strings.Repeat("x.", 130), "*", "(x)", "'x'", "x|y"))
	}
}

func (d *draw) upgrade(h *head) {
	d.add(h, one(d, "Upgrade: websocket", "Upgrade: websocket", "Upgrade: x", "Upgrade:", "Upgrade: TLS/1.0", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"))
	d.add(h, one(d, "Expect: 100-continue", "Expect: 100-Continue", "Expect: x", "Expect:", "Expect: 100-continue, x", "TE: trailers", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13"))
	if d.chance(2) {
		h.drop("Connection")
		d.add(h, one(d, "Connection: Upgrade", "Connection: upgrade, keep-alive", "Connection: Upgrade, HTTP2-Settings", "Connection: upgrade, close"))
	}
}

func (d *draw) rule(h *head) {
	for range one(d, 1, 1, 2, 3) {
		d.add(h, d.spelled(one(d, "X-Rule", "X-Rule", "X-Rule", "X_Rule", "X-Rul", "X-Rulex", "XX-Rule", "X--Rule", "X.Rule"))+one(d, ": ", ": ", ":", ":\t", ":  ", ": \t", d.unlikely(4, ":", " : ", " :", "\t:", "::", ";"))+
			one(d, "yes", "yes", "no", "Yes", "yes ", "yes\t", "\tyes", "yes,no", "no, yes", "", "\"yes\"", "yes\x0b", "yes\x0c", "\x0byes", "yes\x00", "yes\xa0", "yes\x7f", "y\xc3\xa9s", "yes\r", "yes\x1f"))
	}
}

func (d *draw) lineEnds(h *head) {
	if d.chance(3) {
		h.before = one(d, "\r\n", "\r\n", "\n", "\r\n\r\n", "\n\n", "\r", " ", "\t", "\x00", "\r\n ", "\r\n\n")
		return
	}
	every := d.chance(2)
	end := one(d, "\n", "\n", "\n", "\r", "\r\r\n", "\n\r", " \r\n", "\t\r\n", "\x0b\r\n", "\r\n\r", "\x00\r\n", "\n\n")
	h.ends = make([]string, len(h.lines)+2)
	for i := range h.ends {
		if every {
			h.ends[i] = end
		}
	}
	h.ends[d.IntN(len(h.ends))] = end
}

func (d *draw) blanks(h *head) {
	if d.chance(2) {
		h.gaps[d.IntN(2)] = one(d, "  ", "\t", " \t", "", "\x0b", "\x0c", "\xa0", "\r", "\x00", "\x1c", "   ")
		return
	}
	i := d.IntN(len(h.lines) + 1)
	h.lines = slices.Insert(h.lines, i, one(d, " ", "\t", " X: y", "\tX-Rule: yes", "X", "X-Rule", ":", ": y", " :y", "X y", "=", "\x00", "X : y", "X\t: y", "\x0bX: y", "X\x0b: y", "X\xa0: y"))
}

// name adds a line with an odd name before a header that matters, or in its place.
func (d *draw) name(h *head) {
	odd := one(d, "(", ")", "<", ">", "@", ",", ";", "\\", "\"", "/", "[", "]", "?", "=", "{", "}", " ", "\t", "\x7f", "\x80", "\xff", "\x01", "\x00", "!", "#", "$", "%", "&", "'", "*", "+", ".", "^", "_", "`", "|", "~", "0", "\xc5\xbf")
	name := one(d, "X", "X-Rule", "Content-Length", "Transfer-Encoding", "Connection", "Host")
	value := map[string]string{"X-Rule": "yes", "Content-Length": "42", "Transfer-Encoding": "chunked", "Connection": "close"}[name]
	d.add(h, one(d, odd+name, name+odd, name[:1]+odd+name[1:])+": "+value)
}

func (d *draw) fold(h *head) {
	line := one(d, "X: y", "X-Rule: no", "X-Rule: yes", "X-Rule:", "Content-Length: 4", "Content-Length:", "Transfer-Encoding:", "Connection:", "Connection: x", "Host:")
	d.add(h, line, one(d, " ", "\t", "  ", " \t ")+one(d, "yes", "2", "42", "chunked", "close", ", close", "", "X-Rule: yes"))
}

func (d *draw) long(h *head) {
	n := one(d, 500, 1000, 2000, 4000, 7000)
	switch d.IntN(5) {
	case 0:
		h.target = "/" + strings.Repeat(one(d, "x", "x/", "x/../", "/", "%61", "./"), n/6) + one(d, "", h.target)
	case 1:
		h.target += "?" + strings.Repeat("q=1&", n/4)
	case 2:
		d.add(h, "Cookie: "+strings.Repeat("a=b; ", n/5))
	case 3:
		d.add(h, "X-Long: "+strings.Repeat("x", n))
	case 4:
		for i := range 20 + d.IntN(60) {
			h.lines = append(h.lines, fmt.Sprintf("X-%d: y", i))
		}
	}
}

// body is what a body is of, that which is there for who ends one too early to be found out.
func (d *draw) body() string {
	return strings.Repeat("GET /inner HTTP/1.1\r\nHost: inner\r\n\r\n", 2)[:one(d, bodyLength, bodyLength, bodyLength, 1, 72)]
}

func (d *draw) chunks() string {
	var b strings.Builder
	end := "\r\n"
	if d.chance(24) {
		end = one(d, "\n", "\r", "\r\r\n", " \r\n", "\n\r\n")
	}
	for range d.IntN(3) {
		data := d.body()
		size := fmt.Sprintf(one(d, "%x", "%x", "%x", "%X", "%04x", "%08x"), len(data))
		if d.chance(16) {
			size = one(d, "0x", "+", "-", " ", "\t", "") + size + one(d, "", "", " ", "\t", "_", "h", " 1", "\x0b", "\x00", "0000000000000000")
		}
		b.WriteString(size + d.extension() + end + data)
		b.WriteString(d.unlikely(24, "\r\n", end, "\n", "", "x\r\n"))
	}
	b.WriteString(one(d, "0", "0", "0", "0", "00", "00000000") + d.extension() + end)
	for range one(d, 0, 0, 0, 0, 0, 1, 2) {
		b.WriteString(one(d, "X-Trailer: y", "X-Trailer: y", "X-Trailer: y", "X-Trailer: y", "X-Trailer: y", "X-Trailer: y", "X-Rule: yes", "Content-Length: 42", "Host: secret.example", "Connection: close", "Transfer-Encoding: chunked", "X : y", " X: y", "X", ": y", "X: a\r\n b", "X: \x00", "X: \xff") + end)
	}
	return b.String() + d.unlikely(24, "\r\n", end)
}

func (d *draw) extension() string {
	if !d.chance(5) {
		return ""
	}
	return one(d, ";a", ";a=b", ";a=\"b\"", " ;a=b", "; a=b", ";", ";;", ";a=\"\r\n\"", ";a=\"b;c\"", ";a\tb", ";\xff", ";\x00", ";a\rb", ";a\nb", " a", ",a", ";a="+strings.Repeat("x", 100))
}

// damage changes a few bytes.
func (d *draw) damage(text string) string {
	b := []byte(text)
	for range 1 + d.IntN(3) {
		if len(b) == 0 {
			break
		}
		at := d.IntN(min(len(b), one(d, 20, 100, 2000)))
		switch d.IntN(3) {
		case 0:
			b[at] ^= 1 << d.IntN(8)
		case 1:
			b = slices.Delete(b, at, at+1)
		case 2:
			b = slices.Insert(b, at, b[at:min(len(b), at+1+d.IntN(20))]...)
		}
	}
	return string(b)
}
