// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"path/filepath"
)

// outlives reports whether what is pinned at path stays when this process has ended: the
// file system there must be one that the machine's first process sees, too, and not a
// mount of a private mount namespace. If that cannot be told it is taken to be so.
func outlives(path, firstProcessRoot string) bool {
	ours, err := os.Stat(path)
	if err != nil {
		return true
	}
	if _, err := os.Stat(firstProcessRoot); err != nil {
		return true
	}
	theirs, err := os.Stat(filepath.Join(firstProcessRoot, path))
	return err == nil && os.SameFile(ours, theirs)
}
