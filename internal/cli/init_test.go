// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"narthex/internal/policy"
	"narthex/internal/starter"
)

// initIn runs init on a machine with an nginx and an sshd.
func (w *world) initIn(args ...string) result {
	w.t.Helper()
	var out, errs bytes.Buffer
	env := w.env(&out, &errs, append([]string{"init"}, args...)...)
	env.Listeners = func(netns string) ([]starter.Listener, error) {
		if netns == "none" {
			return nil, errors.New("network namespace \"none\" does not exist")
		}
		return []starter.Listener{
			{At: netip.MustParseAddrPort("0.0.0.0:22"), Program: "sshd", PID: 7},
			{At: netip.MustParseAddrPort("[::]:80"), Program: "nginx", PID: 8},
		}, nil
	}
	code := Main(w.t.Context(), env)
	clean := func(b bytes.Buffer) string { return strings.ReplaceAll(b.String(), w.dir, "DIR") }
	return result{code, clean(out), clean(errs)}
}

func TestInit(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(w.dir, "policy.yaml")
	got := w.initIn(file, "--netns", "blue")
	if got.Code != 0 || got.Err != "" || !strings.HasPrefix(got.Out, "wrote DIR/policy.yaml: 1 service in shadow mode, 1 left out\n  nginx: http on *:80, by nginx\nnext:\n  narthex check DIR/policy.yaml\n") ||
		!strings.Contains(got.Out, "narthex run --policy DIR/policy.yaml --netns blue\n") {
		t.Errorf("init: %+v", got)
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if check := w.do("check", file); check.Code != 0 || check.Err != "" {
		t.Errorf("check: %+v", check)
	}

	got = w.initIn(file)
	if want := (result{Code: 1, Err: "narthex: \"DIR/policy.yaml\" is there already: name another file, or overwrite it with --force\n"}); got != want {
		t.Errorf("init again: %+v", got)
	}
	if got = w.initIn(file, "--force"); got.Code != 0 {
		t.Errorf("init --force: %+v", got)
	}
	again, err := os.ReadFile(file)
	if err != nil || bytes.Equal(again, written) {
		t.Errorf("init --force without --netns left the file as it was, error %v", err)
	}

	got = w.initIn("-")
	if p, _, err := policy.Parse("-", []byte(got.Out)); got.Code != 0 || err != nil || len(p.Services) != 1 || !p.Services[0].Shadow {
		t.Errorf("init -: %+v, %v", got, err)
	}
}

// Without a name the file is policy.yaml in the current folder.
func TestInitHere(t *testing.T) {
	w := newWorld(t)
	t.Chdir(w.dir)
	if got := w.initIn(); got.Code != 0 {
		t.Errorf("init: %+v", got)
	}
	if _, err := os.Stat(filepath.Join(w.dir, "policy.yaml")); err != nil {
		t.Error(err)
	}
}

func TestInitJSON(t *testing.T) {
	w := newWorld(t)
	got := w.initIn("--json")
	var plan starter.Plan
	if err := json.Unmarshal([]byte(got.Out), &plan); err != nil || got.Code != 0 {
		t.Fatalf("%v: %+v", err, got)
	}
	if len(plan.Services) != 1 || plan.Services[0].Program != "nginx" || len(plan.LeftOut) != 1 || plan.LeftOut[0].Program != "sshd" {
		t.Errorf("init --json: %+v", plan)
	}
	want := "narthex: --json says what was found and writes no file: leave FILE out\n"
	if got := w.initIn("--json", filepath.Join(w.dir, "p.yaml")); got.Code != 2 || got.Err != want {
		t.Errorf("init --json FILE: %+v", got)
	}
	if got := w.initIn("--netns", "none"); got.Code != 1 || got.Err != "narthex: network namespace \"none\" does not exist\n" {
		t.Errorf("init --netns: %+v", got)
	}
}

func TestSchema(t *testing.T) {
	want, err := os.ReadFile("../../docs/policy.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if got := newWorld(t).do("schema"); got != (result{Out: string(want)}) {
		t.Errorf("schema: code %d, error %q, %d bytes", got.Code, got.Err, len(got.Out))
	}
}
