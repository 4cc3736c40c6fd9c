// SPDX-License-Identifier: Apache-2.0

package generator

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// goFirst binds the caller's thread to a core, where it goes before others, for the rate is to be
// held whatever they do. The thread has to be given back as it was: were it to end, processes that
// it has started would be killed as those of a dead parent are.
func goFirst(cpu int) (yield func() error, err error) {
	var was, is unix.CPUSet
	if err := unix.SchedGetaffinity(0, &was); err != nil {
		return nil, fmt.Errorf("read the cores of the sender: %w", err)
	}
	thread := unix.Gettid()
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, thread)
	if err != nil {
		return nil, fmt.Errorf("read the sender's priority: %w", err)
	}
	yield = func() error {
		// The system call returns 20 less the nice value.
		return errors.Join(unix.SchedSetaffinity(0, &was), unix.Setpriority(unix.PRIO_PROCESS, thread, 20-raw))
	}
	is.Set(cpu)
	if err := unix.SchedSetaffinity(0, &is); err != nil {
		return nil, fmt.Errorf("run on core %d: %w", cpu, err)
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, thread, -20); err != nil {
		return nil, errors.Join(fmt.Errorf("raise the sender's priority: %w", err), yield())
	}
	return yield, nil
}
