// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

const loopback = "lo"

// loopbackSettings must be 1 for lo: a released packet comes without a route, and the kernel
// would take 127.0.0.1 for a martian address.
var loopbackSettings = []string{"route_localnet", "accept_local"}

func settingFile(name string) string { return "/proc/sys/net/ipv4/conf/" + loopback + "/" + name }

// keySetting is where the journal has what a setting was before.
func keySetting(name string) string { return "sysctl." + loopback + "." + name }

// openLoopback lets released packets in on lo, of the calling thread's namespace, and records
// what was changed. Other interfaces need nothing.
func openLoopback(name string, journal *ebpf.Map) error {
	if name != loopback {
		return nil
	}
	for _, setting := range loopbackSettings {
		was, err := os.ReadFile(settingFile(setting))
		if err != nil {
			return fmt.Errorf("preparing interface %q: %w", loopback, err)
		}
		if strings.TrimSpace(string(was)) == "1" {
			continue
		}
		if err := recordSetting(journal, setting, strings.TrimSpace(string(was))); err != nil {
			return err
		}
		if err := os.WriteFile(settingFile(setting), []byte("1"), 0o644); err != nil {
			return fmt.Errorf("preparing interface %q: %w; a service manager may have to allow it", loopback, err)
		}
	}
	return nil
}

// recordSetting notes what a setting was, and in which network namespace.
func recordSetting(journal *ebpf.Map, setting, was string) error {
	if recorded(journal, keySetting(setting)) != "" {
		return nil // an earlier daemon has
	}
	inode, err := namespaceInode("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	if err := record(journal, keyNamespace, strconv.FormatUint(inode, 10)); err != nil {
		return err
	}
	return record(journal, keySetting(setting), was)
}

// keyNamespace is where the journal has the inode of the namespace whose lo was changed.
const keyNamespace = "sysctl." + loopback + ".namespace"

func namespaceInode(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("identifying network namespace %q: %w", path, err)
	}
	return st.Ino, nil
}

// restoreLoopback puts back what a journal has recorded, in the namespace where it was
// changed. One that exists no more needs nothing.
func restoreLoopback(journal *ebpf.Map) error {
	inode, err := strconv.ParseUint(recorded(journal, keyNamespace), 10, 64)
	if err != nil {
		return nil // nothing was changed
	}
	return atNamespace(inode, func() error { return closeLoopback(journal) })
}

// atNamespace calls a function in the network namespace with an inode. In one that exists no more there is
// nothing to do.
func atNamespace(inode uint64, do func() error) error {
	// To enter one's own takes a privilege, too, which a daemon has given up.
	if here, err := namespaceInode("/proc/thread-self/ns/net"); err == nil && here == inode {
		return do()
	}
	var paths []string
	for _, pattern := range []string{"/run/netns/*", "/proc/[0-9]*/ns/net"} {
		more, _ := filepath.Glob(pattern)
		paths = append(paths, more...)
	}
	for _, path := range paths {
		if at, err := namespaceInode(path); err == nil && at == inode {
			return inNamespace(path, do)
		}
	}
	return nil
}

// inNamespace calls a function on a thread in a network namespace.
func inNamespace(path string, do func() error) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening network namespace %q: %w", path, err)
	}
	defer unix.Close(fd)
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("entering network namespace %q: %w", path, err)
			return
		}
		done <- do()
	}()
	return <-done
}

// closeLoopback puts back what openLoopback has recorded.
func closeLoopback(journal *ebpf.Map) error {
	var all error
	for _, setting := range loopbackSettings {
		was := recorded(journal, keySetting(setting))
		if was == "" {
			continue
		}
		if err := os.WriteFile(settingFile(setting), []byte(was), 0o644); err != nil {
			all = errors.Join(all, fmt.Errorf("restoring net.ipv4.conf.%s.%s to %s: %w", loopback, setting, was, err))
			continue
		}
		all = errors.Join(all, erase(journal, keySetting(setting)))
	}
	if all != nil {
		return all // it has to be tried again, in this namespace
	}
	return erase(journal, keyNamespace)
}
