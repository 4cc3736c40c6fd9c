// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// FuzzParse checks that whatever a file holds, it is understood or refused at a position
// within it, and that what is understood compiles to what the oracle says, or is refused.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, warnings, err := Parse("fuzz.yaml", data)
		if err != nil {
			checkPositions(t, data, err, warnings)
			return
		}
		tables, more, err := Compile(p)
		if err != nil {
			checkPositions(t, data, err, more)
			return
		}
		checkPositions(t, data, nil, append(warnings, more...))
		if err := Describe(io.Discard, p, tables); err != nil {
			t.Fatal(err)
		}
		for i := range p.Requests {
			q := newExample(&p.Requests[i]).view()
			if got, want := tables.Requests.Match(q), p.MatchRequest(q); got != want {
				t.Fatalf("%+v: tables say request rule %d, one by one it is %d", q, got, want)
			}
		}
		for service := range p.Services {
			for _, from := range []netip.Addr{bases[0], bases[5], bases[6], bases[11]} {
				if got, want := tables.Lookup(service, from, 1024), oracle(p, service, from, 1024); got != want {
					t.Fatalf("service %d, %s: tables say rule %d, the oracle %d", service, from, got, want)
				}
			}
		}
	})
}

// checkPositions fails if an error or warning is not about a place in the file; the line
// after the last one is where something is missing.
func checkPositions(t *testing.T, data []byte, err error, warnings []Warning) {
	t.Helper()
	lines := regexp.MustCompile("\r\n|[\r\n\u0085\u2028\u2029]").Split(string(data), -1)
	within := func(line, col int, msg string) {
		if line < 1 || line > len(lines) || col < 1 || col > len(lines[line-1])+1 || msg == "" {
			t.Fatalf("%d:%d: %s: not in a file of %d lines", line, col, msg, len(lines))
		}
	}
	for _, w := range warnings {
		within(w.Line, w.Col, w.Msg)
	}
	if err == nil {
		return
	}
	var errs Errors
	if !errors.As(err, &errs) || len(errs) == 0 {
		t.Fatalf("error %v of type %T, want Errors", err, err)
	}
	for _, e := range errs {
		within(e.Line, e.Col, e.Msg)
	}
}
