// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"narthex/internal/policy"
)

// dice makes decisions of bytes, so that a fuzzer that changes bytes changes one decision. When they
// are used up, every decision falls on its first, plain, option.
type dice struct {
	bytes []byte
}

// below returns a number below n, at most 256.
func (d *dice) below(n int) int {
	if len(d.bytes) == 0 {
		return 0
	}
	b := d.bytes[0]
	d.bytes = d.bytes[1:]
	return int(b) * n >> 8
}

// rarely is true once in n times.
func (d *dice) rarely(n int) bool { return d.below(n) == n-1 }

// pick returns one of the options.
func pick[T any](d *dice, options ...T) T { return options[d.below(len(options))] }

// text returns some of the letters.
func (d *dice) text(letters string, most int) string {
	b := make([]byte, d.below(most+1))
	for i := range b {
		b[i] = letters[d.below(len(letters))]
	}
	return string(b)
}

// Names that rules ask for.
var (
	headerNames = []string{"x", "y", "x-", "user-agent", "x-forwarded-for", "accept"}
	cookieNames = []string{"a", "b", "session"}
	queryNames  = []string{"a", "b", "f.author", "q q"}
)

// Letters of values: few, so that patterns match, overlap and share words.
const (
	pathLetters = "ab/"
	hostLetters = "ab.-"
)

// glob draws a pattern.
func (d *dice) glob(letters string) string {
	switch d.below(16) {
	case 14:
		return pick(d, "*", "**", "*"+letters[:1]+"*", "*"+letters[1:]+"*"+letters[:1]+"*", letters[:2]+"*"+letters[:2])
	case 15:
		return strings.Repeat(letters, pick(d, 30, 170, 340))[:pick(d, 80, 400, 1000)%(30*len(letters))] + pick(d, "*", "", "*"+letters)
	}
	var parts []string
	for range pick(d, 1, 1, 2, 2, 2, 3, 4) {
		parts = append(parts, d.text(letters, 6))
	}
	glob := strings.Join(parts, "*")
	if d.rarely(6) {
		glob = strings.Replace(glob, letters[:1], pick(d, "[ab]", "[a-c/]", "[.A-Z]", `\[`), 2)
	}
	return glob
}

func (d *dice) globs(letters, begin string) (out []string) {
	for range pick(d, 1, 1, 2, 3) {
		g := d.glob(letters)
		if begin != "" && !strings.HasPrefix(g, "*") && !strings.HasPrefix(g, begin) {
			g = begin + g
		}
		if g != "" {
			out = append(out, g)
		}
	}
	return out
}

// requests draws a policy of request rules.
func (d *dice) requests() *policy.Policy {
	p := &policy.Policy{File: "drawn.yaml", Classes: []policy.Class{{Name: "all", Priority: 1}}, Services: services}
	rare := 1 + d.below(6)
	for i := range 1 + d.below(12) {
		r := policy.Request{Name: fmt.Sprint("r", i), Pos: policy.Pos{Line: i + 1}, Per: policy.PerRule}
		asks := func(more int) bool { return d.below(rare+more) == 0 }
		if asks(0) {
			r.Path = d.globs(pathLetters, "/")
		}
		if asks(1) {
			r.Host = d.globs(hostLetters, "")
		}
		if asks(2) {
			r.Method = pick(d, []string{"GET"}, []string{"POST", "PUT"}, []string{"*T"}, []string{"C*"}, []string{"*"}, []string{"G*T", "HEAD"})
		}
		if asks(6) {
			r.SNI = d.globs(hostLetters, "")
		}
		if asks(9) {
			r.JA4 = pick(d, []string{"*"}, []string{"t13d*", "t12*_*"})
		}
		r.Header, r.Cookie, r.Query = d.pairs(headerNames, rare), d.pairs(cookieNames, rare), d.pairs(queryNames, rare)
		if asks(4) {
			r.Parameters = pick(d, 1, 2, 3, 5, 9, policy.MaxPieces)
		}
		if asks(3) {
			r.Without = policy.Without{Header: d.some(headerNames), Cookie: d.some(cookieNames), Query: d.some(queryNames)}
		}
		if asks(3) {
			r.From = d.ranges()
		}
		if asks(4) {
			r.To, r.ToAddrs = d.destinations()
		}
		if asks(1) {
			r.Per = d.per()
		}
		p.Requests = append(p.Requests, r)
	}
	return p
}

// services listen on addresses of their own, and one on all that others leave.
var services = []policy.Service{
	{Name: "web", Listen: []policy.Listen{{Port: 80}}},
	{Name: "one", Listen: []policy.Listen{{Addr: netip.MustParseAddr("10.0.0.1"), Port: 80}, {Addr: netip.MustParseAddr("fd00::1"), Port: 80}}},
	{Name: "other", Listen: []policy.Listen{{Port: 8080}}},
}

