// SPDX-License-Identifier: Apache-2.0

// Package sum sums up source files.
package sum

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"path"
)

// Of returns a sum of the names and bytes of all C files below a folder.
func Of(folder fs.FS) (string, error) {
	h := sha256.New()
	err := fs.WalkDir(folder, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".c" && path.Ext(name) != ".h" {
			return err
		}
		text, err := fs.ReadFile(folder, name)
		fmt.Fprintf(h, "%q %d\n%s", name, len(text), text)
		return err
	})
	return fmt.Sprintf("%x", h.Sum(nil)[:16]), err
}
