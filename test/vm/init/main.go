// SPDX-License-Identifier: Apache-2.0

// Command init is the first process of a virtual machine. It puts a file system together from
// this machine's files, which it only reads, and memory, runs one command, and ends the machine.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"narthex/test/vm/guest"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "init:", err)
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func run() error {
	var task guest.Task
	text, err := os.ReadFile("/" + guest.TaskFile)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &task); err != nil {
		return err
	}
	if err := loadModules(); err != nil {
		return err
	}
	if err := enterRoot(task); err != nil {
		return err
	}
	output, err := openPort(guest.OutputPort)
	if err != nil {
		return err
	}
	status, err := openPort(guest.StatusPort)
	if err != nil {
		return err
	}
	fmt.Fprintln(status, guest.Begun)
	code, err := execute(task, output)
	if err != nil {
		fmt.Fprintln(output, err)
	}
	fmt.Fprintln(status, code)
	return nil
}

// loadModules loads the modules of the first files; their names are in the order to load them.
func loadModules() error {
	files, err := filepath.Glob("/" + guest.ModulesDir + "/*")
	if err != nil {
		return err
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load module %q: %w", name, err)
		}
	}
	return nil
}

// mount is one of the file systems.
type mount struct {
	kind, source, target, options string
	flags                         uintptr
}

// enterRoot makes the file system that the command sees, and makes it this process's.
func enterRoot(task guest.Task) error {
	const (
		lower = "/lower" // this machine's files
		upper = "/upper" // what is changed of them
		root  = "/root"
		plan9 = "trans=virtio,version=9p2000.L,msize=262144"
	)
	for _, m := range []mount{
		{kind: "9p", source: guest.RootTag, target: lower, options: plan9 + ",cache=loose", flags: unix.MS_RDONLY},
		{kind: "tmpfs", target: upper},
		{kind: "overlay", target: root, options: "lowerdir=" + lower + ",upperdir=" + upper + "/files,workdir=" + upper + "/work"},
		{kind: "devtmpfs", target: root + "/dev"},
		{kind: "devpts", target: root + "/dev/pts", options: "ptmxmode=666"},
		{kind: "tmpfs", target: root + "/dev/shm"},
		{kind: "proc", target: root + "/proc"},
		{kind: "tmpfs", target: root + "/run", options: "mode=755"},
		{kind: "sysfs", target: root + "/sys"},
		{kind: "cgroup2", target: root + "/sys/fs/cgroup"},
		{kind: "bpf", target: root + "/sys/fs/bpf"},
		{kind: "tracefs", target: root + "/sys/kernel/tracing"},
	} {
		if err := m.mount(); err != nil {
			return err
		}
		if m.target == upper {
			if err := errors.Join(os.Mkdir(upper+"/files", 0o755), os.Mkdir(upper+"/work", 0o755)); err != nil {
				return err
			}
		}
	}
	if err := unix.Chroot(root); err != nil {
		return fmt.Errorf("enter %q: %w", root, err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	for i, folder := range task.Folders {
		m := mount{kind: "9p", source: fmt.Sprint(guest.FolderTag, i), target: folder, options: plan9 + ",cache=loose", flags: unix.MS_RDONLY}
		if err := m.mount(); err != nil {
			return err
		}
	}
	// Where modprobe looks for the modules of the running kernel.
	modules := mount{source: task.Modules, target: filepath.Join("/lib/modules", filepath.Base(task.Modules)), flags: unix.MS_BIND}
	if err := modules.mount(); err != nil {
		return err
	}
	if task.Share != "" {
		return mount{kind: "9p", source: guest.ShareTag, target: task.Share, options: plan9}.mount()
	}
	return nil
}

func (m mount) mount() error {
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.options); err != nil {
		return fmt.Errorf("mount %s at %q: %w", m.kind, m.target, err)
	}
	return nil
}

// openPort opens a serial port, which appears some time after its driver.
func openPort(number int) (*os.File, error) {
	name := fmt.Sprintf("/dev/vport%dp%d", 0, number)
	for range 1000 {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err == nil {
			return f, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, fmt.Errorf("the port %q has not appeared", name)
}

// environment is what every command has.
var environment = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8",
}

// execute runs the command and returns its exit code, as a shell has it.
func execute(task guest.Task, output *os.File) (code int, err error) {
	for _, v := range append(environment, task.Env...) {
		name, value, _ := strings.Cut(v, "=")
		if err := os.Setenv(name, value); err != nil {
			return 127, err
		}
	}
	if err := exec.Command("ip", "link", "set", "lo", "up").Run(); err != nil {
		return 127, fmt.Errorf("set lo up: %w", err)
	}
	cmd := exec.Command(task.Command[0], task.Command[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = task.Dir, output, output
	if err := cmd.Start(); err != nil {
		return 127, err
	}
	// The first process also inherits those whose parents are gone.
	for {
		var s unix.WaitStatus
		pid, err := unix.Wait4(-1, &s, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 127, fmt.Errorf("wait for the command: %w", err)
		case pid == cmd.Process.Pid && s.Signaled():
			return 128 + int(s.Signal()), nil
		case pid == cmd.Process.Pid && s.Exited():
			return s.ExitStatus(), nil
		}
	}
}
