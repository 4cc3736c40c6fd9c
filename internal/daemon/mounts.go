// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// outlives reports whether what is pinned at path stays when this process has ended: the
// file system there must be one that others see through their roots, too, and not a mount
// of a private mount namespace. Roots that cannot be read tell nothing.
func outlives(path string, roots []string) bool {
	ours, err := os.Stat(path)
	if err != nil {
		return true
	}
	for _, root := range roots {
		if _, err := os.Stat(root + "/"); err != nil {
			continue
		}
		theirs, err := os.Stat(filepath.Join(root, path))
		if err != nil || !os.SameFile(ours, theirs) {
			return false
		}
	}
	return true
}

// ancestorRoots returns the roots of the machine's first process and of the processes that
// started this one. The first alone would do, but not everywhere may one look into it.
func ancestorRoots() []string {
	roots := []string{"/proc/1/root"}
	for pid := os.Getppid(); pid > 1; pid = parent(pid) {
		roots = append(roots, fmt.Sprintf("/proc/%d/root", pid))
	}
	return roots
}

// parent returns the parent of a process, 0 if that cannot be told.
func parent(pid int) int {
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "PPid:"); ok {
			number, _ := strconv.Atoi(strings.TrimSpace(value))
			return number
		}
	}
	return 0
}
