// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// read returns the pages in a folder by their names.
func read(t *testing.T, dir string) map[string]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "narthex*.[158]"))
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		pages[filepath.Base(name)] = string(text)
	}
	return pages
}

func TestPagesAreThoseOfTheCommands(t *testing.T) {
	fresh := t.TempDir()
	if err := generate(fresh); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(read(t, fresh), read(t, "../man")); diff != "" {
		t.Errorf("packaging/man is not as generated; run go generate ./packaging/... (-want +got):\n%s", diff)
	}
}

// An interface that the policy names may appear minutes after boot: the unit tries until
// it is there, and does not give up after five times.
func TestUnitTriesForEver(t *testing.T) {
	unit, err := os.ReadFile("../narthex.service")
	if err != nil {
		t.Fatal(err)
	}
	head, service, ok := strings.Cut(string(unit), "[Service]\n")
	if !ok || !strings.Contains(head, "\nStartLimitIntervalSec=0\n") {
		t.Error("the unit's [Unit] lacks StartLimitIntervalSec=0")
	}
	if !strings.Contains(service, "\nRestart=on-failure\n") || !strings.Contains(service, "\nRestartSec=5s\n") {
		t.Error("the unit's [Service] lacks Restart=on-failure or RestartSec=5s")
	}
}

// Options of the command are the administrator's, and no upgrade overwrites them.
func TestUnitTakesOptions(t *testing.T) {
	for name, of := range map[string]string{"narthex.service": "", "narthex@.service": "-%i"} {
		unit, err := os.ReadFile("../" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"EnvironmentFile=-/etc/default/narthex" + of + "\n", "EnvironmentFile=-/etc/sysconfig/narthex" + of + "\n", "$NARTHEX_OPTIONS"} {
			if !strings.Contains(string(unit), want) {
				t.Errorf("%s lacks %q", name, want)
			}
		}
	}
}

// What the units make read-only and Narthex has to write: its pins, and two
// settings of lo for waiting rooms there.
func TestUnitMayWriteWhatItHasTo(t *testing.T) {
	unit, err := os.ReadFile("../narthex.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"ReadWritePaths=/sys/fs/bpf", "ReadWritePaths=-/proc/sys/net/ipv4/conf/lo"} {
		if !strings.Contains(string(unit), "\n"+line+"\n") {
			t.Errorf("the unit lacks %s", line)
		}
	}
	if strings.Contains(string(unit), "\nProtectKernelTunables=yes\n") {
		t.Error("ProtectKernelTunables makes /sys/fs/bpf read-only, whatever ReadWritePaths says")
	}
}
