// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"narthex/test/draw"
	"narthex/test/twin"
)

// scanProxy feeds proxy_scan() bytes, cut as one function says, until it stops. Before each piece
// it may skip what another says.
func scanProxy(t testing.TB, a *arena, b []byte, next, skip twin.Cut) twin.Result {
	t.Helper()
	return twin.Feed(t, &proxy{a: a}, chunkSize, b, next, skip)
}

// found is what is known of a connection's first bytes.
type found struct {
	Step
	used   int // bytes, up to the end of the header
	client Client
	addr   netip.Addr
}

// checkProxy holds what is said of a connection's first bytes against all that is known of them.
// The bytes are cut into pieces of at most the given sizes, too.
func checkProxy(t testing.TB, a *arena, b []byte, sizes ...int) found {
	t.Helper()
	got := scanProxy(t, a, b, twin.Whole, twin.None)
	step, used := got.Step, got.Used
	wantStep, wantUsed := oracleProxy(b)
	if step != wantStep || step != Lost && used != wantUsed {
		t.Fatalf("proxy_scan() says %s, %d\noracle says       %s, %d\n%q", step, used, wantStep, wantUsed, b)
	}
	if step == Lost && used > 0 {
		if before, _ := oracleProxy(b[:used-1]); before != More {
			t.Fatalf("proxy_scan() says %s, %d, but that byte is not what makes it so\n%q", step, used, b)
		}
	}
	scan := func(next, skip twin.Cut) twin.Result { return scanProxy(t, a, b, next, skip) }
	twin.CheckPieces(t, b, got, scan, append(sizes, 1<<20)...)
	f := found{Step: step, used: used}
	if step == End {
		f.client, f.addr = checkProxyAddress(t, a, b[:used], b[used:])
	}
	return f
}

// checkProxyAddress compares what a whole header says, whatever is behind it.
func checkProxyAddress(t testing.TB, a *arena, b, behind []byte) (Client, netip.Addr) {
	t.Helper()
	want, wantAddr := oracleClient(b)
	both := append(bytes.Clone(b), behind...)
	both = both[:min(len(both), chunkSize)]
	for _, filling := range around {
		for _, first := range [][]byte{b[:min(len(b), chunkSize)], both} {
			got, addr, err := a.proxyAddress(first, filling)
			if err != nil || got != want || addr != wantAddr {
				t.Fatalf("proxy_address() says %s, %s, %v\noracle says          %s, %s\n%q", got, addr, err, want, wantAddr, b)
			}
		}
	}
	return want, wantAddr
}

// version2 is a header of version 2.
func version2(command, family byte, size int, block string) string {
	return signature + string([]byte{command, family, byte(size >> 8), byte(size)}) + block
}

// Blocks of version 2.
const (
	four   = "\xc0\x00\x02\x01\x0a\x00\x00\x01\x30\x39\x00\x50"
	six    = "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" + "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02" + "\x30\x39\x00\x50"
	mapped = "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xc0\x00\x02\x01" + "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02" + "\x30\x39\x00\x50"
	tlv    = "\x04\x00\x02ab"
)

