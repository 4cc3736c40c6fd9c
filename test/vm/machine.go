// SPDX-License-Identifier: Apache-2.0

// Package vm runs commands on stock Debian kernels: in virtual machines that see this machine's
// files. What a command changes stays in its machine's memory, but for one shared folder.
package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"narthex/test/vm/guest"
)

// Machine says how a virtual machine is.
type Machine struct {
	Kernel Kernel
	Memory int       // MiB; 4096 if 0
	CPUs   int       // 2 if 0
	Output io.Writer // gets what the command prints
}

// consoleTail is how much of the console an error quotes, in bytes.
const consoleTail = 4096

// Run boots the machine, runs a command in it, and returns the command's exit code. The machine
// is gone afterwards.
func (m Machine) Run(ctx context.Context, task guest.Task) (code int, err error) {
	dir, err := os.MkdirTemp("", "narthex-vm-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	task.Modules = m.Kernel.modules
	root := "/"
	if m.Kernel.Arch != runtime.GOARCH {
		if root, err = foreignRoot(ctx, m.Kernel.Arch); err != nil {
			return 0, err
		}
		task.Folders = []string{task.Dir, m.Kernel.modules}
	}
	initramfs := filepath.Join(dir, "initramfs")
	if err := writeInitramfs(ctx, initramfs, m.Kernel, task); err != nil {
		return 0, fmt.Errorf("make the first files of kernel %s: %w", m.Kernel.Version, err)
	}
	status, console := filepath.Join(dir, "status"), filepath.Join(dir, "console")
	args := m.arguments(task, root, initramfs, status, console)
	for try := 1; ; try++ {
		code, begun, err := m.boot(ctx, args, status, console)
		if err == nil || begun || try == boots || ctx.Err() != nil {
			return code, err
		}
	}
}

// boots is how often a machine is booted whose kernel ends before the command begins. Without KVM the newest kernels
// do so now and then, when one processor changes its code while another runs it.
const boots = 3

// boot runs a machine once, and tells whether the command began.
func (m Machine) boot(ctx context.Context, args []string, status, console string) (code int, begun bool, err error) {
	cmd := exec.CommandContext(ctx, boards[m.Kernel.Arch].qemu, args...)
	var complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = struct{ io.Writer }{m.Output}, &complaints // always a pipe, for QEMU opens it anew
	runErr := cmd.Run()
	if ctx.Err() != nil {
		return 0, true, fmt.Errorf("run on kernel %s: %w", m.Kernel.Version, errors.Join(context.Cause(ctx), quote(console)))
	}
	text, err := os.ReadFile(status)
	if err == nil {
		var number string
		number, begun = strings.CutPrefix(string(text), guest.Begun+"\n")
		code, err = strconv.Atoi(strings.TrimSpace(number))
	}
	if err != nil {
		return 0, begun, fmt.Errorf("kernel %s ended before the command did: %w", m.Kernel.Version,
			errors.Join(runErr, errors.New(strings.TrimSpace(complaints.String())), quote(console)))
	}
	return code, begun, nil
}

// quote is the end of a console as an error.
func quote(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return fmt.Errorf("its console:\n%s", text[max(0, len(text)-consoleTail):])
}

// board is how QEMU emulates machines of an architecture.
type board struct {
	qemu    string // its command
	machine string
	console string // the kernel's name of the serial line
}

var boards = map[string]board{
	"amd64": {"qemu-system-x86_64", "q35", "ttyS0"},
	"arm64": {"qemu-system-aarch64", "virt", "ttyAMA0"},
}

// arguments are those of QEMU.
func (m Machine) arguments(task guest.Task, root, initramfs, status, console string) []string {
	b := boards[m.Kernel.Arch]
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-machine", b.machine, "-accel", Accelerator(m.Kernel.Arch), "-cpu", "max",
		"-m", strconv.Itoa(or(m.Memory, 4096)), "-smp", strconv.Itoa(or(m.CPUs, 2)),
		"-kernel", m.Kernel.image, "-initrd", initramfs,
		"-append", "console=" + b.console + " panic=-1",
		"-chardev", "file,id=console,path=" + console, "-serial", "chardev:console",
		"-device", "virtio-serial-pci",
		"-chardev", "file,id=output,append=on,path=/dev/stdout", "-device", "virtserialport,chardev=output,nr=" + strconv.Itoa(guest.OutputPort),
		"-chardev", "file,id=status,path=" + status, "-device", "virtserialport,chardev=status,nr=" + strconv.Itoa(guest.StatusPort),
		"-fsdev", "local,id=root,path=" + root + ",security_model=none,readonly=on,multidevs=remap",
		"-device", "virtio-9p-pci,fsdev=root,mount_tag=" + guest.RootTag,
	}
	for i, folder := range task.Folders {
		tag := fmt.Sprint(guest.FolderTag, i)
		args = append(args,
			"-fsdev", "local,id="+tag+",path="+folder+",security_model=none,readonly=on,multidevs=remap",
			"-device", "virtio-9p-pci,fsdev="+tag+",mount_tag="+tag)
	}
	if task.Share != "" {
		args = append(args,
			"-fsdev", "local,id=share,path="+task.Share+",security_model=none",
			"-device", "virtio-9p-pci,fsdev=share,mount_tag="+guest.ShareTag)
	}
	return args
}

// Accelerator is what runs a machine of an architecture: KVM where the processor has what it takes: the device alone may be there, and
// run nothing. Without KVM everything takes some five to ten times longer.
func Accelerator(arch string) string {
	flags, err := os.ReadFile("/proc/cpuinfo")
	if err == nil && arch == runtime.GOARCH && virtualizes.Match(flags) && unix.Access("/dev/kvm", unix.R_OK|unix.W_OK) == nil {
		return "kvm"
	}
	return "tcg,thread=multi"
}

var virtualizes = regexp.MustCompile(`(?m)^flags\s*:.*\b(vmx|svm)\b`)

func or(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}
