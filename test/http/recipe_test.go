// SPDX-License-Identifier: Apache-2.0

package http

import (
	"fmt"
	"strings"

	"narthex/test/draw"
)

// recipe makes heads of requests and answers.
type recipe struct{ draw.Recipe }

// stream builds a request's head and what follows: valid but for what the recipe says to do
// otherwise.
func (r *recipe) stream() []byte {
	var b strings.Builder
	b.WriteString(draw.Unlikely(r, 8, "", "\r\n", "\n", "\r\n\r\n", "\r\n\n", "\r", " ", "\x16\x03\x01\x02\x00", "\x00"))
	eol := draw.Unlikely(r, 20, "\r\n", "\n")
	b.WriteString(r.requestLine())
	b.WriteString(r.eol(eol))
	chunked := r.Rarely(4)
	if chunked {
		b.WriteString(r.spell("Transfer-Encoding") + ":" + draw.Pick(r, " ", "", "\t ") + r.spell("chunked") + draw.Pick(r, "", " ", "\t") + r.eol(eol))
	}
	for range draw.Pick(r, 1, 2, 3, 4, 5, 6, 8, 12) {
		b.WriteString(r.header())
		b.WriteString(r.eol(eol))
	}
	b.WriteString(r.lastEOL(eol))
	if chunked {
		r.chunks(&b)
	}
	b.WriteString(draw.Pick(r, "", "", "", "GET / HTTP/1.1\r\n\r\n", "body", "\n", "\x00"))
	return r.damage([]byte(b.String()))
}

// chunks builds a body in chunks.
func (r *recipe) chunks(b *strings.Builder) {
	for range draw.Pick(r, 1, 0, 2, 3, 5) {
		n := draw.Pick(r, 1, 2, 5, 10, 16, 100, 511, 512, 513, 700)
		format := draw.Pick(r, "%x", "%X", "%08x", "%03X")
		b.WriteString(draw.Unlikely(r, 32, fmt.Sprintf(format, n), fmt.Sprintf("%x", n+1), fmt.Sprintf("%x", n-1), fmt.Sprintf(" %x", n), fmt.Sprintf("0x%x", n),
			fmt.Sprintf("%d", n), fmt.Sprintf("%09x", n), "40000000", "40000001", "FFFFFFFF", "100000005", "-5", "+5", "", "g", "5_0"))
		r.endSize(b)
		b.WriteString(strings.Repeat(draw.Pick(r, "\r\n0\r\n\r\n", "data", "\n", "\x00\xff", "5\r\nhello\r\n"), n)[:n])
		b.WriteString(draw.Unlikely(r, 32, "\r\n", "\n", "\r", "", "\n\r", "\r\r\n", " \r\n", "0\r\n"))
	}
	b.WriteString(draw.Unlikely(r, 16, "0", "00000000", "00", "000000000", "-0", "", "0x0"))
	r.endSize(b)
	for range draw.Pick(r, 0, 0, 0, 0, 1, 2, 4) {
		b.WriteString(r.header() + r.eol("\r\n"))
	}
	b.WriteString(r.lastEOL("\r\n"))
}

// endSize goes on behind a chunk's size.
func (r *recipe) endSize(b *strings.Builder) {
	b.WriteString(draw.Unlikely(r, 8, "", ";", ";name", ";name=value", " ; name=\"value;\"", ";a=\"\r\n\"", ";\t\x7f", ";\xff", " ", "\t", " 5", ";\x00", ";\x0b", "\x0b", ";a\rb", ";a\nb",
		";"+strings.Repeat("x", 600)))
	b.WriteString(draw.Unlikely(r, 32, "\r\n", "\n", "\r", "", "\r\r\n", "\n\r\n", "\x00\r\n"))
}

// lastEOL is an empty line.
func (r *recipe) lastEOL(usual string) string {
	return draw.Unlikely(r, 16, usual, "\n", "\r\n", "\r", "", "\r\r\n", " \r\n")
}

func (r *recipe) eol(usual string) string {
	return draw.Unlikely(r, 90, usual, "\r\n", "\n", "\r", "\r\r\n", "", "\n\r", " \r\n", "\x00\n", "\x0b\n", "\r\n ")
}

func (r *recipe) requestLine() string {
	method := draw.Pick(r, "GET", "GET", "POST", "HEAD", "PUT", "CONNECT", "OPTIONS", "GE", "HEADER", "CONN", "PRI", "M-SEARCH", "GET$", "_")
	target := draw.Pick(r, "/", "/index.html", "/"+strings.Repeat("long/", 30), "*", "http://a/b?c=d", "a:1", "/%20\xc3\xa9", "H")
	version := draw.Pick(r, "HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0")
	if r.Rarely(20) {
		return draw.Unlikely(r, 16, "PRI", "pri", "PRIX", "PR", "PUT") + draw.Unlikely(r, 32, " ", "  ", "") + draw.Unlikely(r, 4, "*", "/", "**", target) + " " +
			draw.Unlikely(r, 4, "HTTP/2.0", "HTTP/2.", "HTTP/2.1", "HTTP/2", "HTTP/3.0", "HTTP/1.1", "HTTP/2.00", "http/2.0", "HTTP/20")
	}
	return draw.Unlikely(r, 32, method, "", "g", "Get", "G(T", "\x80", "GET/", strings.Repeat("A", 70)) + draw.Unlikely(r, 64, " ", "  ", "\t", "") +
		draw.Unlikely(r, 64, target, "", "/\t", "/\x7f", "/\x01", "/a b") + draw.Unlikely(r, 64, " ", "  ", "\t", "") +
		draw.Unlikely(r, 32, version, "HTTP/2.0", "HTTP/1.2", "HTTP/1.", "http/1.1", "HTTP/1.11", "HTTP/01.1", "", "HTTP/0.9", "HTTP/1.1 ", "RTSP/1.0")
}