// headers are such with what is known of them by heart.
var headers = []struct {
	name   string
	text   string // up to its end, or to the byte that makes it none
	step   Step
	client Client
	addr   string
}{
	{"version 1", "PROXY TCP4 192.0.2.1 10.0.0.1 12345 80\r\n", End, Given, "192.0.2.1"},
	{"version 1, IPv6", "PROXY TCP6 2001:db8::1 2001:db8::2 12345 80\r\n", End, Given, "2001:db8::1"},
	{"version 1, longest IPv6", "PROXY TCP6 ffff:f00f:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n", End, Given, "ffff:f00f:ffff:ffff:ffff:ffff:ffff:ffff"},
	{"version 1, mapped", "PROXY TCP6 ::ffff:192.0.2.1 ::1 0 0\r\n", End, Given, "192.0.2.1"},
	{"version 1, unknown", "PROXY UNKNOWN\r\n", End, Own, ""},
	{"version 1, unknown and more", "PROXY UNKNOWN ffff::1 what 65535 ever\r\n", End, Own, ""},
	{"version 1, unknown and longest", "PROXY UNKNOWN " + strings.Repeat("x", 107-16) + "\r\n", End, Own, ""},
	{"version 1, another family", "PROXY UDP4 192.0.2.1 10.0.0.1 12345 80\r\n", End, Malformed, ""},
	{"version 1, unknowns", "PROXY UNKNOWNS\r\n", End, Malformed, ""},
	{"version 1, nothing", "PROXY \r\n", End, Malformed, ""},
	{"version 1, wrong family", "PROXY TCP4 ::1 ::1 12345 80\r\n", End, Malformed, ""},
	{"version 1, wrong family of IPv4", "PROXY TCP6 192.0.2.1 10.0.0.1 12345 80\r\n", End, Malformed, ""},
	{"version 1, two families", "PROXY TCP4 192.0.2.1 ::1 12345 80\r\n", End, Malformed, ""},
	{"version 1, two spaces", "PROXY TCP4 192.0.2.1  10.0.0.1 12345 80\r\n", End, Malformed, ""},
	{"version 1, port in the address", "PROXY TCP4 192.0.2.1:1 10.0.0.1 12345 80\r\n", End, Malformed, ""},
	{"version 1, brackets", "PROXY TCP6 [::1] ::1 12345 80\r\n", End, Malformed, ""},
	{"version 1, zone", "PROXY TCP6 fe80::1%eth0 ::1 12345 80\r\n", End, Malformed, ""},
	{"version 1, port too large", "PROXY TCP4 192.0.2.1 10.0.0.1 65536 80\r\n", End, Malformed, ""},
	{"version 1, leading zero", "PROXY TCP4 192.0.2.1 10.0.0.1 12345 080\r\n", End, Malformed, ""},
	{"version 1, no port", "PROXY TCP4 192.0.2.1 10.0.0.1 12345\r\n", End, Malformed, ""},
	{"version 1, empty port", "PROXY TCP4 192.0.2.1 10.0.0.1 12345 \r\n", End, Malformed, ""},
	{"version 1, more", "PROXY TCP4 192.0.2.1 10.0.0.1 12345 80 \r\n", End, Malformed, ""},
	{"version 2", version2(0x21, 0x11, 12, four), End, Given, "192.0.2.1"},
	{"version 2, IPv6", version2(0x21, 0x21, 36, six), End, Given, "2001:db8::1"},
	{"version 2, mapped", version2(0x21, 0x21, 36, mapped), End, Given, "192.0.2.1"},
	{"version 2 and more", version2(0x21, 0x11, 17, four+tlv), End, Given, "192.0.2.1"},
	{"version 2, longest", version2(0x21, 0x11, 2048, four+strings.Repeat("x", 2036)), End, Given, "192.0.2.1"},
	{"version 2, local", version2(0x20, 0, 0, ""), End, Own, ""},
	{"version 2, local with an address", version2(0x20, 0x11, 12, four), End, Own, ""},
	{"version 2, local of any family", version2(0x20, 0xff, 1, "x"), End, Own, ""},
	{"version 2, unspecified", version2(0x21, 0, 5, tlv), End, Own, ""},
	{"version 2, UDP", version2(0x21, 0x12, 12, four), End, Own, ""},
	{"version 2, unix", version2(0x21, 0x31, 216, strings.Repeat("/", 216)), End, Own, ""},
	{"version 2, another command", version2(0x22, 0x11, 12, four), End, Malformed, ""},
	{"version 2, another family", version2(0x21, 0x41, 12, four), End, Malformed, ""},
	{"version 2, another protocol", version2(0x21, 0x13, 12, four), End, Malformed, ""},
	{"version 2, too short", version2(0x21, 0x11, 11, four[:11]), End, Malformed, ""},
	{"version 2, too short for IPv6", version2(0x21, 0x21, 35, six[:35]), End, Malformed, ""},

	{"HTTP", "G", Lost, "", ""},
	{"HTTP with P", "PO", Lost, "", ""},
	{"a request for PROXY", "PROXYI", Lost, "", ""},
	{"lower case", "p", Lost, "", ""},
	{"empty lines", "\r\n\r\nG", Lost, "", ""},
	{"TLS", "\x16", Lost, "", ""},
	{"line too long", "PROXY UNKNOWN " + strings.Repeat("x", 107-15) + "\r", Lost, "", ""},
	{"line without end", "PROXY " + strings.Repeat("x", 107-6), Lost, "", ""},
	{"bare LF", "PROXY UNKNOWN\n", Lost, "", ""},
	{"bare CR", "PROXY UNKNOWN\r ", Lost, "", ""},
	{"NUL", "PROXY UNKNOWN \x00", Lost, "", ""},
	{"version 3", signature + "\x31", Lost, "", ""},
	{"version 2, too long", version2(0x21, 0x11, 2049, ""), Lost, "", ""},
	{"version 2, much too long", version2(0x21, 0x11, 0xffff, ""), Lost, "", ""},
}

// TestHeaders checks the headers, with something behind them, and what they begin with.
func TestHeaders(t *testing.T) {
	a := testArena(t)
	for _, h := range headers {
		t.Run(h.name, func(t *testing.T) {
			for _, behind := range []string{"", "GET / HTTP/1.1\r\n\r\n", strings.Repeat("\x16\x03\x01", 200)} {
				got := checkProxy(t, a, []byte(h.text+behind), 1, 2, 5, 50)
				addr, _ := netip.ParseAddr(h.addr)
				if want := (found{h.step, len(h.text), h.client, addr}); got != want {
					t.Fatalf("%+v, not %+v", got, want)
				}
			}
			for n := range len(h.text) {
				if got := checkProxy(t, a, []byte(h.text[:n]), 3); got.Step != More {
					t.Fatalf("of %d bytes %d: %+v", len(h.text), n, got)
				}
			}
		})
	}
}

// TestRandomHeaders compares with the oracle what is nearly valid, and asks that each result
// occurs, so that it is known to reach the depths.
func TestRandomHeaders(t *testing.T) {
	const all = 20_000
	a := testArena(t)
	seen := map[string]int{}
	for choices := range draw.Recipes(rand.NewChaCha8([32]byte{1}), all, 80) {
		r := recipe{choices}
		b := r.proxy()
		if r.Rarely(8) {
			b = b[:len(b)/2]
		}
		got := checkProxy(t, a, b, draw.Pick(&r, 1, 4, 20, 200))
		seen[string(got.Step)]++
		seen[string(got.client)]++
	}
	t.Log(seen)
	for _, what := range []string{string(More), string(End), string(Lost), string(Own), string(Given), string(Malformed)} {
		if seen[what] < all/50 {
			t.Errorf("only %d of %d: %s", seen[what], all, what)
		}
	}
}

// TestAnyBytes reads as a header what is none: it need not be understood, but not be read beyond.
func TestAnyBytes(t *testing.T) {
	a := testArena(t)
	random := rand.NewChaCha8([32]byte{3})
	b := make([]byte, chunkSize)
	for i := range 20_000 {
		_, _ = random.Read(b) // cannot fail
		copy(b, []string{"PROXY TCP4 ", "PROXY TCP6 ", signature + "\x21\x11", ""}[i%4])
		if _, _, err := a.proxyAddress(b[:i%(chunkSize+1)], b[0]); err != nil {
			t.Fatal(err)
		}
	}
}
