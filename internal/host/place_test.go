// SPDX-License-Identifier: Apache-2.0

package host

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inodeOf returns that of a listener of this process.
func inodeOf(t *testing.T, l net.Listener) uint32 {
	t.Helper()
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var stat unix.Stat_t
	if control := raw.Control(func(fd uintptr) { err = unix.Fstat(int(fd), &stat) }); control != nil || err != nil {
		t.Fatal(control, err)
	}
	return uint32(stat.Ino)
}

// TestHolders finds the process that listens, which is this one.
func TestHolders(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	inode, f := inodeOf(t, server), NewFinder("/proc")
	found := f.Holders(map[uint32]bool{inode: true, 1: true})
	if len(found) != 1 || len(found[inode]) != 1 || found[inode][0].PID != os.Getpid() {
		t.Fatalf("found %v, want process %d", found, os.Getpid())
	}
	holder := found[inode][0]
	if !f.Holds(holder, inode) || f.Holds(holder, 1) {
		t.Error("who holds the socket is not told from who does not")
	}
	server.Close()
	if f.Holds(holder, inode) {
		t.Error("a socket that was closed is held")
	}
	if found := f.Holders(nil); len(found) > 0 {
		t.Errorf("found %v of nothing", found)
	}
}

func TestPlaceOfThisProcess(t *testing.T) {
	p := NewFinder("/proc").Place([]int{os.Getpid(), 1 << 30})
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	if len(p.CPUs) != set.Count() || !set.IsSet(p.CPUs[0]) || !slices.IsSorted(p.CPUs) || p.Cores() <= 0 {
		t.Errorf("place %+v", p)
	}
	if gone := NewFinder("/proc").Place([]int{1 << 30}); len(gone.CPUs) > 0 || gone.Cores() != 0 {
		t.Errorf("a process that there is not has the place %+v", gone)
	}
}

// machine is a proc file system and a cgroup hierarchy, with this process in a cgroup.
func machine(t *testing.T, group string, files map[string]string) *Finder {
	t.Helper()
	dir := t.TempDir()
	cgroups := filepath.Join(dir, "cgroup")
	write(t, dir, map[string]string{
		"proc/self/mountinfo":                           "25 1 0:22 / /sys rw - sysfs sysfs rw\n30 25 0:26 / " + cgroups + " rw,nosuid - cgroup2 cgroup2 rw\n",
		"proc/" + strconv.Itoa(os.Getpid()) + "/cgroup": "9:cpu:/elsewhere\n0::" + group + "\n",
	})
	write(t, cgroups, files)
	return NewFinder(filepath.Join(dir, "proc"))
}

func TestQuota(t *testing.T) {
	for _, test := range []struct {
		group string
		files map[string]string
		quota float64
	}{
		{"/", nil, 0},
		{"/a/b", nil, 0},
		{"/a/b", map[string]string{"a/b/cpu.max": "max 100000\n"}, 0},
		{"/a/b", map[string]string{"a/b/cpu.max": "50000 100000\n"}, 0.5},
		{"/a/b", map[string]string{"a/b/cpu.max": "300000 100000\n", "a/cpu.max": "150000 100000\n"}, 1.5},
		{"/a/b", map[string]string{"a/b/cpu.max": "nonsense\n", "a/cpu.max": "1 0\n"}, 0},
	} {
		p := machine(t, test.group, test.files).Place([]int{os.Getpid()})
		if p.Quota != test.quota || (p.Group != nil) != (test.group != "/") {
			t.Errorf("%+v: quota %v, cgroup %v", test, p.Quota, p.Group)
		}
		if want := float64(len(p.CPUs)); p.Cores() > want || test.quota > 0 && p.Cores() > test.quota || test.quota == 0 && p.Cores() != want {
			t.Errorf("%+v: %v cores", test, p.Cores())
		}
	}
}

func TestGroupReads(t *testing.T) {
	p := machine(t, "/a", map[string]string{
		"a/cpu.stat": "usage_usec 2500000\nuser_usec 1\n", "a/memory.pressure": stalls,
	}).Place([]int{os.Getpid()})
	defer p.Group.Close()
	buffer := make([]byte, 4096)
	if got := p.Group.Usage(buffer); got != 2500*time.Millisecond {
		t.Errorf("used %v", got)
	}
	want := Stalls{CPU: Unknown, Memory: 1500 * time.Millisecond, IO: Unknown}
	if got := p.Group.Stalls(buffer); got != want {
		t.Errorf("stalls %v, want %v", got, want)
	}
}

// TestGroupOfProcesses takes the cgroup of the first process that is in one but the root, and reads what it has used.
func TestGroupOfProcesses(t *testing.T) {
	proc, groups := t.TempDir(), t.TempDir()
	write(t, proc, map[string]string{
		"self/mountinfo": "1 0 0:1 / " + groups + " rw - cgroup2 cgroup2 rw\n",
		"7/cgroup":       "0::/\n", "8/cgroup": "1:cpu:/old\n0::/system.slice/nginx.service\n", "9/cgroup": "0::/other\n",
	})
	write(t, groups, map[string]string{"system.slice/nginx.service/cpu.stat": "usage_usec 1500000\nuser_usec 1\n"})
	f := NewFinder(proc)
	group := f.Group([]int{6, 7, 8, 9})
	if group != "/system.slice/nginx.service" {
		t.Errorf("cgroup %q", group)
	}
	if got := f.Usage(group); got != 1500*time.Millisecond {
		t.Errorf("used %v, want 1.5s", got)
	}
	if got := f.Group([]int{6, 7}); got != "" {
		t.Errorf("cgroup %q of processes that are in the root, or gone", got)
	}
	if got := f.Usage("/gone"); got != Unknown {
		t.Errorf("used %v by a cgroup that is gone", got)
	}
}

// TestTogether has no quota where one of several processes has none.
func TestTogether(t *testing.T) {
	if got := together(map[string]float64{"/a": 1, "/b": 0.5}); got != 1.5 {
		t.Errorf("quota %v, want 1.5", got)
	}
	if got := together(map[string]float64{"/a": 1, "": 0}); got != 0 {
		t.Errorf("quota %v, want none", got)
	}
}