// header returns a line without its end.
func (r *recipe) header() string {
	name, value := r.field()
	name = draw.Unlikely(r, 48, r.spell(name), name+" ", "", " "+name, name+"\t", name+"\x00", name+"\xa0", name+"x", "x"+name, name[:len(name)/2], "\x0b"+name, name+"\x7f")
	return name + draw.Unlikely(r, 64, ":", "", " :", "::", ";") + draw.Pick(r, " ", " ", "", "\t", "  ", " \t ") +
		value + draw.Pick(r, "", "", "", " ", "\t ")
}

// field returns a header that may matter.
func (r *recipe) field() (name, value string) {
	switch r.Below(13) {
	case 12:
		return "Narthex-Class", r.label()
	case 0:
		return "Connection", r.list("close", "keep-alive", "Upgrade", "TE", "HTTP2-Settings", "closed", "keep-alive-not", "x")
	case 1:
		return "Content-Length", draw.Unlikely(r, 3, "5", "0", "00012", "123456789", "1073741824", "1073741825", "99999999999999999999999",
			"", "4294967296", "18446744073709551615", "9223372036854775807", strings.Repeat("9", 200), strings.Repeat("0", 200)+"7", "1073741825 5", "5, 5", "+5", "-1", "0x5", "5 5", "5;", "5\x00", " 5 ", "1e3", "18446744073709551617")
	case 2:
		if r.Rarely(3) {
			return "Transfer-Encoding", draw.Unlikely(r, 2, r.spell("chunked"), "gzip, chunked", "identity", "", "\x0bchunked", "xchunked", "chunked, chunked",
				"chunked,", ",chunked", "chunke", "chunkedx", "chunked;a", "\"chunked\"", "chunked chunked", "chun\xe2\x84\xaaed")
		}
	case 3:
		return "Upgrade", r.list("websocket", "h2c", "h2c", "h2", "h2c-16", "h2c/1", "HTTP/2.0", "IRC/6.9", "x")
	case 4:
		return "Expect", r.list("100-continue", "100-continu", "x")
	case 5:
		return draw.Pick(r, "Content-Type", "Contents", "Cookie", "Upgrade-Insecure-Requests", "TE", "ETag", "Expires", "Transfer", "C", "U", "E", "T"), "x"
	case 6:
		return "Cookie", strings.Repeat(draw.Pick(r, "a=b; ", "\xff", ":", "\t", "0123456789"), 1+r.Below(120))
	case 7:
		return "X", draw.Unlikely(r, 4, "", "\x00", "\x01", "\x7f", "\x1f", "a\rb", "a\r\rb", "\xe2\x84\xaa", ",", ": close")
	case 8:
		return "Accept-Language-" + strings.Repeat("x", r.Below(30)), "en"
	}
	return draw.Pick(r, "Host", "Hosts", "Hos", "X-Host", "H", "Via", "Referer", "Origin"), "a"
}

// list returns some of the tokens, with what a list may have around them.
func (r *recipe) list(tokens ...string) string {
	var b strings.Builder
	for i := range draw.Pick(r, 1, 1, 1, 2, 3, 0) {
		if i > 0 {
			b.WriteString(draw.Pick(r, ", ", ",", " ,\t", ",,", " "))
		}
		b.WriteString(draw.Unlikely(r, 16, r.spell(draw.Pick(r, tokens...)), "\xe2\x84\xaaeep-alive", "\"close\"", "clo\x00se", ";", "close;x"))
	}
	return b.String()
}

// spell changes the case of letters.
func (r *recipe) spell(word string) string {
	switch r.Below(4) {
	case 0:
		return strings.ToLower(word)
	case 1:
		return strings.ToUpper(word)
	case 2:
		b := []byte(word)
		for i := range b {
			if ('A' <= b[i] && b[i] <= 'Z' || 'a' <= b[i] && b[i] <= 'z') && r.Rarely(3) {
				b[i] ^= 0x20
			}
		}
		return string(b)
	}
	return word
}

// damage changes, removes or doubles a few bytes of some heads.
func (r *recipe) damage(b []byte) []byte {
	if !r.Rarely(4) {
		return b
	}
	for range 1 + r.Below(3) {
		at := (r.Below(256)<<8 | r.Below(256)) % len(b)
		if how := r.Below(4); how == 0 {
			b[at] = draw.Pick[byte](r, '\r', '\n', ' ', '\t', ':', ',', 0, 0x80)
		} else {
			b = r.Change(b, at, how-1)
		}
		if len(b) == 0 {
			break
		}
	}
	return b
}

// label returns a value of Narthex-Class.
func (r *recipe) label() string {
	b := draw.Pick(r, "gold", "gold", "", "g", "gold silver", "silver", "g\xff")
	for range draw.Pick(r, 0, 1, 1, 2) {
		b += draw.Pick(r, "", " ", "\t ") + ";" + draw.Pick(r, "", " ", "\t") + draw.Unlikely(r, 6, "for=", "FOR=", "fo=", "fors=", "for =", "q", "") +
			draw.Pick(r, "10m", "600", "30s", "2h", "10m", "720h", "721h", "99999999999999999999s", "0", "0s", "1h30m", "m", "-1", "10 m", "10d", "2592001", "")
	}
	return b + draw.Pick(r, "", "", " ")
}
