// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"narthex/internal/datapath"
	"narthex/internal/lab"
	"narthex/test/nettest"
)

const plainPolicy = `
version: 1
services: [{name: shop, listen: ["*:80"]}]
connections: [{name: everyone, rate: 100/s}]
`

// Whatever is wrong at start: one sentence, the right exit code, nothing attached.
func TestRefusals(t *testing.T) {
	t.Parallel()
	rig := nettest.Lab(t, 1)
	if out, err := rig.Server.Command("ip", "tuntap", "add", "dev", "tun0", "mode", "tun").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	with := func(old, new string) string { return strings.ReplaceAll(plainPolicy, old, new) }
	taken := filepath.Join(t.TempDir(), "taken.sock")
	listener, err := net.Listen("unix", taken)
	nettest.Check(t, err)
	defer listener.Close()
	for _, c := range []struct {
		name, policy string
		args         []string
		code         int
		says         string
	}{
		{"bad value", with("100/s", "100"), nil, 2, "policy.yaml:4:"},
		{"unknown key", with("listen:", "listn:"), nil, 2, `did you mean "listen"`},
		{"no such interface", with("listen:", "interfaces: [nosuch0], listen:"), nil, 1, `interface "nosuch0" does not exist`},
		{"no Ethernet header", with("listen:", "interfaces: [tun0], listen:"), nil, 1, `"tun0"`},
		{"a request rule that does nothing", plainPolicy + "requests: [{name: r, path: /x}]\n", nil, 2, "policy.yaml:5:"},
		{"native XDP where there is none", with("listen:", "interfaces: [lo], xdp: native, listen:"), nil, 1, "lo"},
		{"socket in use", plainPolicy, []string{"--socket", taken}, 1, taken},
		{"impossible metrics address", plainPolicy, []string{"--metrics", "127.0.0.1:99999"}, 1, "99999"},
		{"no such namespace", plainPolicy, []string{"--netns", "nosuch"}, 1, "nosuch"},
		{"bad instance name", plainPolicy, []string{"--instance", "a/b"}, 2, "a/b"},
		{"unknown flag", plainPolicy, []string{"--polcy", "x"}, 2, "polcy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := newInstance(t, rig.Server, c.policy)
			refused(t, in, exec.Command(binary, append(in.args, c.args...)...), c.code, c.says)
		})
	}
	t.Run("missing file", func(t *testing.T) {
		in := newInstance(t, rig.Server, plainPolicy)
		nettest.Check(t, os.Remove(in.file))
		refused(t, in, exec.Command(binary, in.args...), 1, in.file)
	})
	t.Run("no privilege", func(t *testing.T) {
		in := newInstance(t, rig.Server, plainPolicy)
		cmd := exec.Command(binary, "run", "--policy", world(t, in.file), "--instance", in.name)
		cmd.Path = world(t, binary)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		refused(t, in, cmd, 1, "root")
	})
}

// refused expects a command to end with one sentence and leave nothing.
func refused(t *testing.T, in *instance, cmd *exec.Cmd, code int, says string) {
	t.Helper()
	r := finish(t, cmd)
	if r.code != code {
		t.Errorf("exit code %d, want %d", r.code, code)
	}
	if strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, says) {
		t.Errorf("stderr %q, want one line with %q", r.stderr, says)
	}
	if found, _, err := datapath.Pinned("", in.name); found || err != nil {
		t.Errorf("something is pinned (%v)", err)
	}
}

// world copies a file to where everybody can read and run it.
func world(t *testing.T, path string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "narthex-e2e-world-")
	nettest.Check(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	nettest.Check(t, os.Chmod(dir, 0o755))
	copied := filepath.Join(dir, filepath.Base(path))
	// By another process: were this one to write it, what other tests start meanwhile would have it open,
	// too, and until that is gone the kernel executes no file that is open for writing.
	nettest.Check(t, exec.Command("cp", path, copied).Run())
	nettest.Check(t, os.Chmod(copied, 0o755))
	return copied
}

func TestCheckNeedsNothing(t *testing.T) {
	t.Parallel()
	file := policyFile(t, plainPolicy)
	cmd := exec.Command(world(t, binary), "check", world(t, file))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if r := finish(t, cmd); r.code != 0 || r.stderr != "" || !strings.Contains(r.stdout, "everyone") {
		t.Errorf("exit code %d, stdout %q, stderr %q", r.code, r.stdout, r.stderr)
	}
}

// A policy with every part of the language, and the files that it names, is without error.
func TestCheckTakesTheWholeLanguage(t *testing.T) {
	t.Parallel()
	r := narthex(t, "check", "../../internal/policy/testdata/whole/policy.yaml")
	if r.code != 0 || !strings.Contains(r.stdout, "first who was answered within 10m") {
		t.Errorf("exit code %d, stdout %q, stderr %q", r.code, r.stdout, r.stderr)
	}
}

// The control socket is for root and for the daemon's own user.
func TestSocketIsPrivate(t *testing.T) {
	t.Parallel()
	rig := nettest.Lab(t, 1)
	socket := filepath.Join(t.TempDir(), "control.sock")
	in := newInstance(t, rig.Server, plainPolicy, "--socket", socket)
	in.socket = socket
	in.start()
	info, err := os.Stat(socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	// Even where a mode would let others in, credentials do not.
	nettest.Check(t, os.Chmod(socket, 0o666))
	for dir := filepath.Dir(socket); strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		nettest.Check(t, os.Chmod(dir, 0o755))
	}
	cmd := exec.Command(world(t, binary), "status", "--socket", socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if r := finish(t, cmd); r.code != 1 || r.stdout != "" {
		t.Errorf("another user's status: exit code %d, %q", r.code, r.stdout)
	}
	if s := in.status(); !s.Enforcing {
		t.Error("root's status says that nothing is enforced")
	}
}

// Metrics listen where the command was started, not in the namespace that it protects.
func TestMetrics(t *testing.T) {
	t.Parallel()
	rig := nettest.Lab(t, 1)
	const addr = "127.0.0.1:19417"
	start(t, rig.Server, plainPolicy, "--metrics", addr)
	raw := nettest.Sender(t, rig.Client, lab.Dev)
	sendSYNs(t, rig, raw, netip.AddrPortFrom(rig.ServerV4, 80), 10)
	want := `rule="everyone"`
	eventually(t, "the metrics have the rule's SYNs", func() bool {
		out, err := exec.Command("curl", "-sf", "http://"+addr+"/metrics").Output()
		return err == nil && strings.Contains(string(out), want)
	})
}
