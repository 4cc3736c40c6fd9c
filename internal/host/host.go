// SPDX-License-Identifier: Apache-2.0

// Package host reads what the kernel says of the machine that a server runs on: how idle its
// CPUs are, what its tasks wait for, how often they fault; which processes listen on a socket
// and what they may use.
//
// Files stay open and are read at once into memory that stays, for all of this happens many
// times a second beside a server that is overloaded. What the kernel does not say is not
// known, and never 0.
package host

import (
	"bytes"
	"os"
	"path/filepath"
	"time"
)

// Unknown stands for a duration or a number that the kernel does not tell.
const Unknown = -1

// tick is what /proc/stat counts in: USER_HZ, which is 100 on every architecture of Linux
// that Go has.
const tick = 10 * time.Millisecond

// Resource is what tasks can wait for.
type Resource int

// The resources of the kernel's pressure stall information.
const (
	CPU Resource = iota
	Memory
	IO
	resources
)

var resourceNames = [resources]string{"cpu", "memory", "io"}

// Stalls are times, since some moment, in which at least one task waited for a resource;
// Unknown where the kernel does not tell.
type Stalls [resources]time.Duration

// Reading is what was read of the machine. All of it is since some moment in the past.
type Reading struct {
	Idle   []time.Duration // by number of the CPU; Unknown for one that is off or does not exist
	Stalls Stalls
	Faults int64 // major page faults; or Unknown
}

// Machine reads what concerns the whole machine. It is not safe for concurrent use.
type Machine struct {
	stat, vmstat file
	stalls       [resources]file
	buffer       []byte
	now          Reading
}

// Open opens the files below the root of a proc file system, usually /proc. Those that there
// are not stay unknown.
func Open(proc string) *Machine {
	m := &Machine{
		stat: open(filepath.Join(proc, "stat")), vmstat: open(filepath.Join(proc, "vmstat")),
		buffer: make([]byte, 64<<10), // the lines of 500 CPUs
	}
	for r, name := range resourceNames {
		m.stalls[r] = open(filepath.Join(proc, "pressure", name))
	}
	return m
}

// Close closes the files.
func (m *Machine) Close() {
	m.stat.close()
	m.vmstat.close()
	for _, f := range m.stalls {
		f.close()
	}
}

// Read reads anew. What it returns is good until the next Read.
func (m *Machine) Read() *Reading {
	m.now.Idle = parseIdle(m.stat.read(m.buffer), m.now.Idle[:0])
	for r := range m.stalls {
		m.now.Stalls[r] = parseStall(m.stalls[r].read(m.buffer))
	}
	m.now.Faults = number(m.vmstat.read(m.buffer), "\npgmajfault ")
	return &m.now
}

// file is a file that is read often; nil for one that there is not.
type file struct{ f *os.File }

func open(path string) file {
	f, err := os.Open(path)
	if err != nil {
		return file{}
	}
	return file{f}
}

func (f file) close() {
	if f.f != nil {
		f.f.Close()
	}
}

// read returns as much of the file as fits, nothing if it cannot be read.
func (f file) read(buffer []byte) []byte {
	if f.f == nil {
		return nil
	}
	n, _ := f.f.ReadAt(buffer, 0) // shorter than the buffer: io.EOF
	return buffer[:n]
}

// parseIdle appends the idle time of each CPU in the form of /proc/stat, with the time in
// which it waited for a disk. Time that the hypervisor took is not idle.
func parseIdle(b []byte, idle []time.Duration) []time.Duration {
	const userNiceSystem, idleAndIOWait = 3, 2
	for {
		var line []byte
		var whole bool
		line, b, whole = bytes.Cut(b, newline)
		line, of := bytes.CutPrefix(line, cpuPrefix)
		if !whole || !of {
			return idle
		}
		if len(line) == 0 || line[0] == ' ' { // of all CPUs
			continue
		}
		cpu, line := field(line)
		if cpu < 0 || cpu >= maxCPUs {
			return idle
		}
		for range userNiceSystem {
			_, line = field(line)
		}
		var sum int64
		for range idleAndIOWait {
			var ticks int64
			ticks, line = field(line)
			if ticks < 0 {
				return idle
			}
			sum += ticks
		}
		for int64(len(idle)) < cpu {
			idle = append(idle, Unknown)
		}
		idle = append(idle[:cpu], time.Duration(sum)*tick)
	}
}

var (
	newline   = []byte{'\n'}
	cpuPrefix = []byte("cpu")
	someLine  = []byte("some ")
)

// parseStall reads the line of /proc/pressure/* and cgroups' *.pressure that is about some
// tasks, in microseconds.
func parseStall(b []byte) time.Duration {
	line, _, whole := bytes.Cut(b, newline)
	if !whole || !bytes.HasPrefix(line, someLine) {
		return Unknown
	}
	us := number(line, " total=")
	if us < 0 {
		return Unknown
	}
	return time.Duration(us) * time.Microsecond
}

// number returns the number after the first occurrence of a key, Unknown if there is none.
func number(b []byte, key string) int64 {
	for at := 0; at+len(key) <= len(b); at++ {
		if string(b[at:at+len(key)]) == key {
			n, _ := field(b[at+len(key):])
			return n
		}
	}
	return Unknown
}

// field reads the number that a text begins with, after spaces, and returns what follows;
// Unknown if there is none.
func field(b []byte) (n int64, rest []byte) {
	for len(b) > 0 && b[0] == ' ' {
		b = b[1:]
	}
	i := 0
	for ; i < len(b) && i < 18 && b[i] >= '0' && b[i] <= '9'; i++ {
		n = 10*n + int64(b[i]-'0')
	}
	if i == 0 {
		return Unknown, b
	}
	return n, b[i:]
}
