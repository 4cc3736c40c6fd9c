// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestGolden compares what is said about each policy in testdata with the file beside it:
// its errors, or its warnings, its meaning and the outcome for every address and port.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d policies in testdata, error %v; there are at least 40", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			got := saidAbout(t, file)
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatalf("%v; run go test ./internal/policy -update", err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("said:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

func saidAbout(t *testing.T, file string) []byte {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	p, warnings, err := Parse(filepath.Base(file), data)
	var tables *Tables
	if err == nil {
		var more []Warning
		tables, more, err = Compile(p)
		warnings = MergeWarnings(warnings, more)
	}
	for _, w := range warnings {
		fmt.Fprintln(&b, "warning:", w)
	}
	if err != nil {
		fmt.Fprintf(&b, "error: %s\n", strings.ReplaceAll(err.Error(), "\n", "\nerror: "))
		return b.Bytes()
	}
	if err := Describe(&b, p, tables); err != nil {
		t.Fatal(err)
	}
	writeOutcomes(&b, p, tables)
	meaning, err := json.MarshalIndent(p.Meaning(tables), "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "\n%s\n", meaning)
	return b.Bytes()
}

// writeOutcomes writes which rule the tables lead to, for every address and port.
func writeOutcomes(b *bytes.Buffer, p *Policy, t *Tables) {
	for s := range p.Services {
		fmt.Fprintf(b, "\noutcomes at %s\n", p.Services[s].Name)
		for _, first := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
			starts := []netip.Addr{first}
			for _, r := range p.Connections {
				for _, f := range r.From {
					for _, a := range []netip.Addr{f.First, f.Last.Next()} {
						if a.IsValid() && a.Is4() == first.Is4() {
							starts = append(starts, a)
						}
					}
				}
			}
			slices.SortFunc(starts, netip.Addr.Compare)
			last, before := first, ""
			for _, a := range slices.Compact(starts) {
				now := portOutcomes(p, t, s, a)
				if a != first && now != before {
					fmt.Fprintf(b, "  %s: %s\n", Range{last, a.Prev()}, before)
					last = a
				}
				before = now
			}
			end := PrefixRange(netip.PrefixFrom(first, 0)).Last
			fmt.Fprintf(b, "  %s: %s\n", Range{last, end}, before)
		}
	}
}

// portOutcomes returns the rules that an address leads to, by port if that matters.
func portOutcomes(p *Policy, t *Tables, service int, from netip.Addr) string {
	rule := func(port uint16) string {
		if i := t.Lookup(service, from, port); i >= 0 {
			return t.Rules[i].Name
		}
		return "-"
	}
	out, last := "", uint16(0)
	for _, port := range portEdges(p) {
		if port > 0 && rule(port) != rule(port-1) {
			out += fmt.Sprintf("%s (%s), ", rule(last), PortRange{last, port - 1})
			last = port
		}
	}
	if out == "" {
		return rule(0)
	}
	return out + fmt.Sprintf("%s (%s)", rule(last), PortRange{last, 65535})
}
