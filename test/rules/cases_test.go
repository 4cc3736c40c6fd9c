// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
	"testing"

	"narthex/internal/httphead"
	"narthex/internal/policy"
	"narthex/test/twin"
)

// guarded is what the cases try to get by.
var guarded = rulesPolicy(
	policy.Request{Path: []string{"/admin/*", "/admin"}},
	policy.Request{Path: []string{"*.php"}},
	policy.Request{Path: []string{"/shop/*/buy"}},
	policy.Request{Path: []string{"*/../*", "*//*", "*/./*", "*;*"}}, // never: paths are normalised
	policy.Request{Host: []string{"intern.example", "*.intern.example", `\[::1]`}},
	policy.Request{Method: []string{"DELETE", "PROP*"}},
	policy.Request{Cookie: []policy.Pair{{Name: "session", Values: []string{"*"}}}, Path: []string{"/cart/*"}},
	policy.Request{Cookie: []policy.Pair{{Name: "tier", Values: []string{"gold"}}}},
	policy.Request{Header: []policy.Pair{{Name: "x-plan", Values: []string{"free", "trial-*"}}}},
	policy.Request{Header: []policy.Pair{{Name: "user-agent", Values: []string{"*bot*crawl*"}}}, Host: []string{"shop.example"}},
	policy.Request{Path: []string{"*"}, Host: []string{"any.example"}},
	policy.Request{Path: []string{"/a?b", "/a#b", "/a\\b", "/\xc3\xa9", "/a b"}},
	policy.Request{Path: []string{strings.Repeat("/long", 200) + "*", "*" + strings.Repeat("tail", 250)}},
	policy.Request{SNI: []string{"*"}, JA4: []string{"t*"}},
	policy.Request{JA4: []string{"*"}},
	policy.Request{Query: []policy.Pair{{Name: "f.author", Values: []string{"*"}}, {Name: "page", Values: []string{"[2-9]*", "1[0-9]*"}}}},
	policy.Request{Query: []policy.Pair{{Name: "q q", Values: []string{"a b", "ä"}, Folded: []string{"X*"}}}},
	policy.Request{Path: []string{"/s"}, Parameters: 6},
	policy.Request{Path: []string{"/bare"}, Without: policy.Without{Header: []string{"sec-fetch-mode", "referer"}, Cookie: []string{"session"}, Query: []string{"token"}}},
)

// Rules of guarded.
const (
	admin = iota
	php
	buy
	never
	intern
	method
	cart
	gold
	plan
	bot
	anyPath
	odd
	long
	sni
	print
	author
	phrase
	parameters
	bare
	refuse = -2
)