// Addresses that nest and touch.
var addresses = [2][]netip.Addr{
	{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.1.0"), netip.MustParseAddr("10.128.0.0"), netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("255.255.255.255")},
	{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2"), netip.MustParseAddr("fd00:0:0:1::"), netip.MustParseAddr("fd00::1:0:0:0"), netip.MustParseAddr("::"), netip.MustParseAddr("2001:db8::")},
}

func (d *dice) addr(family int) netip.Addr { return pick(d, addresses[family]...) }

// span draws addresses: one, a prefix, or from one to another.
func (d *dice) span() policy.Range {
	family := d.below(2)
	a := d.addr(family)
	if b := d.addr(family); d.rarely(4) && a.Less(b) {
		return policy.Range{First: a, Last: b}
	}
	return policy.PrefixRange(netip.PrefixFrom(a, a.BitLen()-d.below(pick(d, 1, 4, 17, 33))))
}

func (d *dice) ranges() (out []policy.Range) {
	for range pick(d, 1, 1, 2, 4) {
		out = append(out, d.span())
	}
	return out
}

func (d *dice) destinations() (services []int, out []policy.Destination) {
	for i := range 3 {
		if d.rarely(3) {
			services = append(services, i)
		}
	}
	for range d.below(3) {
		to := policy.Destination{Addrs: d.span(), Ports: pick(d, policy.PortRange{}, policy.PortRange{First: 80, Last: 80}, policy.PortRange{First: 80, Last: 9000})}
		if d.rarely(4) && to.Ports.First > 0 {
			to.Addrs = policy.Range{}
		}
		out = append(out, to)
	}
	return services, out
}

// ends draws between whom a request is.
func (d *dice) ends() ends {
	family := d.below(2)
	to := d.addr(family)
	if d.rarely(4) {
		to = to.Next() // of the last there is none
	}
	if !to.IsValid() {
		to = d.addr(family)
	}
	return ends{d.addr(family), netip.AddrPortFrom(to, pick[uint16](d, 80, 8080, 81))}
}

// per draws what of a request has a bucket for each of its values.
func (d *dice) per() policy.Per {
	kind := pick(d, "header", "cookie", "query", "host")
	names := map[string][]string{"header": headerNames, "cookie": cookieNames, "query": queryNames, "host": {""}}[kind]
	return policy.PerValue(policy.PerKey{Kind: kind, Name: pick(d, names...)})
}

func (d *dice) pairs(names []string, rare int) (out []policy.Pair) {
	for _, name := range names {
		if d.below(rare+3) != 0 {
			continue
		}
		pair := policy.Pair{Name: name, Values: d.globs(pathLetters, "")}
		switch d.below(4) {
		case 2:
			pair.Values, pair.Folded = nil, pair.Values
		case 3:
			pair.Folded = d.globs(pathLetters+"A", "")
		}
		if len(pair.Values)+len(pair.Folded) > 0 {
			out = append(out, pair)
		}
	}
	return out
}

// some returns a few of the names.
func (d *dice) some(names []string) (out []string) {
	for _, name := range names {
		if d.rarely(4) {
			out = append(out, name)
		}
	}
	return out
}

// patterns are those of a policy by what they are of.
type patterns struct{ path, host, value []string }

func patternsOf(p *policy.Policy) *patterns {
	var out patterns
	for _, r := range p.Requests {
		out.path, out.host = append(out.path, r.Path...), append(out.host, r.Host...)
		for _, pair := range slices.Concat(r.Header, r.Cookie, r.Query) {
			out.value = append(append(out.value, pair.Values...), pair.Folded...)
		}
	}
	return &out
}

// like draws a text that one of the patterns matches, or nearly.
func (d *dice) like(patterns []string, letters string) string {
	if len(patterns) == 0 || d.rarely(4) {
		return d.text(letters, 9)
	}
	var b strings.Builder
	glob := patterns[d.below(len(patterns))]
	for _, class := range []string{"[ab]", "[a-c/]", "[.A-Z]"} {
		glob = strings.ReplaceAll(glob, class, pick(d, "a", "b", "/", "A", "."))
	}
	glob = strings.ReplaceAll(glob, `\[`, "[")
	for i, part := range strings.Split(glob, "*") {
		if i > 0 {
			b.WriteString(d.text(letters, 3))
			if d.rarely(64) {
				b.WriteString(strings.Repeat(letters, pick(d, 10, 50, 150, 300, 1200)))
			}
		}
		b.WriteString(part)
	}
	if d.rarely(16) {
		b.WriteString(d.text(letters, 2))
	}
	return b.String()
}

// head draws what a client may send to a server with those rules: mostly a head.
func (d *dice) head(p *patterns) []byte {
	var b strings.Builder
	for range pick(d, 0, 0, 0, 0, 0, 0, 1, 2) {
		b.WriteString(pick(d, "\r\n", "\r\n\r\n", "\r\n"))
	}
	const eol = "\r\n"
	method := d.method()
	target := d.target(method, p)
	b.WriteString(method + " " + target + " " + pick(d, "HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0") + eol)
	host := d.below(4)
	named := d.hostText(p)
	if at := strings.Index(target, "://"); at > 0 && !d.rarely(4) { // both say the same
		named = target[at+3:][:strings.IndexAny(target[at+3:]+"/", "/?#")]
	}
	for i := range d.below(7) {
		if i == host {
			b.WriteString(d.spell("Host") + ":" + d.blank() + named + d.blank() + eol)
		} else {
			b.WriteString(d.header(p) + eol)
		}
	}
	b.WriteString(eol)
	return d.damage([]byte(b.String()))
}

func (d *dice) method() string {
	return pick(d, "GET", "GET", "GET", "POST", "HEAD", "PUT", "OPTIONS", "CONNECT", "C", "GE", "G_T", "DELETE", "CONNECTX")
}

// target draws a request's target.
func (d *dice) target(method string, p *patterns) string {
	if method == "CONNECT" && !d.rarely(4) {
		return d.hostText(p) + pick(d, ":443", ":443", ":1", "", ":", ":x", "/")
	}
	path := d.path(p) + pick(d, "", "?", "?/../%zz", "?\xff", "?#", pick(d, "#", "#?"), d.query(p), d.query(p), d.query(p), d.query(p))
	switch d.below(16) {
	case 12, 13:
		if d.rarely(3) {
			path = pick(d, "", "?x", "#", "x", ";a/b", ":", "*")
		}
		return d.spell(pick(d, "http", "http", "https", "ftp", "httpss", "")) + pick(d, "://", "://", "://", "://", ":/", ":", "//", ":///") + d.hostText(p) + path
	case 14:
		return pick(d, "*", "*", "**", "*/", "x", "?", ":", "//", "/%", "http:", "\x7f", "\xff")
	}
	return path
}

// query draws a query.
func (d *dice) query(p *patterns) string {
	var b strings.Builder
	for i := range d.below(pick(d, 4, 8, 12)) {
		if i > 0 {
			b.WriteString(pick(d, "&", "&", "&", "&&", ";", "&="))
		}
		name := pick(d, queryNames...)
		if d.rarely(8) {
			name = pick(d, "", "A", "aa", "f_author", strings.Repeat("n", 40), "\xc3\xa9", "?")
		}
		b.WriteString(d.escaped(name) + pick(d, "=", "=", "=", "=", "==", "") + d.escaped(d.like(p.value, pathLetters)))
	}
	return "?" + b.String() + pick(d, "", "", "", "", "&", "&&", "#", "?")
}

// escaped puts escapes into a text of a query, most of them good ones.
func (d *dice) escaped(text string) string {
	often := pick(d, 8, 16, 4)
	var b strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case c == ' ':
			b.WriteString(pick(d, "+", "%20"))
		case c == '%' || c == '&' || c == '#' || d.rarely(often):
			b.WriteString(pick(d, fmt.Sprintf("%%%02x", c), fmt.Sprintf("%%%02X", c)))
		default:
			b.WriteByte(c)
		}
	}
	return b.String() + pick(d, "", "", "", "", "", "", "", pick(d, "", "+", "%00", "%ff", "%2", "%zz", "%", "%26", "%3D"))
}

