// SPDX-License-Identifier: Apache-2.0

// Package thrash has a server thrash in earnest, as in Voigt et al., Kernel Mechanisms for Service
// Differentiation in Overloaded Web Servers, USENIX ATC 2001, figure 11: 150 processes, a CGI
// program that needs memory and answers with 29 KB, and less memory than all programs together
// need. So the programs run in a memory cgroup in which a few have room, and the rest is in a file
// for swapping.
package thrash

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"narthex/internal/lab"
)

// What the server has, and what its programs take.
const (
	Workers = 150     // processes of the server: programs at once
	Each    = 8 << 20 // bytes that each program goes through again and again
	Body    = 29_000  // bytes of an answer
	swap    = 4 << 30 // bytes
)

// Script is the CGI program.
var Script = fmt.Sprintf(`#!/usr/bin/perl
my $size = %d;
my $data = "";
vec($data, $size - 1, 8) = 1;
for my $pass (1 .. 4) {
	for (my $at = 0; $at < $size; $at += 4096) { vec($data, $at, 8) = $pass }
}
my $body = "narthex\n" x %d;
print "Content-Type: text/plain\r\nContent-Length: ", length $body, "\r\n\r\n", $body;
`, Each, Body/8)

// Group is a memory cgroup with a file to swap to.
type Group struct{ root, dir string }

// New makes one in which so many bytes may be in memory. It goes with the namespace; the name is
// part of the cgroup's.
func New(n *lab.Namespace, name string, memory int) (*Group, error) {
	// What the program itself takes is to be in memory before, and then is not the cgroup's.
	if out, err := exec.Command("/usr/bin/perl", "-e", "1").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("run perl: %w: %s", err, out)
	}
	if err := swapOn(n); err != nil {
		return nil, err
	}
	root, file, err := controller()
	if err != nil {
		return nil, err
	}
	g := &Group{root, filepath.Join(root, fmt.Sprintf("narthex-%s-%d", name, os.Getpid()))}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, err
	}
	n.OnClose(g.remove)
	if err := os.WriteFile(filepath.Join(g.dir, file), []byte(fmt.Sprint(memory)), 0); err != nil {
		return nil, fmt.Errorf("bound the memory of the server: %w", err)
	}
	return g, nil
}

// Add bounds the memory of a server and of the programs that it starts.
func (g *Group) Add(s *lab.Server) error {
	processes, err := s.PIDs()
	if err != nil {
		return err
	}
	for _, pid := range processes {
		if err := os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte(fmt.Sprint(pid)), 0); err != nil {
			return fmt.Errorf("bound the memory of the server: %w", err)
		}
	}
	return nil
}

// clearTimeout is how long processes may take to end.
const clearTimeout = 20 * time.Second

// Clear ends what is left in the group, such as programs whose server has ended, and waits for that.
func (g *Group) Clear() error {
	for begun := time.Now(); time.Since(begun) < clearTimeout; time.Sleep(5 * time.Millisecond) {
		left, err := g.processes()
		if err != nil || len(left) == 0 {
			return err
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
	return fmt.Errorf("end what is in %s: processes are left after %v", g.dir, clearTimeout)
}

func (g *Group) processes() (pids []int, err error) {
	text, err := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	for field := range strings.FieldsSeq(string(text)) {
		var pid int
		if _, err := fmt.Sscan(field, &pid); err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// remove removes the group. The server has ended, but not yet each of its programs: those are moved out.
func (g *Group) remove() error {
	left, err := g.processes()
	if err != nil {
		return err
	}
	for _, pid := range left {
		_ = os.WriteFile(filepath.Join(g.root, "cgroup.procs"), []byte(fmt.Sprint(pid)), 0) // it may have ended
	}
	return os.Remove(g.dir)
}
