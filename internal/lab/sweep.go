// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"
)

// ownName matches the namespaces and folders that this package names; the group is the
// process that made them.
var ownName = regexp.MustCompile(`^narthex-[a-z0-9-]+-(\d+)-\d+$`)

// Sweep removes namespaces and temporary folders of processes that have died, and
// returns the paths that it removed.
func Sweep() (removed []string, err error) { return sweep(dead) }

// sweep removes what was made by a process that is gone.
func sweep(gone func(pid int) bool) (removed []string, err error) {
	var errs []error
	for _, dir := range []string{Dir, os.TempDir()} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("look for leftovers: %w", err))
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if pid, ok := maker(e.Name()); !ok || !gone(pid) {
				continue
			}
			err := remove(path)
			if errors.Is(err, errCovered) {
				continue
			}
			if err != nil {
				errs = append(errs, err)
				continue
			}
			removed = append(removed, path)
		}
	}
	return removed, errors.Join(errs...)
}

// maker returns the process that made what has the name, if it is one of ours.
func maker(name string) (pid int, ok bool) {
	m := ownName.FindStringSubmatch(name)
	if m == nil {
		return 0, false
	}
	pid, err := strconv.Atoi(m[1])
	return pid, err == nil
}

// dead reports whether there is no such process.
func dead(pid int) bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) }

// deadOrSelf also takes what bears this process's number, for use before this process
// has made anything.
func deadOrSelf(pid int) bool { return pid == os.Getpid() || dead(pid) }

// errCovered says that another mount covers what is to be removed, such as that of the first
// ip netns add: it goes with a later sweep.
var errCovered = errors.New("another mount covers it")

// remove takes away a namespace's mount and file, or a folder. It returns errCovered where it cannot yet.
func remove(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err != nil && err != unix.EINVAL && err != unix.ENOENT {
		return fmt.Errorf("unmount %q: %w", path, err)
	}
	err = os.RemoveAll(path)
	if errors.Is(err, unix.EBUSY) {
		return errCovered
	}
	if err != nil {
		return fmt.Errorf("remove leftovers: %w", err)
	}
	return nil
}

// TempDir makes a temporary folder that goes when the namespace is closed.
func (n *Namespace) TempDir(purpose string) (string, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("narthex-%s-%d-%d", purpose, os.Getpid(), serial.Add(1)))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	n.OnClose(func() error { return os.RemoveAll(dir) })
	return dir, nil
}
