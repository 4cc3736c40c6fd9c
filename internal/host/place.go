// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxCPUs bounds the numbers of CPUs: those of an affinity mask.
const maxCPUs = 1024

// Place is what processes may use.
type Place struct {
	CPUs  []int   // ascending; empty: not known
	Quota float64 // cores that their cgroup may use at once, as cpu.max says; 0: no bound
	Tasks *Tasks  // their threads; nil: there are too many processes
	Group *Group  // their cgroup, if there is one but the root; of several, that of the first process
}

// Cores is how many cores the processes may use at once; 0: not known.
func (p *Place) Cores() float64 {
	n := float64(len(p.CPUs))
	if p.Quota > 0 {
		return min(n, p.Quota)
	}
	return n
}

// Group reads what a cgroup uses. It is not safe for concurrent use.
type Group struct {
	usage  file
	stalls [resources]file
}

// Usage returns the CPU time that the cgroup has used, or Unknown.
func (g *Group) Usage(buffer []byte) time.Duration { return usage(g.usage.read(buffer)) }

// usage reads the form of cpu.stat.
func usage(text []byte) time.Duration {
	us := number(text, "usage_usec ")
	if us < 0 {
		return Unknown
	}
	return time.Duration(us) * time.Microsecond
}

// Stalls returns what tasks of the cgroup waited for.
func (g *Group) Stalls(buffer []byte) (s Stalls) {
	for r := range g.stalls {
		s[r] = parseStall(g.stalls[r].read(buffer))
	}
	return s
}

// Close closes its files.
func (g *Group) Close() {
	g.usage.close()
	for _, f := range g.stalls {
		f.close()
	}
}

// Finder finds processes and what they may use.
type Finder struct {
	proc    string
	cgroups string // where the hierarchy of version 2 is mounted, empty if it is not
}

// NewFinder looks below the root of a proc file system, usually /proc.
func NewFinder(proc string) *Finder {
	return &Finder{proc, cgroupMount(filepath.Join(proc, "self", "mountinfo"))}
}

// cgroupMount returns where the whole cgroup2 hierarchy is mounted.
func cgroupMount(mountinfo string) string {
	f, err := os.Open(mountinfo)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(before)
		if strings.HasPrefix(after, "cgroup2 ") && len(fields) > 4 && fields[3] == "/" {
			return fields[4]
		}
	}
	return ""
}

// Holder is a process that has a socket open.
type Holder struct {
	PID int
	FD  string // its name in /proc/PID/fd
}

// mostHolders bounds how many processes are kept for a socket: workers that share one may
// use the same, as a rule.
const mostHolders = 64

// Holders returns the processes that have sockets open, by the sockets' inodes. It looks at
// every file of every process.
func (f *Finder) Holders(inodes map[uint32]bool) map[uint32][]Holder {
	found := map[uint32][]Holder{}
	if len(inodes) == 0 {
		return found
	}
	names, _ := readNames(f.proc)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		dir := filepath.Join(f.proc, name, "fd")
		fds, _ := readNames(dir) // the process may have ended, or be somebody else's
		for _, fd := range fds {
			inode, ok := socketInode(filepath.Join(dir, fd))
			if ok && inodes[inode] && len(found[inode]) < mostHolders {
				found[inode] = append(found[inode], Holder{pid, fd})
			}
		}
	}
	return found
}

// Holds reports whether a process still has the socket with that inode.
func (f *Finder) Holds(h Holder, inode uint32) bool {
	now, ok := socketInode(filepath.Join(f.proc, strconv.Itoa(h.PID), "fd", h.FD))
	return ok && now == inode
}

func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// socketInode reads the link of a file descriptor, socket:[INODE] of a socket.
func socketInode(path string) (uint32, bool) {
	var buffer [64]byte
	n, err := unix.Readlink(path, buffer[:])
	if err != nil {
		return 0, false
	}
	digits, ok := bytes.CutPrefix(buffer[:n], []byte("socket:["))
	if !ok || len(digits) == 0 {
		return 0, false
	}
	inode, err := strconv.ParseUint(string(digits[:len(digits)-1]), 10, 32)
	return uint32(inode), err == nil
}