// cases are heads and the rule that they match, noRule, or refuse.
var cases = []struct {
	name string
	head string // request line and headers, without version and line ends: see heads()
	want int
}{
	{"plain", "GET /admin/x", admin},
	{"whole", "GET /admin", admin},
	{"nothing", "GET /", noRule},
	{"case of a path counts", "GET /ADMIN/x", noRule},
	{"method in small letters", "delete /", refuse},
	{"escaped", "GET /%61dmin/x", admin},
	{"escaped throughout", "GET /%61%64%6d%69%6E%2Fx", admin},
	{"escaped twice", "GET /%2561dmin/x", noRule},
	{"dot segment", "GET /./admin/x", admin},
	{"dot segments", "GET /x/../admin/./x", refuse},
	{"dot segment within", "GET /admin/./x", admin},
	{"escaped dot segments", "GET /x/%2e%2E/admin/x", refuse},
	{"half escaped dot segments", "GET /x/.%2e/%2e/admin/x", refuse},
	{"escaped dot segment", "GET /%2e//%2E/admin/x", admin},
	{"beyond the root", "GET /../.%2e/admin/x", admin},
	{"out of it again", "GET /admin/../x", refuse},
	{"out of it again behind nothing", "GET /admin//../x", refuse},
	{"into it at the end", "GET /x/../admin", refuse},
	{"dots at the end", "GET /admin/x/..", refuse},
	{"one dot at the end", "GET /admin/.", refuse},
	{"dots before a slash at the end", "GET /admin/x/../", refuse},
	{"dot before a slash at the end", "GET /admin/x/./", admin},
	{"three dots are a name", "GET /.../admin/x", noRule},
	{"slashes", "GET ///admin//x", admin},
	{"escaped slashes", "GET /%2fadmin%2Fx", admin},
	{"escaped slash and dots", "GET /x%2f..%2fadmin/x", refuse},
	{"escaped slash and dot", "GET /%2f.%2fadmin/x", admin},
	{"backslash is a byte", "GET /a\\b", odd},
	{"backslashes for slashes", "GET \\admin\\x", refuse},
	{"parameter", "GET /admin;a=b/x", admin},
	{"escaped parameter", "GET /admin%3Ba/x", admin},
	{"parameter of dots", "GET /x/..;a/admin/x", refuse},
	{"parameter of dots at the root", "GET /..;a/admin/x", refuse},
	{"parameter of a dot", "GET /admin/.;/x", refuse},
	{"parameter of three dots", "GET /...;/admin/x", noRule},
	{"parameter alone", "GET /;a/admin/x", admin},
	{"parameter at the end", "GET /index.php;a=b", php},
	{"query", "GET /admin/x?y=/../..", admin},
	{"query without a path behind", "GET /admin?x", admin},
	{"query of nothing", "GET /?/admin/x", noRule},
	{"bad escape in a query", "GET /admin?%zz", refuse},
	{"escape of NUL in a query", "GET /admin?%00", admin},
	{"escaped question mark", "GET /a%3fb", odd},
	{"fragment", "GET /index.php#.html", refuse},
	{"fragment behind a query", "GET /index.php?a#.html", refuse},
	{"parameters of a query", "GET /x?f.author=a&page=2", author},
	{"parameters in another order", "GET /x?page=10&b&f.author=", author},
	{"parameter without a value", "GET /x?page=10&b&f.author", author},
	{"parameter of another value", "GET /x?f.author=a&page=1", noRule},
	{"parameter of another name", "GET /x?f.authors=a&page=2&F.AUTHOR=&xpage=", noRule},
	{"parameter twice, first another", "GET /x?page=1&page=2&f.author", author},
	{"parameter twice, then another", "GET /x?page=2&page=1&f.author", author},
	{"parameter with escapes", "GET /x?f%2Eauthor=%00&%70age=%32%3", refuse},
	{"parameter with whole escapes", "GET /x?f%2Eauthor=%00&%70age=%32%33", author},
	{"parameter in an absolute form", "GET http://a?f.author=a&page=2", author},
	{"parameter behind question marks", "GET /x??f.author=a&page=2&f.author=?", author},
	{"parameters behind semicolons", "GET /x?f.author=a;page=2", noRule},
	{"parameter in the path", "GET /x&f.author=a&page=2", noRule},
	{"value with an equals sign", "GET /x?q+q=Xa=b=", phrase},
	{"plus is a space", "GET /x?q+q=a+b", phrase},
	{"escaped plus is none", "GET /x?q+q=a%2Bb&q%2Bq=a+b", noRule},
	{"escaped space", "GET /x?q%20q=a%20b", phrase},
	{"value beyond ASCII", "GET /x?q%20q=\xc3\xa4", phrase},
	{"escaped value beyond ASCII", "GET /x?q%20q=%C3%a4", phrase},
	{"value in the other case", "GET /x?q%20q=x%41", phrase},
	{"value of other patterns in the other case", "GET /x?q%20q=A%20B", noRule},
	{"six parameters", "GET /s?a&b&c&d=1&e&e", parameters},
	{"six parameters and more", "GET /s?&&a&=b&c&d=1&&e&e&f", parameters},
	{"sixty-six parameters", "GET /s?" + strings.Repeat("a&", 66), parameters},
	{"many parameters", "GET /s?" + strings.Repeat("a&", 7000), parameters},
	{"five parameters", "GET /s?&&a&b&&c&d=1&e&&", noRule},
	{"no parameter", "GET /s?", noRule},
	{"nothing that must not be there", "GET /bare?x\nCookie: a=b\nReferers: x\nHost: a", bare},
	{"an empty header", "GET /bare\nReferer:", noRule},
	{"a header", "GET /bare\nsec_Fetch-Mode: navigate", noRule},
	{"a cookie", "GET /bare\nCookie: a=b; session", bare},
	{"an empty cookie", "GET /bare\nCookie: a=b;session=;c", noRule},
	{"a parameter", "GET /bare?%74oken", noRule},
	{"a parameter without a value", "GET /bare?a&token=x", noRule},
	{"one parameter alike", "GET /bare?tokens=x&Token", bare},
	{"escaped number sign", "GET /a%23b", odd},
	{"byte above 127", "GET /\xc3\xa9", refuse},
	{"byte above 127 in a parameter", "GET /admin;\x80", refuse},
	{"byte above 127 in a query", "GET /admin?\xc3\xa9", admin},
	{"escaped byte above 127", "GET /%C3%a9", odd},
	{"overlong slash is bytes", "GET /x%c0%af..%c0%afadmin/x", noRule},
	{"escaped space", "GET /a%20b", odd},
	{"space in the target", "GET /a b", refuse},
	{"escape cut off", "GET /admin/%4", refuse},
	{"percent sign alone", "GET /admin/%", refuse},
	{"no escape", "GET /admin/%u0061", refuse},
	{"escape cut off by a query", "GET /admin/%4?1", refuse},
	{"escape in a parameter that is cut", "GET /admin;%zz/x", refuse},
	{"NUL", "GET /admin%00.html", refuse},
	{"absolute form", "GET http://a.example/admin/x", admin},
	{"absolute form in capitals", "GET HTTPS://A.EXAMPLE/admin/x", admin},
	{"absolute form of another host", "GET http://intern.example/\nHost: a.example", refuse},
	{"absolute form, and a guarded Host", "GET http://a.example/\nHost: intern.example", refuse},
	{"absolute form, and no Host", "GET http://intern.example/\nHost:", refuse},
	{"absolute form of the same host", "GET http://INTERN.example.:80/\nHost: intern.example:8080", intern},
	{"absolute form of a beginning of the host", "GET http://intern/\nHost: intern.example", refuse},
	{"absolute form without a path", "GET http://intern.example", intern},
	{"absolute form without a path but a query", "GET http://any.example?x", anyPath},
	{"absolute form with dots", "GET http://a/../admin/x", admin},
	{"absolute form with a user", "GET http://u@intern.example/", refuse},
	{"absolute form with a user and a port", "GET http://u:1@intern.example:80/", refuse},
	{"absolute form without a host", "GET http:///admin/x", refuse},
	{"absolute form of another scheme", "GET ftp://a/admin/x", refuse},
	{"longer scheme", "GET httpss://a/admin/x", refuse},
	{"one slash", "GET http:/a/admin/x", refuse},
	{"path without a slash", "GET admin/x", refuse},
	{"asterisk", "OPTIONS *", noRule},
	{"asterisk matches a star", "OPTIONS *\nHost: any.example", anyPath},
	{"asterisk and more", "OPTIONS *x", refuse},
	{"CONNECT", "CONNECT intern.example:443", intern},
	{"CONNECT to another host", "CONNECT a.example:443\nHost: intern.example", refuse},
	{"CONNECT to the host", "CONNECT intern.example:443\nHost: intern.example", intern},
	{"CONNECT has no path", "CONNECT any.example:443", noRule},
	{"CONNECT to a path", "CONNECT /admin/x", admin},
	{"CONNECT to a URL", "CONNECT http://a/admin/x", refuse},
	{"CONNECT with a user", "CONNECT u@intern.example:443", refuse},
	{"CONNECT to a star", "CONNECT *", refuse},
	{"absolute form with an escape in the host", "GET http://[fe80::1%25e]/", refuse},
	{"CONNECT without a port", "CONNECT intern.example", refuse},
	{"CONNECT with an empty port", "CONNECT intern.example:", refuse},
	{"CONNECT to an address", "CONNECT [::1]:443", intern},
	{"CONNECT to an address without a port", "CONNECT [::1]", refuse},
	{"longer than CONNECT", "CONNECTS intern.example:443", refuse},
	{"host", "GET /\nHost: intern.example", intern},
	{"host in capitals", "GET /\nHOST: Intern.EXAMPLE", intern},
	{"host with a port", "GET /\nHost: intern.example:8080", intern},
	{"host with no port", "GET /\nHost: intern.example:", intern},
	{"host with a dot", "GET /\nHost: intern.example.", intern},
	{"host with a dot and a port", "GET /\nHost: intern.example.:80", intern},
	{"host with two dots", "GET /\nHost: intern.example..", noRule},
	{"host with blanks", "GET /\nHost:\t intern.example \t", intern},
	{"host without a blank", "GET /\nHost:intern.example", intern},
	{"host below", "GET /\nHost: a.intern.example", intern},
	{"host beside", "GET /\nHost: aintern.example", noRule},
	{"address", "GET /\nHost: [::1]:80", intern},
	{"address in capitals of another", "GET /\nHost: [::A]:80", noRule},
	{"address without an end", "GET /\nHost: [::1", refuse},
	{"address and more", "GET /\nHost: [::1].a", refuse},
	{"no host", "GET /\nHost:", noRule},
	{"port alone", "GET /\nHost: :80", refuse},
	{"dot alone", "GET /\nHost: .", refuse},
	{"host with a path", "GET /\nHost: intern.example/x", refuse},
	{"host with a user", "GET /\nHost: u@intern.example", refuse},
	{"hosts", "GET /\nHost: a.example, intern.example", refuse},
	{"host with an escape", "GET /\nHost: %69ntern.example", refuse},
	{"host with a byte above 127", "GET /\nHost: \xe9.example", refuse},
	{"two hosts", "GET /\nHost: a.example\nHost: intern.example", refuse},
	{"two hosts, one in capitals", "GET /\nHost: a.example\nHOST: a.example", refuse},
	{"another name like Host", "GET /\nHosts: intern.example\nHos: intern.example\nX-Host: intern.example", noRule},
	{"longest host", "GET /\nHost: " + strings.Repeat("a", 240) + ".intern.example", intern},
	{"longer host", "GET /\nHost: " + strings.Repeat("a", 241) + ".intern.example", refuse},
	{"method", "DELETE /", method},
	{"method with a star", "PROPFIND /", method},
	{"longer method", "DELETES /", noRule},
	{"long method", strings.Repeat("A", 600) + " /admin/x", admin},
	{"first rule", "DELETE /admin/x.php", admin},
	{"prefix and suffix", "GET /shop/1/buy", buy},
	{"prefix and suffix that overlap", "GET /shop/buy", noRule},
	{"prefix and suffix side by side", "GET /shop//buy", noRule},
	{"suffix", "GET /a/b.php", php},
	{"suffix alone", "GET /.php", php},
	{"suffix in capitals", "GET /a.PHP", noRule},
	{"cookie", "GET /\nCookie: tier=gold", gold},
	{"cookie among others", "GET /\nCookie: a=b; tier=gold; c=d", gold},
	{"cookie without blanks", "GET /\nCookie: a=b;tier=gold;c=d", gold},
	{"cookie with blanks", "GET /\ncookie:  a=b ;\t tier=gold \t;", gold},
	{"cookie with a blank in its name", "GET /\nCookie: tier =gold", noRule},
	{"cookie with a blank in its value", "GET /\nCookie: tier= gold", noRule},
	{"cookie in quotes", "GET /\nCookie: tier=\"gold\"", noRule},
	{"cookie of another case", "GET /\nCookie: Tier=gold; tier=Gold", noRule},
	{"cookie twice, first another", "GET /\nCookie: tier=iron; tier=gold", gold},
	{"cookie twice, then another", "GET /\nCookie: tier=gold; tier=iron", gold},
	{"two cookie headers", "GET /\nCookie: a=b\nCookie: tier=gold", gold},
	{"two cookie headers, the second empty", "GET /\nCookie: tier=gold\nCookie:", gold},
	{"pair without a name", "GET /\nCookie: =tier=gold; gold; ;;", noRule},
	{"value with an equals sign", "GET /\nCookie: x=tier=gold", noRule},
	{"longer value", "GET /\nCookie: tier=gold=", noRule},
	{"many values", "GET /x?f.author&" + strings.Repeat("page=1&", 200) + "page=2", author},
	{"empty cookie is there", "GET /cart/x\nCookie: session=", cart},
	{"name alone is no cookie", "GET /cart/x\nCookie: session", noRule},
	{"cookie of another path", "GET /x\nCookie: session=1", noRule},
	{"header like Cookie", "GET /\nCookie2: tier=gold\nCookies: tier=gold", noRule},
	{"header", "GET /\nX-Plan: free", plan},
	{"header with an underscore", "GET /\nX_Plan: free", plan},
	{"header with a hyphen and an underscore", "GET /\nX-_Plan: free", noRule},
	{"header in other cases", "GET /\nx-pLAN:free", plan},
	{"value of another case", "GET /\nX-Plan: Free", noRule},
	{"header with blanks", "GET /\nX-Plan:\t free\t ", plan},
	{"header with many blanks", "GET /\nX-Plan:" + strings.Repeat(" ", 600) + "free" + strings.Repeat("\t ", 600), plan},
	{"header twice", "GET /\nX-Plan: paid\nX-Plan: free", plan},
	{"header twice, the other way round", "GET /\nX-Plan: free\nX-Plan: paid", plan},
	{"list in a header", "GET /\nX-Plan: paid, free", noRule},
	{"prefix of a header", "GET /\nX-Plan: trial-", plan},
	{"empty header", "GET /\nX-Plan:", noRule},
	{"words", "GET /\nHost: shop.example\nUser-Agent: a bot that crawls", bot},
	{"words, Host last", "GET /\nUser-Agent: a bot that crawls\nHost: shop.example", bot},
	{"words in another order", "GET /\nHost: shop.example\nUser-Agent: crawlbot", noRule},
	{"words that overlap", "GET /\nHost: shop.example\nUser-Agent: bocrawl", noRule},
	{"words of another host", "GET /\nHost: a.example\nUser-Agent: a bot that crawls", noRule},
	{"star", "GET /x\nHost: any.example", anyPath},
	{"longest prefix", "GET " + strings.Repeat("/long", 200) + "er", long},
	{"longest suffix", "GET /x/" + strings.Repeat("tail", 250), long},
	{"longest path", "GET " + strings.Repeat("/long", 3100), long},
	{"long way to it", "GET " + strings.Repeat("/./..", 3100) + "/admin/x", admin},
	{"long way back", "GET " + strings.Repeat("/x", 7000) + "/../admin/x", refuse},
	{"many slashes", "GET " + strings.Repeat("/", 15000) + "admin/x", admin},
	{"many segments", "GET " + strings.Repeat("/a", 7600) + strings.Repeat("/.", 20) + "/.php", php},
	{"many underscores", "GET /\n" + strings.Repeat("x_", 7000) + ": y\nX_Plan: free", plan},
	{"many headers", "GET /\n" + strings.Repeat("A: b\n", 2500) + "X-Plan: free", plan},
	{"many cookies", "GET /\nCookie: " + strings.Repeat("a=b;", 3500) + "tier=gold", gold},
	{"many cookie headers", "GET /\n" + strings.Repeat("Cookie: tier=iron\n", 200) + "Cookie: tier=gold", gold},
	{"long header before", "GET /\nA: " + strings.Repeat("x", 15000) + "\nX-Plan: free", plan},
	{"long name", "GET /\n" + strings.Repeat("x", 15000) + ": y\nX-Plan: free", plan},
}

