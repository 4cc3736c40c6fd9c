// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

// scene is the machine on which a page is executed, and a client of it.
type scene struct {
	t         *testing.T
	rig       *lab.Lab
	dir       string // mounted by the scene: what it writes, and programs that stand for others
	holder    *exec.Cmd
	release   func() // ends the holder
	terminals map[string]*terminal
	running   []*background
	serial    int
}

// private are the folders that a scene has for itself, with what is in them. The first is the
// repository.
var private = []string{"", "/etc", "/usr/local", "/var"}

// stage makes the mounts of a scene, in a mount namespace of its own, and then waits for the end of its
// standard input: $1 is a folder for what is written, $2 the command, then come the private folders.
const stage = `set -e
dir=$1 narthex=$2; shift 2
mount -t tmpfs narthex-docs "$dir"
i=0
for path in "$@"; do
  i=$((i + 1))
  mkdir "$dir/upper$i" "$dir/work$i"
  mount -t overlay narthex-docs -o "lowerdir=$path,upperdir=$dir/upper$i,workdir=$dir/work$i" "$path"
done
mount -t tmpfs narthex-docs /run
mount -t bpf narthex-docs /sys/fs/bpf
mkdir -p "$dir/bin" "$1/bin" /etc/narthex /run/narthex
rm -f /usr/local/bin/narthex
cp "$narthex" "$1/bin/narthex"
printf '#!/bin/sh\nwhile [ "$1" = -E ]; do shift; done\nexec "$@"\n' >"$dir/bin/sudo"
chmod 755 "$dir/bin/sudo"
printf '203.0.113.80 shop.example www.shop.example\n' >>/etc/hosts
echo ready
exec cat
`

// addresses make the scene's network look like one in the documentation: the machine is 203.0.113.80, and everybody
// else is behind its router, where the client is.
var addresses = map[string]string{
	"server": `ip address add 203.0.113.80/24 dev eth0 && ip route add default via 203.0.113.1`,
	"client": `ip address add 203.0.113.1/24 dev eth0 &&
for a in 192.0.2.7 192.0.2.8 192.0.2.10 198.51.100.9; do ip address add $a/32 dev eth0; done`,
}

// newScene makes a scene. When the test ends nothing of it is left.
func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{t: t, rig: nettest.Lab(t, 4), dir: t.TempDir(), terminals: map[string]*terminal{}}
	args := append([]string{"--mount", "sh", "-c", stage, "stage", s.dir, binary, repository}, private[1:]...)
	s.holder = exec.Command("unshare", args...)
	s.holder.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var stderr strings.Builder
	s.holder.Stderr = &stderr
	in, err := s.holder.StdinPipe()
	nettest.Check(t, err)
	out, err := s.holder.StdoutPipe()
	nettest.Check(t, err)
	nettest.Check(t, s.holder.Start())
	s.release = func() { in.Close(); _ = s.holder.Wait() }
	t.Cleanup(s.close)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("set the scene: %v: %s", err, stderr.String())
	}
	for _, machine := range []string{"client", "server"} {
		if out, err := s.inside(machine, "sh", "-c", addresses[machine]).CombinedOutput(); err != nil {
			t.Fatalf("give the %s its addresses: %v: %s", machine, err, out)
		}
	}
	return s
}

// install makes narthex a command of the machine.
func (s *scene) install() { s.do("cp bin/narthex /usr/local/bin/narthex") }

// do runs a command on the machine that is no part of the page, and must succeed.
func (s *scene) do(text string) string {
	s.t.Helper()
	out, code, err := s.terminal("", "server").run(text)
	if err != nil || code != 0 {
		s.t.Fatalf("to set the scene: %s: exit code %d, %v\n%s", text, code, err, out)
	}
	return out
}

// write puts a file into the scene.
func (s *scene) write(path, text string) {
	s.t.Helper()
	s.serial++
	from := filepath.Join(s.t.TempDir(), fmt.Sprint("file", s.serial))
	nettest.Check(s.t, os.WriteFile(from, []byte(text), 0o644))
	s.do(fmt.Sprintf("install -D -m 644 %q %q", from, path))
}

// inside makes a command that runs on a machine of the scene: server or client.
func (s *scene) inside(machine string, name string, args ...string) *exec.Cmd {
	ns := s.rig.Server
	if machine == "client" {
		ns = s.rig.Client
	}
	enter := []string{
		fmt.Sprintf("--mount=/proc/%d/ns/mnt", s.holder.Process.Pid), "--net=" + ns.Path(), "--", name,
	}
	cmd := exec.Command("nsenter", append(enter, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+s.dir+"/bin:/usr/local/sbin:/usr/local/bin:"+os.Getenv("PATH")+":/usr/sbin:/sbin", "NO_COLOR=1", "TERM=xterm", "LC_ALL=C.UTF-8")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// fresh ends what runs in the background, and all that is enforced.
func (s *scene) fresh() {
	s.t.Helper()
	for len(s.running) > 0 {
		last := s.running[len(s.running)-1]
		if err := s.interrupt(last); err != nil {
			s.t.Error(err)
		}
	}
	s.do(`for i in /sys/fs/bpf/narthex/*/; do [ ! -d "$i" ] || ` + repository + `/bin/narthex detach --instance "$(basename "$i")"; done`)
}

func (s *scene) close() {
	if s.terminals[""] != nil || len(s.running) > 0 {
		s.fresh()
	}
	for _, t := range s.terminals {
		t.close()
	}
	if err := s.killAll(); err != nil {
		s.t.Error(err)
	}
	s.release()
}

// killAll ends what the page has started and left, such as servers: all processes in the
// scene's network namespaces.
func (s *scene) killAll() error {
	var ours []os.FileInfo
	for _, ns := range []*lab.Namespace{s.rig.Server, s.rig.Client} {
		info, err := os.Stat(ns.Path())
		if err != nil {
			return err
		}
		ours = append(ours, info)
	}
	paths, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return err
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil || !os.SameFile(info, ours[0]) && !os.SameFile(info, ours[1]) {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(path, "/proc/%d/", &pid); err != nil {
			return err
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}
