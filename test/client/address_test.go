// SPDX-License-Identifier: Apache-2.0

package client

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"narthex/test/draw"
)

// around are bytes that must not matter before and behind a text.
var around = []byte{0, '1', ':', ' ', ',', 'f', ']'}

// checkAddress compares read_address() with net/netip.
func checkAddress(t testing.TB, a *arena, s string) bool {
	t.Helper()
	want, ok := oracleAddress(s)
	for _, b := range around {
		got, is, err := a.readAddress(s, b)
		if err != nil || is != ok || got != want {
			t.Fatalf("read_address() says %s, %t, %v\nnet/netip says      %s, %t\n%q", got, is, err, want, ok, s)
		}
	}
	return ok
}

// addresses are texts, and what they are; "": no address.
var addresses = []struct{ text, want string }{
	{"192.0.2.1", "192.0.2.1"},
	{"0.0.0.0", "0.0.0.0"},
	{"255.255.255.255", "255.255.255.255"},
	{" \t192.0.2.1 \t", "192.0.2.1"},
	{"192.0.2.1:80", "192.0.2.1"},
	{"192.0.2.1:00080 ", "192.0.2.1"},
	{"::", "::"},
	{"::1", "::1"},
	{"1::", "1::"},
	{"2001:db8::1", "2001:db8::1"},
	{"2001:DB8::aBcD", "2001:db8::abcd"},
	{"1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8"},
	{"1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:0"},
	{"::2:3:4:5:6:7:8", "0:2:3:4:5:6:7:8"},
	{"1:2:3::6:7:8", "1:2:3::6:7:8"},
	{"1:2:3:4::8", "1:2:3:4::8"},
	{"1:2:3:4:5::8", "1:2:3:4:5::8"},
	{"::192.0.2.1", "::c000:201"},
	{"1:2:3:4:5:6:192.0.2.1", "1:2:3:4:5:6:c000:201"},
	{"64:ff9b::192.0.2.1", "64:ff9b::c000:201"},
	{"::ffff:192.0.2.1", "192.0.2.1"},
	{"::ffff:c000:201", "192.0.2.1"},
	{"0:0:0:0:0:ffff:192.0.2.1", "192.0.2.1"},
	{"[2001:db8::1]", "2001:db8::1"},
	{"[2001:db8::1]:443", "2001:db8::1"},
	{"[::]:0", "::"},
	{"[::ffff:192.0.2.1]:443", "192.0.2.1"},
	{"::1:80", "::1:80"},

	{"", ""}, {" ", ""}, {"1", ""}, {":", ""}, {"::1]", ""}, {"[::1", ""}, {"[", ""}, {"[]", ""}, {"[]:80", ""},
	{"192.0.2", ""}, {"192.0.2.", ""}, {".192.0.2.1", ""}, {"192.0.2.1.", ""}, {"192.0.2.1.5", ""}, {"192.0.02.1", ""},
	{"192.0.2.256", ""}, {"192.0..1", ""}, {"192.0.2.a", ""}, {"00.0.2.1", ""}, {"192.0.2.1:", ""}, {"192.0.2.1:65536", ""},
	{"192.0.2.1:+1", ""}, {"192.0.2.1:1:2", ""}, {"192.0.2.1 :80", ""}, {"192.0.2.1 1", ""}, {"[192.0.2.1]", ""}, {"[192.0.2.1]:80", ""},
	{"1:2:3:4:5:6:7", ""}, {"1:2:3:4:5:6:7:8:9", ""}, {"1:2:3:4:5:6:7:8::", ""}, {"::1:2:3:4:5:6:7:8", ""}, {"1::2::3", ""},
	{":::", ""}, {"1:", ""}, {":1", ""}, {"12345::", ""}, {"g::", ""}, {"1:2:3:4:5:6:7:192.0.2.1", ""}, {"1:2:3:4:5:192.0.2.1", ""},
	{"::1:2:3:4:5:6:192.0.2.1", ""}, {"1:2:3:4:5:6:192.0.2.1:80", ""}, {"::192.0.2", ""}, {"::192.0.2.1.", ""},
	{"fe80::1%eth0", ""}, {"[fe80::1%eth0]:80", ""}, {"192.0.2.1%eth0", ""}, {"[::1]80", ""}, {"[::1]:", ""}, {"[::1] :80", ""},
	{"[ ::1]", ""}, {"[::1 ]", ""}, {"[[::1]]", ""}, {"192.0.2.1\n", ""}, {"192.0.2.1,", ""}, {"\x00", ""}, {"unknown", ""}, {"_hidden", ""},
	{strings.Repeat(" ", mostOfAddress-9) + "192.0.2.1", "192.0.2.1"},
	{strings.Repeat(" ", mostOfAddress-8) + "192.0.2.1", ""},
}

func TestAddresses(t *testing.T) {
	a := testArena(t)
	for _, c := range addresses {
		got, ok, err := a.readAddress(c.text, 'x')
		if err != nil || ok != (c.want != "") || ok && got.String() != c.want {
			t.Errorf("%q is %s, %t, %v; not %q", c.text, got, ok, err, c.want)
		}
		for n := range c.text {
			checkAddress(t, a, c.text[:n])
			checkAddress(t, a, c.text[n:])
			checkAddress(t, a, c.text[:n]+c.text[n+1:])
		}
	}
}

// TestRandomAddresses compares read_address() with net/netip on what is nearly an address, and on
// anything of the bytes that are in one.
func TestRandomAddresses(t *testing.T) {
	const all = 50_000
	a := testArena(t)
	valid := 0
	for choices := range draw.Recipes(rand.NewChaCha8([32]byte{1}), all, 80) {
		r := recipe{choices}
		if checkAddress(t, a, r.address()) {
			valid++
		}
		for i, b := range choices[:20] {
			choices[i] = "0123456789abcdefF:::...[] %"[int(b)%27]
		}
		checkAddress(t, a, string(choices[:1+int(choices[21])%20]))
	}
	if valid < all/8 {
		t.Errorf("%d of %d are addresses", valid, all)
	}
}

// checkElements compares forwarded_last() with the elements of a list.
func checkElements(t testing.TB, a *arena, s string) []string {
	t.Helper()
	want := oracleElements(s)
	for _, b := range around {
		if got, err := a.elements(s, b); err != nil || !slices.Equal(got, want) {
			t.Fatalf("forwarded_last() finds %q (%v)\nthere are              %q\n%q", got, err, want, s)
		}
	}
	return want
}

func TestForwarded(t *testing.T) {
	a := testArena(t)
	for text, want := range map[string][]string{
		"":                               nil,
		",":                              nil,
		" , \t,,":                        nil,
		"192.0.2.1":                      {"192.0.2.1"},
		"192.0.2.1, 198.51.100.7":        {"198.51.100.7", "192.0.2.1"},
		" a b ,\tc\t, ,d,,":              {"d", "c", "a b"},
		strings.Repeat("x", mostText):    {strings.Repeat("x", mostText)},
		strings.Repeat(",", mostText):    nil,
		"a" + strings.Repeat(" ,", 8000): {"a"},
		strings.Repeat(" ", 8000) + "a":  {"a"},
		strings.Repeat("a,", 8000):       slices.Repeat([]string{"a"}, 8000),
	} {
		if got := checkElements(t, a, text); !slices.Equal(got, want) {
			t.Errorf("%q, not %q", got, want)
		}
	}
	for choices := range draw.Recipes(rand.NewChaCha8([32]byte{2}), 20_000, 60) {
		r := recipe{choices}
		checkElements(t, a, r.forwarded())
	}
}
