// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// unsupportedError is an error that says by itself what is missing, and is ErrUnsupported.
type unsupportedError struct{ error }

func (unsupportedError) Is(target error) bool { return target == ErrUnsupported }

func unsupported(format string, args ...any) error {
	return unsupportedError{fmt.Errorf(format, args...)}
}

// supported says in one sentence what is missing to load the programs.
func supported() error {
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); errors.Is(err, os.ErrNotExist) {
		return unsupported("the kernel has no BTF (/sys/kernel/btf/vmlinux): use one built with CONFIG_DEBUG_INFO_BTF=y")
	}
	return privileged()
}

// privileged says which capability is missing.
func privileged() error {
	var data [2]unix.CapUserData
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("reading this process's capabilities: %w", err)
	}
	effective := uint64(data[1].Effective)<<32 | uint64(data[0].Effective)
	has := func(capability uint) bool { return effective>>capability&1 == 1 }
	if has(unix.CAP_SYS_ADMIN) && has(unix.CAP_NET_ADMIN) {
		return nil
	}
	for _, c := range []struct {
		number uint
		name   string
	}{{unix.CAP_BPF, "CAP_BPF"}, {unix.CAP_NET_ADMIN, "CAP_NET_ADMIN"}, {unix.CAP_PERFMON, "CAP_PERFMON"}} {
		if !has(c.number) {
			return unsupported("no privilege to load eBPF programs: run as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON (%s is missing)", c.name)
		}
	}
	return nil
}