// path draws a path, in disguise.
func (d *dice) path(p *patterns) string {
	plain := d.like(p.path, pathLetters)
	if !strings.HasPrefix(plain, "/") {
		plain = "/" + plain
	}
	if d.below(2) == 0 {
		return plain
	}
	var b strings.Builder
	often := pick(d, 16, 8, 4, 32)
	for i := range len(plain) {
		c := plain[i]
		if !d.rarely(often) {
			b.WriteByte(c)
			continue
		}
		switch c {
		case '/':
			b.WriteString(pick(d, "//", "/./", "/%2e/", "%2F", "%2f", ";/", ";a=b/", "%3b/", "//./", "/...", "/.a/", "/..a", "/;/", pick(d, "/../", "/x/../", "/.%2e/", "/.;/", "/..;/", "/.", "/..")))
		default:
			b.WriteString(pick(d, fmt.Sprintf("%%%02x", c), fmt.Sprintf("%%%02X", c), fmt.Sprintf("%%25%02x", c), "%", "%4", "%00", "%zz", "%2", ".", "..", ";", "%ff", pick(d, "\xff", "a"), "\\", "%5c", "%23", "%3F", ":", "@"))
		}
	}
	return b.String()
}

// hostText draws a host as a client writes it.
func (d *dice) hostText(p *patterns) string {
	host := d.like(p.host, hostLetters)
	if len(host) > 300 && !d.rarely(8) {
		host = host[:200]
	}
	if d.rarely(8) {
		host = pick(d, "[::1]", "[::a]", "[::1", "::1", "[]", "[fe80::1%25e]", "[::1]x", "[g]", "]", "[", "[::1].", "", "..", ".", ":", "é", "a,b", "a b", "a/b", "u@a", "%61", "_", "127.0.0.1")
	}
	if d.rarely(4) {
		host = d.spell(host)
	}
	return host + pick(d, "", "", "", "", ":80", ":", ".", ".:8080", "..", ":80:80", ":8a", ".:")
}

