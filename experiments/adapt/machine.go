// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU times in /proc, USER_HZ, which is the same everywhere.
const tick = 10 * time.Millisecond

// coreBusy is for how long a core has been busy since the machine started, waits for the disk
// left out, as the kernel counts it.
func coreBusy(cpu int) (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 8 || fields[0] != fmt.Sprintf("cpu%d", cpu) {
			continue
		}
		ticks := time.Duration(0)
		for i, f := range fields[1:8] { // user, nice, system, idle, iowait, irq, softirq
			n, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read how busy core %d is: %w", cpu, err)
			}
			if i != 3 && i != 4 {
				ticks += time.Duration(n)
			}
		}
		return ticks * tick, nil
	}
	return 0, fmt.Errorf("read how busy core %d is: /proc/stat does not have it", cpu)
}

// process is what /proc says of one.
type process struct {
	parent int
	own    time.Duration // CPU time
	reaped time.Duration // that of its children that have ended
}

func processes() (map[int]process, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	all := map[int]process{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil {
			return nil, err
		}
		_, rest, _ := strings.Cut(string(text), ") ") // of its name
		var p process
		var times [4]int64
		fields := strings.Fields(rest)
		if len(fields) < 15 {
			return nil, fmt.Errorf("read process %d: %q", pid, text)
		}
		if p.parent, err = strconv.Atoi(fields[1]); err != nil {
			return nil, fmt.Errorf("read process %d: %w", pid, err)
		}
		for i := range times {
			if times[i], err = strconv.ParseInt(fields[11+i], 10, 64); err != nil {
				return nil, fmt.Errorf("read process %d: %w", pid, err)
			}
		}
		p.own, p.reaped = time.Duration(times[0]+times[1])*tick, time.Duration(times[2]+times[3])*tick
		all[pid] = p
	}
	return all, nil
}

// treeTime is the CPU time of a process and of all that it has started.
func treeTime(top int) (sum time.Duration, err error) {
	all, err := processes()
	if err != nil {
		return 0, err
	}
	for pid, p := range all {
		if descends(all, pid, top) {
			sum += p.own + p.reaped
		}
	}
	return sum, nil
}

// foreignTime is the CPU time of all processes that this one has not started, and that are not
// the kernel's, but for a constant. What the first process reaps may be anybody's.
func foreignTime() (sum time.Duration, err error) {
	const first, kernel = 1, 2
	all, err := processes()
	if err != nil {
		return 0, err
	}
	for pid, p := range all {
		switch {
		case descends(all, pid, os.Getpid()), descends(all, pid, kernel):
		case pid == first:
			sum += p.own
		default:
			sum += p.own + p.reaped
		}
	}
	return sum, nil
}

// descends reports whether a process is the other, or was started by it or those that it started.
func descends(all map[int]process, pid, from int) bool {
	for pid != from && pid != 0 {
		pid = all[pid].parent
	}
	return pid == from
}