// heads returns a case's head, also with empty lines before it.
func heads(text string) [][]byte {
	line, headers, _ := strings.Cut(text, "\n")
	if headers != "" {
		headers += "\n"
	}
	text = strings.ReplaceAll(line+" HTTP/1.1\n"+headers+"\n", "\n", "\r\n")
	return [][]byte{[]byte(text), []byte("\r\n\r\n" + text)}
}

// outcome is what is found in terms of a case.
func (f found) outcome() int {
	if f.refused {
		return refuse
	}
	return f.rule
}

func newChecker(t testing.TB, p *policy.Policy) *Checker {
	t.Helper()
	c := &Checker{}
	if err := c.Use(p, 1); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCases compares what is found in each case with what is known by heart, in packets and slots,
// and what plain Go says, with the head in pieces of all sizes.
func TestCases(t *testing.T) {
	c := newChecker(t, guarded)
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			for _, head := range heads(tt.head) {
				got := c.r.match(head, false, anywhere)
				framed := frame(head, chunkSize) == len(head)
				if want := tt.want; got.complex || got.outcome() != want && (framed || want != refuse) {
					t.Errorf("%.200q: %+v, want %d", head, got, want)
				}
				for _, piece := range pieces(len(head)) {
					for _, slot := range []bool{false, true} {
						if _, err := c.Check(head, piece, slot, anywhere); err != nil {
							t.Fatalf("%.200q, in pieces of %d: %v", head, piece, err)
						}
					}
					if err := c.CheckServer(head, piece); err != nil {
						t.Fatalf("%.200q, in pieces of %d: %v", head, piece, err)
					}
				}
			}
		})
	}
}