// header draws a header's line.
func (d *dice) header(p *patterns) string {
	switch d.below(8) {
	case 0, 1:
		return d.spell("Cookie") + ":" + d.blank() + d.cookies(p) + d.blank()
	case 2:
		return pick(d, browserHeaders...)
	case 3:
		return pick(d, "Hos: a", "Hosts: a", "Cookie2: a=a", "Cooki: a=a", "X-Forwarded-Fo: a", "C:", "H:", "Xx: a", "Host: a", "Transfer-Encoding: chunked", "Content-Length: 3",
			"Connection: close", strings.Repeat("x", 16+d.below(100))+": a", "X: "+strings.Repeat("abc", pick(d, 20, 100, 200, 400, 1500)), "X:"+strings.Repeat(" ", 60+d.below(100))+"a"+strings.Repeat("\t", d.below(200)))
	}
	return d.name() + ":" + d.blank() + d.like(p.value, pathLetters) + d.blank()
}

// name draws the name of a header that rules may ask for.
func (d *dice) name() string {
	name := d.spell(pick(d, headerNames...))
	if d.rarely(4) {
		name = strings.ReplaceAll(name, "-", "_")
	}
	return name
}

func (d *dice) blank() string { return pick(d, " ", " ", "", "\t", "  ", " \t ") }

// cookies draws the value of a Cookie header.
func (d *dice) cookies(p *patterns) string {
	var b strings.Builder
	for i := range d.below(6) {
		if i > 0 {
			b.WriteString(pick(d, "; ", "; ", "; ", ";", ";;", " ; ", ";\t", ", "))
		}
		name := pick(d, cookieNames...)
		if d.rarely(8) {
			name = pick(d, "", "A", "aa", "sessio", " a", "a ", "\xff", strings.Repeat("n", 40))
		}
		b.WriteString(name + pick(d, "=", "=", "=", "=", "=", "==", "", "= ", " =") + d.like(p.value, pathLetters) + pick(d, "", "", "", "", "\"", "=", " "))
	}
	return b.String()
}

// spell changes the case of letters.
func (d *dice) spell(word string) string {
	switch d.below(4) {
	case 0:
		return strings.ToLower(word)
	case 1:
		return strings.ToUpper(word)
	}
	return word
}

// damage changes, removes or doubles a few bytes of some heads.
func (d *dice) damage(b []byte) []byte {
	if !d.rarely(4) {
		return b
	}
	for range 1 + d.below(3) {
		if len(b) == 0 {
			break
		}
		at := (d.below(256)<<8 | d.below(256)) % len(b)
		switch d.below(4) {
		case 0:
			b[at] = pick[byte](d, '\r', '\n', ' ', '\t', ':', ';', '=', '/', '%', '.', '?', '#', '*', 0, 0x80)
		case 1:
			b[at] ^= 1 << d.below(8)
		case 2:
			b = slices.Delete(b, at, at+1)
		case 3:
			end := min(len(b), at+1+d.below(40))
			b = slices.Insert(b, at, slices.Clone(b[at:end])...)
		}
	}
	return b
}

// browserHeaders are what browsers send beside.
var browserHeaders = []string{
	"User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
	"User-Agent: Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36",
	"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
	"Accept-Language: en-GB,en;q=0.7,de;q=0.3",
	"Accept-Encoding: gzip, deflate, br, zstd",
	"Referer: https://www.example.org/shop/?a=b",
	"Connection: keep-alive",
	"Cookie: session=0123456789abcdef0123456789abcdef; theme=dark; a=ab; consent=1",
	"Upgrade-Insecure-Requests: 1",
	"Sec-Fetch-Dest: document",
	"Sec-Fetch-Mode: navigate",
	"sec-ch-ua: \"Chromium\";v=\"126\", \"Not;A=Brand\";v=\"8\"",
	"Priority: u=0, i",
	"Cache-Control: max-age=0",
	"If-None-Match: W/\"abc-123\"",
}
