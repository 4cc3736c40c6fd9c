// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"narthex/test/vm"
)

// bootLimit bounds a boot, which takes under a minute without KVM on an idle machine; devices get as long.
const bootLimit = 10 * time.Minute

// machine is a virtual machine that runs.
type machine struct {
	cmd        *exec.Cmd
	done       chan error
	console    string // file with what the kernel and systemd say
	complaints bytes.Buffer
	terminals  []*terminal
}

// terminalNames are those of the tutorial.
var terminalNames = []string{"first", "second", "third"}

// boot starts a machine with the image, of which it changes nothing, and a second disk.
func boot(ctx context.Context, dir string, img image, second string) (*machine, error) {
	m := &machine{done: make(chan error, 1), console: filepath.Join(dir, "console")}
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none",
		"-machine", "q35", "-accel", vm.Accelerator(runtime.GOARCH), "-cpu", "max", "-m", "2048", "-smp", "2",
		"-kernel", img.kernel, "-initrd", img.initrd, "-append", "root=/dev/vda console=ttyS0 panic=-1 systemd.default_device_timeout_sec=600",
		"-drive", "if=virtio,format=raw,snapshot=on,file=" + img.disk,
		"-drive", "if=virtio,format=raw,readonly=on,file=" + second,
		"-serial", "file:" + m.console,
	}
	for _, name := range terminalNames {
		socket := filepath.Join(dir, name)
		if err := os.RemoveAll(socket); err != nil {
			return nil, err
		}
		args = append(args, "-serial", "unix:"+socket+",server=on,wait=off")
	}
	m.cmd = exec.CommandContext(ctx, "qemu-system-x86_64", args...)
	m.cmd.Stderr = &m.complaints
	if err := m.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { m.done <- m.cmd.Wait() }()
	for _, name := range terminalNames {
		conn, err := dial(ctx, filepath.Join(dir, name))
		if err != nil {
			return nil, m.failed(err)
		}
		m.terminals = append(m.terminals, newTerminal(name, conn))
	}
	return m, m.logIn(ctx)
}

// dial connects to a socket that is about to appear.
func dial(ctx context.Context, socket string) (conn net.Conn, err error) {
	for range 100 {
		if conn, err = net.Dial("unix", socket); err == nil || ctx.Err() != nil {
			return conn, err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil, err
}

// logIn waits for the shells of a boot, at all terminals.
func (m *machine) logIn(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, bootLimit, errors.New("the machine does not boot"))
	defer cancel()
	for _, t := range m.terminals {
		if err := t.prepare(ctx); err != nil {
			return m.failed(fmt.Errorf("log in at the %s terminal: %w", t.name, err))
		}
	}
	return nil
}

// failed adds to an error what the console and QEMU said last.
func (m *machine) failed(err error) error {
	text, _ := os.ReadFile(m.console)
	return fmt.Errorf("%w\n%s\nthe machine's console:\n%s", err, strings.TrimSpace(m.complaints.String()), text[max(0, len(text)-4096):])
}

// off waits until the machine has been turned off.
func (m *machine) off(ctx context.Context) error {
	select {
	case err := <-m.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// kill ends the machine if it still runs.
func (m *machine) kill() {
	_ = m.cmd.Process.Kill()
}