// Place returns what processes may use together. Those that have ended are left out.
func (f *Finder) Place(pids []int) *Place {
	p := &Place{}
	var cpus [maxCPUs]bool
	quotas := map[string]float64{}
	first := ""
	for _, pid := range pids {
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(pid, &set); err != nil {
			continue
		}
		for cpu := range cpus {
			cpus[cpu] = cpus[cpu] || set.IsSet(cpu)
		}
		group, ok := f.groupOf(pid)
		if !ok {
			quotas[""] = 0
			continue
		}
		if first == "" {
			first = group
		}
		quotas[group] = f.quota(group)
	}
	for cpu, may := range cpus {
		if may {
			p.CPUs = append(p.CPUs, cpu)
		}
	}
	p.Quota = together(quotas)
	if len(pids) < mostHolders {
		p.Tasks = NewTasks(f.proc, pids)
	}
	if first != "" && first != "/" {
		p.Group = f.open(first)
	}
	return p
}

// together returns the quota of several cgroups: none if one of them has none.
func together(quotas map[string]float64) (sum float64) {
	for _, q := range quotas {
		if q == 0 {
			return 0
		}
		sum += q
	}
	return sum
}

// groupOf returns the path of a process's cgroup in the hierarchy of version 2.
func (f *Finder) groupOf(pid int) (string, bool) {
	if f.cgroups == "" {
		return "", false
	}
	text, err := os.ReadFile(filepath.Join(f.proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			return strings.TrimSuffix(path, "\n"), true
		}
	}
	return "", false
}

// Group returns the cgroup of the first of the processes that is in one but the root, or "".
func (f *Finder) Group(pids []int) string {
	for _, pid := range pids {
		if group, ok := f.groupOf(pid); ok && group != "/" {
			return group
		}
	}
	return ""
}

// Usage returns the CPU time that a cgroup has used, or Unknown.
func (f *Finder) Usage(group string) time.Duration {
	text, err := os.ReadFile(filepath.Join(f.cgroups, group, "cpu.stat"))
	if err != nil {
		return Unknown
	}
	return usage(text)
}

// quota returns how many cores a cgroup may use at once: the least of its own cpu.max and
// those above it.
func (f *Finder) quota(group string) (least float64) {
	for path := filepath.Clean(group); path != "/" && path != "."; path = filepath.Dir(path) {
		text, err := os.ReadFile(filepath.Join(f.cgroups, path, "cpu.max"))
		if err != nil {
			continue
		}
		if q := parseQuota(string(text)); q > 0 && (least == 0 || q < least) {
			least = q
		}
	}
	return least
}

// parseQuota reads the form of cpu.max: microseconds, or max, in each period of so many.
func parseQuota(text string) float64 {
	fields := strings.Fields(text)
	if len(fields) != 2 {
		return 0
	}
	quota, err := strconv.ParseUint(fields[0], 10, 63)
	period, err2 := strconv.ParseUint(fields[1], 10, 63)
	if err != nil || err2 != nil || period == 0 {
		return 0
	}
	return float64(quota) / float64(period)
}

func (f *Finder) open(group string) *Group {
	dir := filepath.Join(f.cgroups, group)
	g := &Group{usage: open(filepath.Join(dir, "cpu.stat"))}
	for r, name := range resourceNames {
		g.stalls[r] = open(filepath.Join(dir, name+".pressure"))
	}
	return g
}

// Close lets go what reads the processes.
func (p *Place) Close() {
	if p.Tasks != nil {
		p.Tasks.Close()
	}
	if p.Group != nil {
		p.Group.Close()
	}
}

// Same reports whether two places are the same as far as CPUs and quota go.
func (p *Place) Same(o *Place) bool {
	return p.Quota == o.Quota && slices.Equal(p.CPUs, o.CPUs)
}

// Follow has the threads of another place's processes read, of which some may be the same.
func (p *Place) Follow(o *Place) {
	if p.Tasks == nil || o.Tasks == nil {
		p.Tasks, o.Tasks = o.Tasks, p.Tasks
		return
	}
	p.Tasks.pids, p.Tasks.listed = o.Tasks.pids, 0
}
