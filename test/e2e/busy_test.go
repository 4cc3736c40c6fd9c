// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	endian "encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

// occupied checks that every command is done, or says that it waits for the daemon.
func (in *instance) occupied(commands []string) {
	in.t.Helper()
	waits := fmt.Sprintf("process %d runs and is busy: waiting for it (Ctrl-C gives up; `narthex detach --force --instance %s`", in.cmd.Process.Pid, in.name)
	said := 0
	for command, r := range in.all(commands) {
		switch {
		case strings.Contains(r.stderr, waits):
			said++
		case r.code < 0 || r.stdout+r.stderr == "":
			in.t.Errorf("busy daemon: narthex %s: exit code %d: %s%s", command, r.code, r.stdout, r.stderr)
		}
	}
	if said == 0 {
		in.t.Error("no command has said that the daemon is busy")
	}
}

// A daemon that is busy for long keeps no command silent, and does not stand in the way of the emergency exit.
func TestBusyDaemon(t *testing.T) {
	t.Parallel()
	rig := nettest.Lab(t, 1)
	_, err := rig.Server.StartPython(lab.PythonConfig{Listen: []netip.AddrPort{netip.AddrPortFrom(rig.ServerV4, 80)}})
	nettest.Check(t, err)
	in := start(t, rig.Server, `
version: 1
services: [{name: web, listen: ["*:80"], concurrency: 4}]
connections: [{name: everyone, rate: 1000/s}]
`, "--refusals", t.TempDir())
	release := in.occupy()
	in.occupied(askers(in.file))
	in.alone("busy")
	in.refused("busy", fmt.Sprintf("process %d", in.cmd.Process.Pid))
	_, err = get(rig.Client, netip.AddrPortFrom(rig.ServerV4, 80), "/", netip.Addr{}, patience)
	nettest.Check(t, err)
	r := interrupted(in.command("detach"), fmt.Sprintf("process %d was asked to stop: waiting for it (Ctrl-C gives up; `narthex detach --force --instance %s`", in.cmd.Process.Pid, in.name))
	if !strings.Contains(r.stderr, "was asked to stop") {
		t.Errorf("busy daemon: detach: %+v", r)
	}
	if r = interrupted(in.command("detach", "--force"), "nothing"); r.code != 0 || r.stdout != "instance "+in.name+": detached\n" {
		t.Errorf("busy daemon: detach --force: %+v", r)
	}
	release()
	<-in.done
	if code := in.cmd.ProcessState.ExitCode(); code != 4 {
		t.Errorf("the daemon ended with exit code %d:\n%s", code, in.log)
	}
	in.cmd = nil
}

// occupy keeps the daemon busy until release is called. It begins a reload, and when the daemon opens the
// file in which that is noted, the kernel has it wait, as for a disk that hangs.
func (in *instance) occupy() (release func()) {
	in.t.Helper()
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK, unix.O_RDONLY|unix.O_CLOEXEC)
	nettest.Check(in.t, err)
	opened := os.NewFile(uintptr(fd), "fanotify")
	release = func() { opened.Close() } // whoever waits goes on
	in.t.Cleanup(release)
	nettest.Check(in.t, unix.FanotifyMark(fd, unix.FAN_MARK_ADD, unix.FAN_OPEN_PERM|unix.FAN_EVENT_ON_CHILD, unix.AT_FDCWD, "/run/narthex"))
	waits := make(chan struct{}, 1)
	go answerOpens(opened, in.cmd.Process.Pid, waits)
	reload := exec.Command(binary, in.command("reload", "--confirm", "60s", in.file)...)
	nettest.Check(in.t, reload.Start())
	in.t.Cleanup(func() { _ = reload.Process.Kill(); _ = reload.Wait() })
	eventually(in.t, "the daemon waits", func() bool { return len(waits) > 0 })
	return release
}

// answerOpens allows everybody to open files but for one process, and tells when that waits.
func answerOpens(opened *os.File, pid int, waits chan<- struct{}) {
	buf := make([]byte, 4096)
	for {
		n, err := opened.Read(buf)
		if err != nil {
			return
		}
		for events := bytes.NewReader(buf[:n]); events.Len() > 0; {
			var e unix.FanotifyEventMetadata
			if endian.Read(events, endian.NativeEndian, &e) != nil {
				return
			}
			if int(e.Pid) == pid {
				// An answer names a descriptor. While this event is unanswered, its descriptor
				// stays open: no later event gets the same number and loses its answer to it.
				defer unix.Close(int(e.Fd))
				if len(waits) == 0 {
					waits <- struct{}{}
				}
				continue
			}
			_ = endian.Write(opened, endian.NativeEndian, unix.FanotifyResponse{Fd: e.Fd, Response: unix.FAN_ALLOW})
			unix.Close(int(e.Fd))
		}
	}
}
