// SPDX-License-Identifier: Apache-2.0

package lists

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	tests := map[string]struct {
		text    string
		v4, v6  int
		entries int
		in, out []string
	}{
		"lines": {
			"# crawlers\n192.0.2.0/24\n  198.51.100.1 ; one\r\n\n198.51.100.5-198.51.100.9 # five\n203.0.113.1 - 203.0.113.2\n2001:db8::/32\n::1", 4, 2, 6,
			[]string{"192.0.2.255", "198.51.100.1", "198.51.100.9", "203.0.113.2", "2001:db8:ffff::", "::1"}, []string{"198.51.100.2", "198.51.100.10", "2001:db9::", "::2", "::"},
		},
		"nested and touching": {"10.0.0.0/8\n10.1.0.0/16\n11.0.0.0/8\n0.0.0.0\n255.255.255.255\n", 3, 0, 5, []string{"10.1.2.3", "11.255.255.255", "0.0.0.0", "255.255.255.255"}, []string{"12.0.0.0", "0.0.0.1"}},
		"a comment alone":     {"# none\n", 0, 0, 0, nil, []string{"10.0.0.1", "::"}},
		"search engines": {
			`{"creationTime": "2026-01-01T00:00:00", "prefixes": [{"ipv6Prefix": "2001:db8:10::/64"}, {"ipv4Prefix": "192.0.2.0/27"}]}`, 1, 1, 2,
			[]string{"192.0.2.31", "2001:db8:10::5"}, []string{"192.0.2.32"},
		},
		"AWS": {
			`{"syncToken": "1", "prefixes": [{"ip_prefix": "192.0.2.0/24", "region": "x", "service": "EC2"}], "ipv6_prefixes": [{"ipv6_prefix": "2001:db8::/40", "network_border_group": "y"}]}`, 1, 1, 2,
			[]string{"192.0.2.1", "2001:db8::1"}, []string{"192.0.3.0"},
		},
		"lists": {"[\"192.0.2.1\",\n \"2001:db8::1\"]", 1, 1, 2, []string{"192.0.2.1", "2001:db8::1"}, []string{"192.0.2.2"}},
		"Cloudflare": {
			`{"result": {"ipv4_cidrs": ["192.0.2.0/24", "198.51.100.0/24"], "ipv6_cidrs": ["2001:db8::/32"], "etag": "38f79d"}, "success": true, "errors": []}`, 2, 1, 3,
			[]string{"198.51.100.7"}, nil,
		},
		"Azure":    {`{"values": [{"name": "a", "properties": {"region": "", "addressPrefixes": ["192.0.2.0/24"]}}]}`, 1, 0, 1, []string{"192.0.2.7"}, nil},
		"no entry": {"[]", 0, 0, 0, nil, []string{"::"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l, err := Parse("x", []byte(tt.text), 10)
			if err != nil {
				t.Fatal(err)
			}
			if v4, v6 := l.Spans(); v4 != tt.v4 || v6 != tt.v6 || l.Entries != tt.entries {
				t.Errorf("%d and %d spans of %d entries, want %d, %d, %d", v4, v6, l.Entries, tt.v4, tt.v6, tt.entries)
			}
			for want, addrs := range map[bool][]string{true: tt.in, false: tt.out} {
				for _, a := range addrs {
					if l.Has(netip.MustParseAddr(a)) != want {
						t.Errorf("%s is in it: %v", a, !want)
					}
				}
			}
		})
	}
}

