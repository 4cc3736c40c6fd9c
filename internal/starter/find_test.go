// SPDX-License-Identifier: Apache-2.0

package starter

import (
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"narthex/internal/lab"
	"narthex/internal/netif"
	"narthex/test/nettest"
)

// Servers of a distribution are found with their names, and made services of.
func TestFind(t *testing.T) {
	ns := nettest.Namespace(t, "starter")
	at := netip.MustParseAddrPort
	_, err := ns.StartNginx(lab.NginxConfig{Listen: []netip.AddrPort{at("0.0.0.0:80")}, Workers: 2})
	nettest.Check(t, err)
	_, err = ns.StartNginx(lab.NginxConfig{Listen: []netip.AddrPort{at("0.0.0.0:443")}, TLS: true})
	nettest.Check(t, err)
	python, err := ns.StartPython(lab.PythonConfig{Listen: []netip.AddrPort{at("127.0.0.1:8000")}})
	nettest.Check(t, err)

	found, err := Find(ns.Name())
	nettest.Check(t, err)
	plan := Make(found)
	type seen struct{ Name, Listen, Protocol, Program string }
	var got []seen
	for _, s := range plan.Services {
		got = append(got, seen{s.Name, s.Listen[0], s.Protocol, s.Program})
	}
	want := []seen{{"nginx-80", "*:80", "http", "nginx"}, {"nginx-443", "*:443", "tls", "nginx"}, {"python3", "127.0.0.1:8000", "http", "python3"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("services (-want +got):\n%s", diff)
	}
	if n := len(plan.Services); n > 0 && plan.Services[n-1].PID != python.PID() {
		t.Errorf("python3 is said to be process %d, and is %d", plan.Services[n-1].PID, python.PID())
	}
	valid(t, plan.Text(Options{File: "policy.yaml"}), true)
}

func TestFindNowhere(t *testing.T) {
	if _, err := Find("no-such-namespace"); err == nil {
		t.Error("a namespace that is not there was looked at")
	}
}

// fakeProcess makes a folder as the kernel has it for a process.
func fakeProcess(t *testing.T, proc string, pid int, stat, exe string, sockets ...int) {
	t.Helper()
	dir := filepath.Join(proc, strconv.Itoa(pid))
	nettest.Check(t, os.MkdirAll(filepath.Join(dir, "fd"), 0o755))
	nettest.Check(t, os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o644))
	nettest.Check(t, os.Symlink(exe, filepath.Join(dir, "exe")))
	for fd, inode := range sockets {
		nettest.Check(t, os.Symlink("socket:["+strconv.Itoa(inode)+"]", filepath.Join(dir, "fd", strconv.Itoa(fd))))
	}
}

// The owner of a socket is the process that the others have it from, by the name that says most.
func TestOwners(t *testing.T) {
	proc := t.TempDir()
	fakeProcess(t, proc, 1, "1 (systemd) S 0 1", "/usr/lib/systemd/systemd", 22, 80, 99)
	fakeProcess(t, proc, 400, "400 (sshd) S 1 400", "/usr/sbin/sshd", 22)
	fakeProcess(t, proc, 30, "30 (nginx) S 500 500", "/usr/sbin/nginx", 80) // its number is lower: they begin again
	fakeProcess(t, proc, 500, "500 (nginx) S 1 500", "/usr/sbin/nginx", 80)
	fakeProcess(t, proc, 501, "501 (nginx) S 500 500", "/usr/sbin/nginx", 80)
	fakeProcess(t, proc, 600, "600 (libuv-worker) S 1 600", "/usr/bin/node (deleted)", 3000)
	fakeProcess(t, proc, 700, "700 (a) b) S 1 700", "/opt/a", 700)
	var sockets []netif.Listening
	for _, inode := range []uint32{22, 80, 99, 3000, 700, 12345} {
		sockets = append(sockets, netif.Listening{Inode: inode})
	}
	got := owners(proc, sockets)
	want := map[uint32]process{
		22: {400, 1, "sshd"}, 80: {500, 1, "nginx"}, 99: {1, 0, "systemd"}, 3000: {600, 1, "node"}, 700: {700, 1, "a) b"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(process{})); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
}
