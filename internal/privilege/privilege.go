// SPDX-License-Identifier: Apache-2.0

// Package privilege gives up the capabilities that a daemon needs to start and not to go on.
package privilege

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
	"kernel.org/pub/linux/libs/security/libcap/psx"
)

// kept are the capabilities that a daemon keeps if it has them. A reload may load programs
// anew, for more rules, and so do interfaces that come: the first three are needed for as long
// as it runs. The others let it read what is another user's.
var kept = []cap.Value{
	cap.BPF,             // maps and programs
	cap.NET_ADMIN,       // programs of network types, attaching them, settings of lo
	cap.PERFMON,         // programs on tracepoints, pointers into kernel structures
	cap.DAC_READ_SEARCH, // a policy file that is another user's; with the next one,
	cap.SYS_PTRACE,      // which processes serve: what their CPUs do sets limits
}

// Held returns the names of the capabilities that are in effect, such as CAP_BPF.
func Held() ([]string, error) {
	now := cap.GetProc()
	var names []string
	for v := range cap.MaxBits() {
		has, err := now.GetFlag(cap.Effective, v)
		if err != nil {
			return nil, fmt.Errorf("read capabilities: %w", err)
		}
		if has {
			names = append(names, strings.ToUpper(v.String()))
		}
	}
	return names, nil
}

// Drop gives up all other capabilities, for good and for all threads of the process, also
// for programs that it may execute.
func Drop() error {
	now := cap.GetProc()
	if err := dropBounding(now); err != nil {
		return fmt.Errorf("drop capabilities from the bounding set: %w", err)
	}
	if err := cap.ResetAmbient(); err != nil {
		return fmt.Errorf("drop ambient capabilities: %w", err)
	}
	if _, _, errno := psx.Syscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("give up new privileges: %w", errno)
	}
	next := cap.NewSet()
	for _, v := range kept {
		has, err := now.GetFlag(cap.Permitted, v)
		if err != nil {
			return fmt.Errorf("read capabilities: %w", err)
		}
		if !has {
			continue
		}
		for _, flag := range []cap.Flag{cap.Permitted, cap.Effective} {
			if err := next.SetFlag(flag, true, v); err != nil {
				return fmt.Errorf("choose capabilities: %w", err)
			}
		}
	}
	if err := next.SetProc(); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

// dropBounding takes from the bounding set what is not kept. That takes CAP_SETPCAP; without
// it the set stays, and nothing comes of it, for no new privileges are to be had.
func dropBounding(now *cap.Set) error {
	may, err := now.GetFlag(cap.Effective, cap.SETPCAP)
	if err != nil || !may {
		return err
	}
	for v := range cap.MaxBits() {
		if bound, err := cap.GetBound(v); err != nil || !bound || slices.Contains(kept, v) {
			continue
		}
		if err := cap.DropBound(v); err != nil {
			return fmt.Errorf("%s: %w", strings.ToUpper(v.String()), err)
		}
	}
	return nil
}

// Confine drops capabilities and returns the names of those that are left.
func Confine() ([]string, error) {
	if err := Drop(); err != nil {
		return nil, err
	}
	return Held()
}
