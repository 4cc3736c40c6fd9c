// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"narthex/internal/lab"
	"narthex/test/busy"
)

// Core tells how long the server's core has been at work for the server: how long it was
// busy, without what other processes of the machine took. A kernel that does not account
// for interrupts by themselves charges those to whom they interrupt, and that is the
// server, the threads of the kernel that handle packets, or the meter, which soaks up the
// time that nobody wants. So the work is what these were charged with, but for the time in
// which the meter found the core idle.
type Core struct {
	meter  *busy.Meter
	always Workers // the meter's process, and the kernel's thread for the core's softirqs
	begun  time.Time
}

// Workers are processes whose time counts.
type Workers []int

// NewCore begins to measure a core.
func NewCore(cpu int) (*Core, error) {
	before, err := children()
	if err != nil {
		return nil, err
	}
	c := &Core{begun: time.Now()}
	if c.meter, err = busy.Start(cpu); err != nil {
		return nil, err
	}
	after, err := children()
	maps.DeleteFunc(after, func(pid int, _ bool) bool { return before[pid] })
	if err == nil && len(after) != 1 {
		err = fmt.Errorf("find the process that measures core %d among %v", cpu, after)
	}
	if err != nil {
		return nil, errors.Join(err, c.meter.Close())
	}
	softirq, err := KernelThreads(fmt.Sprintf("ksoftirqd/%d\n", cpu))
	if err != nil {
		return nil, errors.Join(err, c.meter.Close())
	}
	c.always = slices.AppendSeq(slices.Collect(maps.Keys(after)), maps.Keys(softirq))
	return c, nil
}

// Close ends the measurement.
func (c *Core) Close() error { return c.meter.Close() }

// Busy is for how long the core has been busy, whoever it worked for, but for a constant.
func (c *Core) Busy() time.Duration { return c.meter.Busy() }

// idle is for how long the core has been idle, but for a constant.
func (c *Core) idle() time.Duration { return time.Since(c.begun) - c.meter.Busy() }

// Spent is for how long the core has been at work for the workers, but for a constant.
func (c *Core) Spent(w Workers) (sum time.Duration, err error) {
	for _, pid := range append(w[:len(w):len(w)], c.always...) {
		t, err := lab.ProcessCPU(pid)
		if err != nil {
			return 0, err
		}
		sum += t
	}
	return sum - c.idle(), nil
}

// children lists the processes that this one has started.
func children() (map[int]bool, error) {
	files, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		return nil, err
	}
	all := map[int]bool{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // a thread may have ended
		}
		for _, field := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return nil, err
			}
			all[pid] = true
		}
	}
	return all, nil
}

// KernelThreads lists the threads of the kernel whose name, as comm has it, begins so.
func KernelThreads(prefix string) (map[int]bool, error) {
	files, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return nil, err
	}
	threads := map[int]bool{}
	for _, f := range files {
		name, err := os.ReadFile(f)
		if err != nil || !strings.HasPrefix(string(name), prefix) {
			continue // a process may have ended
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil {
			return nil, err
		}
		threads[pid] = true
	}
	return threads, nil
}
