// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ProcessCPU returns the CPU time of a process with all its threads, in user and kernel
// mode, in nanoseconds as the scheduler counts it. Kernels without
// CONFIG_IRQ_TIME_ACCOUNTING count interrupts that came while the process ran as well.
func ProcessCPU(pid int) (time.Duration, error) {
	// The clock of another process: see clock_getcpuclockid(3).
	const schedClock = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &ts); err != nil {
		return 0, fmt.Errorf("read CPU time of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// childrenOf returns the processes that the main thread of a process has started.
func childrenOf(pid int) ([]int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil, err
	}
	var children []int
	for _, field := range strings.Fields(string(b)) {
		child, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		children = append(children, child)
	}
	return children, nil
}

// CPUs returns the cores that this thread may run on, at least one.
func CPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("read the cores of this process: %w", err)
	}
	var cpus []int
	for cpu := 0; len(cpus) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}
