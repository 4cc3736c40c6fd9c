// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOutlives(t *testing.T) {
	same, other, empty := t.TempDir(), t.TempDir(), t.TempDir()
	pins := filepath.Join(t.TempDir(), "pins")
	if err := os.Mkdir(pins, 0o700); err != nil {
		t.Fatal(err)
	}
	inside := func(root string) string { return filepath.Join(root, pins) }
	for _, root := range []string{same, other} {
		if err := os.MkdirAll(filepath.Dir(inside(root)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(pins, inside(same)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(inside(other), 0o700); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		path  string
		roots []string
		want  bool
	}{
		{"seen by all", pins, []string{same, same}, true},
		{"another one elsewhere", pins, []string{same, other}, false},
		{"not there elsewhere", pins, []string{empty}, false},
		{"nobody to ask", pins, []string{"/does/not/exist"}, true},
		{"nothing pinned", "/does/not/exist", []string{empty}, true},
	}
	for _, tt := range tests {
		if got := outlives(tt.path, tt.roots); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	roots := ancestorRoots()
	if len(roots) < 2 || roots[0] != "/proc/1/root" {
		t.Errorf("roots of the ancestors: %v", roots)
	}
}

func TestMetricsAddress(t *testing.T) {
	tests := []struct{ in, want string }{
		{"9464", "127.0.0.1:9464"},
		{":9464", "127.0.0.1:9464"},
		{"0.0.0.0:9464", "0.0.0.0:9464"},
		{"[::]:9464", "[::]:9464"},
		{"localhost:9464", "localhost:9464"},
	}
	for _, tt := range tests {
		if got := metricsAddress(tt.in); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.in, got, tt.want)
		}
	}
}
