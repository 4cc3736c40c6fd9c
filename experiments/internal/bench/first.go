// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// nice is how processes rank that go first.
const nice = -10

// goFirst has this process and those that it starts run before others on the machine,
// whose work would be taken for the server's.
func goFirst() (yield func() error, err error) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, err
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return nil, err
		}
		// Threads that start later inherit it.
		if err := unix.Setpriority(unix.PRIO_PROCESS, id, nice); err != nil && err != unix.ESRCH {
			return nil, fmt.Errorf("take a higher priority: %w; run it as root", err)
		}
	}
	yieldGroup, err := goFirstInGroup()
	if err != nil {
		return nil, err
	}
	yieldSoftirqs, err := softirqsFirst()
	if err != nil {
		return nil, errors.Join(err, yieldGroup())
	}
	return func() error { return errors.Join(yieldGroup(), yieldSoftirqs()) }, nil
}

// softirqsFirst has the kernel's threads for softirqs keep up with those who go first, as
// they do without all this.
func softirqsFirst() (yield func() error, err error) {
	threads, err := KernelThreads("ksoftirqd/")
	if err != nil {
		return nil, err
	}
	rank := func(nice int) (err error) {
		for pid := range threads {
			err = errors.Join(err, unix.Setpriority(unix.PRIO_PROCESS, pid, nice))
		}
		return err
	}
	return func() error { return rank(0) }, rank(nice)
}

// goFirstInGroup is for kernels that schedule sessions as groups (CONFIG_SCHED_AUTOGROUP),
// within which alone the priorities of processes count. The group is that of the terminal
// and keeps its rank when this process ends, unless it is put back.
func goFirstInGroup() (yield func() error, err error) {
	const file = "/proc/self/autogroup"
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, err
	}
	before, grouped, err := rankOfGroup(string(text))
	if err != nil {
		return nil, fmt.Errorf("read the priority of this session: %w", err)
	}
	if !grouped {
		return func() error { return nil }, nil
	}
	if before == nice { // of another run, or of one that was killed
		before = 0
	}
	set := func(rank int) error { return os.WriteFile(file, []byte(strconv.Itoa(rank)), 0) }
	if err := set(nice); err != nil {
		return nil, fmt.Errorf("take a higher priority: %w; run it as root", err)
	}
	return func() error { return set(before) }, nil
}

// rankOfGroup reads what the kernel says of a process's group. It says nothing of one that
// is in no session's group, such as a child of init that made no session.
func rankOfGroup(text string) (rank int, grouped bool, err error) {
	if text == "" {
		return 0, false, nil
	}
	var group int
	_, err = fmt.Sscanf(text, "/autogroup-%d nice %d", &group, &rank)
	return rank, err == nil, err
}