// TestLongPaths: a packet that is put together of several may have more than a slot takes. What is behind a path
// that is longer than what is read of one is not left out in silence.
func TestLongPaths(t *testing.T) {
	c := newChecker(t, guarded)
	for _, tt := range []struct {
		path string
		want int
	}{
		{"/" + strings.Repeat("a", 16383), noRule},
		{"/" + strings.Repeat("a", 16384), refuse},
		{"/" + strings.Repeat("a", 16384) + "/../admin/x", refuse},
		{"/" + strings.Repeat("a", 16380) + "/../admin/x", refuse},
		{strings.Repeat("/../.", 8190) + "/admin/x", admin},
	} {
		name := fmt.Sprintf("%d bytes, %d", len(tt.path), tt.want)
		if got := c.r.match([]byte("GET "+tt.path+" HTTP/1.1\r\nHost: a\r\n\r\n"), false, anywhere); got.outcome() != tt.want {
			t.Errorf("%s: %+v", name, got)
		}
		if _, err := httphead.Path(tt.path); (err != nil) != (tt.want == refuse) {
			t.Errorf("%s: Path: %v", name, err)
		}
	}
}

// pieces returns the sizes in which a head is read: all, if it is short.
func pieces(length int) (sizes []int) {
	step := 1 + length/2000*50
	for n := 1; n <= chunkSize; n += step {
		sizes = append(sizes, n)
	}
	return append(sizes, chunkSize)
}

