// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"narthex/internal/api"
	"narthex/internal/datapath"
)

// What was refused while nobody listened can be explained later, also by the next daemon.
func TestRefusalsAreKept(t *testing.T) {
	m := newMachine(t, "eth0")
	cfg := m.config(m.write("p.yaml", onePolicy))
	cfg.Refusals = filepath.Join(m.dir, "kept")
	r := m.start(cfg)
	eventually(t, "the daemon listens", func() bool { _, now := m.kernel.Listened(); return now })
	admitted := rejection()
	admitted.Kind = datapath.EventAdmit
	if m.kernel.Tell(admitted) {
		t.Error("the programs tell of what is admitted, and nobody is to hear it")
	}
	other := rejection()
	other.Client, other.Time = netip.MustParseAddrPort("203.0.113.9:80"), other.Time.Add(time.Hour)
	for _, e := range []datapath.Event{rejection(), other} {
		m.kernel.Tell(e)
	}
	kept := func(f api.EventFilter, from, to time.Time) (found []api.Event) {
		t.Helper()
		if err := r.client.Refusals(t.Context(), f, from, to, func(e api.Event) error { found = append(found, e); return nil }); err != nil {
			t.Fatal(err)
		}
		return found
	}
	eventually(t, "both are kept", func() bool { return len(kept(api.EventFilter{}, time.Time{}, time.Time{})) == 2 })
	if got := kept(api.EventFilter{From: "192.0.2.0/24", Rule: "a-rule-of-another-policy"}, time.Time{}, time.Time{}); len(got) != 0 {
		t.Errorf("by another rule: %+v", got)
	}
	if got := r.status().Events.Listeners; got != 0 {
		t.Errorf("%d clients listen", got)
	}
	r.end()
	r = m.start(cfg)
	defer r.end()
	got := kept(api.EventFilter{From: "192.0.2.7"}, time.Time{}, other.Time.Add(-time.Minute))
	if len(got) != 1 || got[0].Rule != "cgi" || got[0].Client != "192.0.2.7:50000" || got[0].Reason != "rule" {
		t.Errorf("after a restart: %+v", got)
	}
	if got := kept(api.EventFilter{}, other.Time, time.Time{}); len(got) != 1 || got[0].Client != "203.0.113.9:80" {
		t.Errorf("since an hour later: %+v", got)
	}
}

func TestNoRefusalsAreKept(t *testing.T) {
	m := newMachine(t, "eth0")
	r := m.start(m.config(m.write("p.yaml", onePolicy)))
	defer r.end()
	err := r.client.Refusals(t.Context(), api.EventFilter{}, time.Time{}, time.Time{}, func(api.Event) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "--refusals") {
		t.Errorf("the error is %v", err)
	}
	if times, _ := m.kernel.Listened(); times != 0 {
		t.Error("it listens")
	}
}

// The files are bounded, and have no address where none is wanted.
func TestRefusalFiles(t *testing.T) {
	l := &refusalLog{files: rotating{path: filepath.Join(t.TempDir(), "a.refusals"), most: refusalBytes}, short: true}
	if err := l.files.open(); err != nil {
		t.Fatal(err)
	}
	defer l.close()
	e := api.Event{Kind: "reject", Client: "192.0.2.7:50000", Rule: strings.Repeat("x", 1000)}
	line, _ := json.Marshal(e)
	for range 3*refusalBytes/len(line) + 1 {
		l.keep(e)
	}
	for _, path := range []string{l.files.path, l.files.path + ".1"} {
		info, err := os.Stat(path)
		if err != nil || info.Size() > refusalBytes {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	f := eventFilter{from: netip.MustParsePrefix("192.0.2.99/32")}
	n := 0
	err := l.read(time.Time{}, time.Time{}, func(e api.Event) error {
		if n++; e.Client != "192.0.2.0/24" || !f.kept(e) {
			t.Fatalf("kept: %+v", e)
		}
		return nil
	})
	if err != nil || n == 0 {
		t.Errorf("%d lines, %v", n, err)
	}
	if got := shortened("[2001:db8:1:2::3]:80"); got != "2001:db8:1::/48" {
		t.Errorf("IPv6: %s", got)
	}
}
