// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good.yaml")
	if err := os.WriteFile(good, []byte(overridable), 0o600); err != nil {
		t.Fatal(err)
	}
	p, tables, warnings, err := Read(good)
	if err != nil || len(warnings) != 0 {
		t.Fatalf("read: %v, warnings %v", err, warnings)
	}
	if p.File != good || p.Hash != tables.Hash || len(p.Hash) != 64 {
		t.Errorf("file %q, hash %q, in the tables %q", p.File, p.Hash, tables.Hash)
	}

	_, _, err = Load(filepath.Join(dir, "missing.yaml"))
	if !errors.Is(err, fs.ErrNotExist) || strings.Count(err.Error(), "missing.yaml") != 1 {
		t.Errorf("missing file: error %v, want one that names it once", err)
	}
	if _, _, err = Load(dir); err == nil || strings.Count(err.Error(), dir) != 1 {
		t.Errorf("folder: error %v, want one that names it once", err)
	}
}

// TestReadRegular does not wait for a pipe that nobody writes to.
func TestReadRegular(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		fifo:        "it is no regular file: write the policy to one, and name that",
		"/dev/zero": "it is no regular file: write the policy to one, and name that",
		dir:         unix.EISDIR.Error(),
		dir + "/no": unix.ENOENT.Error(),
	} {
		if _, err := ReadRegular(path); err == nil || err.Error() != fmt.Sprintf("read policy %q: %s", path, want) {
			t.Errorf("%s: error %v, want %s", path, err, want)
		}
	}
	good := filepath.Join(dir, "good.yaml")
	if err := os.WriteFile(good, []byte(overridable), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadRegular(good); err != nil || string(text) != overridable {
		t.Errorf("read %q, %v", text, err)
	}
}

func TestTooLarge(t *testing.T) {
	tests := map[string]struct {
		data  []byte
		wrong string
	}{
		"bytes":  {bytes.Repeat([]byte("#"), MaxFileBytes+1), "bytes.yaml:1:1: the file has 16777217 bytes; a policy has at most 16777216"},
		"values": {bytes.Repeat([]byte("a,"), maxValues), "values.yaml:1:1: the file has about"},
		"depth":  {bytes.Repeat([]byte("["), 20_000), "depth.yaml:1:1: not valid YAML: exceeded max depth"},
		"rules":  {[]byte(someRules(MaxRules + 1)), fmt.Sprintf("rules.yaml:%d:4: 131073 connections; there can be at most 131072", MaxRules+5)},
	}
	for name, test := range tests {
		_, _, err := Parse(name+".yaml", test.data)
		if err == nil || !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("%s: error %v, want one with %q", name, err, test.wrong)
		}
	}
}

// someRules writes n rules.
func someRules(n int) string {
	var b strings.Builder
	b.WriteString("version: 1\nservices:\n - {name: web, listen: \"*:80\"}\nconnections:\n")
	for i := range n {
		fmt.Fprintf(&b, " - {name: r%d, action: drop}\n", i)
	}
	return b.String()
}

func TestServiceAt(t *testing.T) {
	tables, _, err := Compile(parsed(t, `
version: 1
services:
  - {name: any, listen: ["*:80", "*:81"]}
  - {name: one, listen: ["10.0.0.1:80", "[fd00::1]:80"]}
`))
	if err != nil {
		t.Fatal(err)
	}
	local := netip.MustParsePrefix("10.0.0.0/30")
	isLocal := func(a netip.Addr) bool { return local.Contains(a) || a == netip.MustParseAddr("fd00::2") }
	for to, want := range map[string]int{
		"10.0.0.1:80": 1, "10.0.0.2:80": 0, "10.0.0.1:81": 0, "10.0.0.9:80": -1, "10.0.0.1:82": -1,
		"[fd00::1]:80": 1, "[fd00::2]:80": 0, "[fd00::3]:80": -1, "[::ffff:10.0.0.1]:80": 1, "[::ffff:10.0.0.2]:80": 0,
	} {
		got, ok := tables.ServiceAt(netip.MustParseAddrPort(to), isLocal)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%s: service %d, want %d", to, got, want)
		}
	}
}

func TestErrorsUnwrap(t *testing.T) {
	_, _, err := Parse("test.yaml", []byte("version: 2\nservices: 5\n"))
	var first *Error
	if !errors.As(err, &first) || first.Line != 1 || first.Col != 10 || first.File != "test.yaml" {
		t.Errorf("first of %v is %+v, want the one at 1:10", err, first)
	}
}

func TestRangePrefixes(t *testing.T) {
	for text, want := range map[string]string{
		"10.2.0.5-10.2.0.9":                 "[10.2.0.5/32 10.2.0.6/31 10.2.0.8/31]",
		"0.0.0.0-255.255.255.255":           "[0.0.0.0/0]",
		"255.255.255.254":                   "[255.255.255.254/32]",
		"10.0.0.0-10.0.0.255":               "[10.0.0.0/24]",
		"2001:db8::/33":                     "[2001:db8::/33]",
		"::-::1:0:0:0:0":                    "[::/64 0:0:0:1::/128]",
		"::fffe:ffff:ffff:ffff-::1:0:0:0:0": "[::fffe:ffff:ffff:ffff/128 ::ffff:0:0:0/80 0:0:0:1::/128]",
		"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff": "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127]",
	} {
		r, err := parseRange(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := fmt.Sprint(r.Prefixes()); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestWarningsAreSorted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "warned.yaml")
	const text = `
version: 1
services:
  - {name: web, listen: "*:80"}
connections:
  - {name: all, rate: 1/s}
  - {name: late, rate: 1/s}
requests:
  - {name: odd, path: //, action: drop}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, w, err := Read(file)
	if err != nil || len(w) != 2 || w[0].Line != 7 || w[1].Line != 9 {
		t.Errorf("warnings %v, error %v, want one at line 7 and one at line 9", w, err)
	}
}
