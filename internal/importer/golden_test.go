// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"narthex/internal/importer/draft"
	"narthex/internal/policy"
)

var update = flag.Bool("update", false, "write the golden files anew")

// unset is an environment without variables.
func unset(string) (string, bool) { return "", false }

// cases are the configurations in testdata, by kind.
var cases = map[Kind][]string{
	Nginx:    {"requests.conf", "order.conf", "maps.conf"},
	HAProxy:  {"priority.cfg", "rates.cfg"},
	NFTables: {"limits.nft"},
	IPTables: {"hashlimit.rules"},
}

func importFile(t *testing.T, kind Kind, path string) *Result {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := Guess(text); got != kind {
		t.Errorf("%s is taken for %q", path, got)
	}
	result, err := Import(filepath.Base(path), text, Options{Files: draft.Files{Base: filepath.Dir(path)}, Env: unset, Made: "narthex import " + filepath.Base(path)})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// TestGolden compares policies, and what they leave out, with the files beside the
// configurations.
func TestGolden(t *testing.T) {
	for kind, files := range cases {
		for _, file := range files {
			t.Run(file, func(t *testing.T) {
				path := filepath.Join("testdata", string(kind), file)
				result := importFile(t, kind, path)
				text := strings.ReplaceAll(string(result.Policy), filepath.Join("testdata", string(kind))+"/", "")
				compare(t, path+".yaml", []byte(text))
				if errs := wrong(result.Policy); errs != nil {
					t.Error(errs)
				}
			})
		}
	}
}

func compare(t *testing.T, golden string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatalf("%v; run go test ./internal/importer -update", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("made:\n%s\nwant:\n%s", got, want)
	}
}

// wrong says what is wrong in a policy that should compile and be in shadow mode.
func wrong(text []byte) error {
	p, _, err := policy.Parse("policy", text)
	if err != nil {
		return err
	}
	for _, s := range p.Services {
		if !s.Shadow {
			return fmt.Errorf("service %s is not in shadow mode", s.Name)
		}
	}
	_, _, err = policy.Compile(p)
	return err
}
