// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Cmd is a command that starts in a namespace, and in nothing else that is new: unlike
// ip netns exec it keeps the mounts, so that what it pins in a bpffs outlives it.
type Cmd struct {
	*exec.Cmd
	CPUs []int // cores it may run on; all of them if empty

	ns   *Namespace
	kill bool // a server that heads a process group: end it by killing that
}

// Command prepares a command to start in the namespace. It gets SIGTERM when this
// process dies.
func (n *Namespace) Command(name string, args ...string) *Cmd {
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	return &Cmd{Cmd: cmd, ns: n}
}

// Start starts the command; see exec.Cmd.Start.
func (c *Cmd) Start() error {
	// A child inherits the network namespace and the affinity of the thread that forks.
	return c.ns.Do(func() error { return Pinned(c.CPUs, c.Cmd.Start) })
}

// Run starts the command and waits for it; see exec.Cmd.Run.
func (c *Cmd) Run() error {
	return c.ns.Do(func() error { return Pinned(c.CPUs, c.Cmd.Run) })
}

// Output runs the command and returns what it wrote to its standard output; see
// exec.Cmd.Output.
func (c *Cmd) Output() ([]byte, error) { return c.collect(c.Cmd.Output) }

// CombinedOutput runs the command and returns what it wrote to both streams; see
// exec.Cmd.CombinedOutput.
func (c *Cmd) CombinedOutput() ([]byte, error) { return c.collect(c.Cmd.CombinedOutput) }

// collect runs the command by a method that returns its output.
func (c *Cmd) collect(run func() ([]byte, error)) (out []byte, err error) {
	err = c.ns.Do(func() error {
		return Pinned(c.CPUs, func() error {
			out, err = run()
			return err
		})
	})
	return out, err
}

// Pinned calls fn on a thread that runs only on the given cores, and puts the thread's
// affinity back. Without cores it just calls fn. Processes that fn starts inherit the
// cores, goroutines do not.
func Pinned(cpus []int, fn func() error) error {
	if len(cpus) == 0 {
		return fn()
	}
	runtime.LockOSThread()
	var old, want unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("read the cores of this thread: %w", err)
	}
	for _, cpu := range cpus {
		want.Set(cpu)
	}
	defer func() {
		if unix.SchedSetaffinity(0, &old) == nil {
			runtime.UnlockOSThread()
		}
	}()
	if err := unix.SchedSetaffinity(0, &want); err != nil {
		return fmt.Errorf("run on cores %v only: %w", cpus, err)
	}
	return fn()
}