// TestBorders has each byte of the cases at the border of two pieces, as they are read in fact.
func TestBorders(t *testing.T) {
	c := newChecker(t, guarded)
	for _, tt := range cases {
		if len(tt.head) > chunkSize {
			continue
		}
		line, headers, _ := strings.Cut(tt.head, "\n")
		for n := range chunkSize {
			filler := "A: " + strings.Repeat("x", n)
			text := line + "\n" + filler
			if headers != "" {
				text += "\n" + headers
			}
			head := heads(text)[n%2]
			if _, err := c.Check(head, chunkSize, n%2 == 0, anywhere); err != nil {
				t.Fatalf("%s: %q: %v", tt.name, head, err)
			}
			if !strings.HasPrefix(line, "CONNECT") {
				before := append([]byte(strings.Repeat("\r\n", n)), head...)
				if _, err := c.Check(before, chunkSize, n%2 == 0, anywhere); err != nil {
					t.Fatalf("%s: %q: %v", tt.name, before, err)
				}
			}
		}
	}
}

// TestCasesKernel has the kernel find the rules of the cases.
func TestCasesKernel(t *testing.T) {
	k := loadKernel(t)
	k.use(t, upload(t, compiled(t, guarded)))
	for _, tt := range cases {
		for _, head := range heads(tt.head) {
			if frame(head, chunkSize) != len(head) {
				continue
			}
			for _, slot := range []bool{false, true} {
				if !slot && len(head) > twin.MostFrame {
					continue
				}
				if got := k.match(t, head, slot, anywhere); got.complex || got.outcome() != tt.want {
					t.Errorf("%s: %.200q: %+v, want %d", tt.name, head, got, tt.want)
				}
			}
		}
	}
}
