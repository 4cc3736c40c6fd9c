// SPDX-License-Identifier: Apache-2.0

package thrash

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"narthex/internal/lab"
)

// controller finds where the controller of memory is mounted, and the file that bounds it.
func controller() (root, file string, err error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", "", err
	}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		switch {
		case len(f) < 4:
		case f[2] == "cgroup" && strings.Contains(","+f[3]+",", ",memory,"):
			return f[1], "memory.limit_in_bytes", nil
		case f[2] == "cgroup2":
			on, err := os.ReadFile(filepath.Join(f[1], "cgroup.subtree_control"))
			if err == nil && strings.Contains(" "+string(on)+" ", "memory") {
				return f[1], "memory.max", nil
			}
		}
	}
	return "", "", errors.New("bound the memory of the server: no cgroup controller of memory is mounted")
}

// swapOn has the kernel swap to a file. It ends with the lab, or when the next one begins should
// this process be killed.
func swapOn(n *lab.Namespace) error {
	name := filepath.Join(os.TempDir(), "narthex-swap.")
	if err := sweepSwap(name); err != nil {
		return err
	}
	path := name + fmt.Sprint(os.Getpid())
	n.OnClose(func() error { return endSwap(path) })
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(unix.Fallocate(int(file.Fd()), 0, 0, swap), file.Close())
	if err != nil {
		return fmt.Errorf("make a file to swap to: %w", err)
	}
	for _, args := range [][]string{{"mkswap", path}, {"swapon", path}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("swap to a file, without which nothing thrashes here: %s: %w: %s", args[0], err, out)
		}
	}
	return nil
}

// sweepSwap ends what dead processes have left.
func sweepSwap(name string) error {
	files, err := filepath.Glob(name + "*")
	if err != nil {
		return err
	}
	for _, f := range files {
		var pid int
		if _, err := fmt.Sscan(strings.TrimPrefix(f, name), &pid); err != nil || unix.Kill(pid, 0) != unix.ESRCH {
			continue
		}
		if err := endSwap(f); err != nil {
			return err
		}
	}
	return nil
}

func endSwap(path string) error {
	swaps, err := os.ReadFile("/proc/swaps")
	if err != nil {
		return err
	}
	if strings.Contains(string(swaps), path+" ") {
		if out, err := exec.Command("swapoff", path).CombinedOutput(); err != nil {
			return fmt.Errorf("end swapping to %q: %w: %s", path, err, out)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