func TestParseWrong(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"empty":         {" \n", "x:1: the file is empty, as after a download that failed; a list without entries has a comment, as # none"},
		"a page":        {"<html>\n", `x:1: "<html>" is not an IP address; names are not looked up: write one as 192.0.2.1 or 2001:db8::1`},
		"host bits":     {"10.0.0.1\n10.1.1.5/24\n", `x:2: "10.1.1.5/24" has bits set beyond its length; write 10.1.1.0/24, or 10.1.1.5 for the one address`},
		"mapped":        {"::ffff:10.0.0.1", `x:1: "::ffff:10.0.0.1" is an IPv4 address in IPv6 form; write 10.0.0.1`},
		"backwards":     {"10.0.0.9-10.0.0.1", `x:1: "10.0.0.9-10.0.0.1" ends before it begins; write 10.0.0.1-10.0.0.9`},
		"too many":      {"10.0.0.1\n10.0.0.2\n10.0.0.3\n10.0.0.4", `x:4: there are more than 3 entries; give the list a "max" of as many as it can have`},
		"cut JSON":      {"{\"prefixes\": [\n{\"ipv4Prefix\": \"10.0.0.0/8\"},\n", "x:2: the file ends in the middle, as after a download that was cut off"},
		"name in JSON":  {"{\"prefixes\": [\n{\"ipv4Prefix\": \"shop\"}]}\n", `x:2: "shop" is not an IP address; names are not looked up: write one as 192.0.2.1 or 2001:db8::1`},
		"JSON of other": {`{"a": ["10.0.0.1"]}`, `x:1: no addresses: they are looked for in a list of texts, and under keys as "ipv4Prefix", "ip_prefix", "prefixes", "cidrs" or "addresses"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("x", []byte(tt.text), 3)
			if err == nil || err.Error() != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]string{"none": "none: no such file or directory", ".": ": it is no regular file"} {
		_, err := Read(filepath.Join(dir, name), 3)
		if e := new(Error); !errors.As(err, &e) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	file := filepath.Join(dir, "list")
	if err := os.WriteFile(file, []byte("10.0.0.1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Read(file, 3)
	if err != nil || l.Bytes != 9 || l.Modified.IsZero() || !l.Has(netip.MustParseAddr("10.0.0.1")) {
		t.Errorf("%+v, %v", l, err)
	}
}

// drawList draws a list of addresses that are dense somewhere, nest, touch and end where the space does.
func drawList(t *rapid.T) string {
	var b strings.Builder
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	for range rapid.IntRange(0, 6).Draw(t, "parts") {
		base := rapid.SampledFrom([]string{"10.0.0.0", "10.0.255.0", "0.0.0.0", "255.255.255.0", "128.0.0.0", "2001:db8::", "2001:db8:0:1::", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00", "2001:db8::8000:0:0:0"}).Draw(t, "base")
		a := netip.MustParseAddr(base)
		if rapid.Bool().Draw(t, "prefix") {
			p, _ := a.Prefix(rapid.IntRange(0, a.BitLen()).Draw(t, "bits"))
			fmt.Fprintln(&b, p)
			continue
		}
		free := rapid.IntRange(1, 12).Draw(t, "free bits")
		step := rapid.IntRange(0, a.BitLen()-free).Draw(t, "behind")
		for range rapid.IntRange(1, 300).Draw(t, "addresses") {
			p, err := shifted(a, random.Uint64N(1<<free), step).Prefix(a.BitLen() - rapid.SampledFrom([]int{0, 0, 0, step, min(step+1, a.BitLen())}).Draw(t, "length"))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&b, p)
		}
	}
	return b.String() + "# end"
}

// shifted adds a number to an address, at some bits from its end.
func shifted(a netip.Addr, n uint64, by int) netip.Addr {
	b := a.AsSlice()
	for i := range 64 {
		if n>>i&1 == 0 || i+by >= 8*len(b) {
			continue
		}
		at := i + by
		b[len(b)-1-at/8] |= 1 << (at % 8)
	}
	out, _ := netip.AddrFromSlice(b)
	return out
}

// TestTable compares the look-up with what each list says.
func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []*List
		var near []netip.Addr
		for range rapid.IntRange(0, 4).Draw(t, "lists") {
			text := drawList(t)
			l, err := Parse("x", []byte(text), 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, l)
			for _, line := range strings.Fields(text) {
				if p, err := netip.ParsePrefix(line); err == nil {
					a := p.Addr()
					near = append(near, a, a.Next(), a.Prev())
				}
			}
		}
		table, err := Build(all)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range append(near, netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("255.255.255.255"), netip.MustParseAddr("::"), netip.MustParseAddr("9.255.255.255")) {
			if !a.IsValid() {
				continue
			}
			var want uint64
			for i, l := range all {
				if l.Has(a) {
					want |= 1 << i
				}
			}
			if got := table.Lookup(a); got != want {
				t.Fatalf("%s is in %b, want %b", a, got, want)
			}
		}
	})
}

// Random returns so many entries of a kind.
func random(kind string, n int) []byte {
	r := rand.New(rand.NewPCG(7, 11))
	var b []byte
	for range n {
		var p netip.Prefix
		switch x := r.Uint64(); kind {
		case "v4":
			p = netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(x), byte(x >> 8), byte(x >> 16), byte(x >> 24)}), 32)
		case "v4-dense": // in a few networks of many
			p = netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(x % 5), byte(x >> 8), byte(x >> 16), byte(x >> 24)}), 32)
		case "v4-mixed":
			p, _ = netip.AddrFrom4([4]byte{byte(x), byte(x >> 8), byte(x >> 16), byte(x >> 24)}).Prefix(18 + int(x>>32%15))
		case "v6":
			p, _ = netip.AddrFrom16([16]byte{0x20, byte(x % 30), byte(x >> 8), byte(x >> 16), byte(x >> 24), byte(x >> 32), byte(x >> 40), byte(x >> 48)}).Prefix(48 + 16*int(x>>56%2))
		case "v6-hosts":
			a := [16]byte{0x20, 1, 13, 184, byte(x >> 8 & 63), byte(x >> 16), byte(x >> 24), byte(x >> 32)}
			x = r.Uint64()
			for i := range 8 {
				a[8+i] = byte(x >> (8 * i))
			}
			p = netip.PrefixFrom(netip.AddrFrom16(a), 128)
		}
		b = p.AppendTo(b)
		b = append(b, '\n')
	}
	return b
}

// BenchmarkList reads 5 million entries and makes their table.
func BenchmarkList(b *testing.B) {
	for _, kind := range []string{"v4", "v4-dense", "v4-mixed", "v6", "v6-hosts"} {
		b.Run(kind, func(b *testing.B) {
			text := random(kind, 5_000_000)
			for b.Loop() {
				l, err := Parse("x", text, 5_000_000)
				if err != nil {
					b.Fatal(err)
				}
				t, err := Build([]*List{l})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(t.Bytes())/(1<<20), "MiB")
			}
		})
	}
}

// TestWatch replaces a file, writes it anew, and takes it away.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "list")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("list", "10.0.0.1\n")
	l, err := Read(file, 9)
	if err != nil {
		t.Fatal(err)
	}
	changes := make(chan string)
	go Watch(t.Context(), []Version{{file, l.Bytes, l.Modified}}, time.Hour, func(path string) { changes <- path })
	steps := []func(){
		func() { write("list", "10.0.0.1\n10.0.0.2\n") },
		func() {
			write("list.new", "10.0.0.3\n")
			if err := os.Rename(filepath.Join(dir, "list.new"), file); err != nil {
				t.Fatal(err)
			}
		},
		func() { _ = os.Remove(file) },
		func() { write("list", "") },
	}
	time.Sleep(100 * time.Millisecond) // it watches
	for _, step := range steps {
		step()
		if got := <-changes; got != file {
			t.Fatalf("%q has changed", got)
		}
	}
}
