// SPDX-License-Identifier: Apache-2.0

package source

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	if err := Check(); err != nil {
		t.Error(err)
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "a.h"), []byte("int a;"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := check(folder, compiled); err == nil || !strings.Contains(err.Error(), "run make generate") {
		t.Errorf("of another source: %v", err)
	}
	if err := check(filepath.Join(folder, "none"), compiled); err != nil {
		t.Errorf("without source: %v", err)
	}
}

// TestLinks finds that no package makes do with links in its folder.
func TestLinks(t *testing.T) {
	err := filepath.WalkDir("..", func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.Type()&os.ModeSymlink != 0 {
			t.Errorf("%s is a link", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
