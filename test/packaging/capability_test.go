// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

// needed are the capabilities that the units, the manifest and the documentation name.
var needed = []string{"bpf", "net_admin", "perfmon"}

// The same as in the sets of /proc/PID/status: bits 12, 38 and 39.
const neededBits = "000000c000001000"

const guarded = `
version: 1
services:
  - {name: shop, listen: "*:80", concurrency: auto}
  - {name: local, listen: "*:81", concurrency: 1, interfaces: [lo]}
`

// unprivileged returns a command that runs narthex as nobody, with these capabilities and no
// others. What root gives to it otherwise, a BPF file system and a folder for its lock, it
// finds mounted for it alone.
func unprivileged(capabilities []string, args ...string) []string {
	list := "-all"
	for _, c := range capabilities {
		list += ",+" + c
	}
	script := fmt.Sprintf(`set -e
mount -t bpf -o mode=0777 bpf /sys/fs/bpf
mkdir -p /run/narthex
mount -t tmpfs -o mode=0777 tmpfs /run/narthex
exec setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs \
  --inh-caps=%[1]s --ambient-caps=%[1]s --bounding-set=%[1]s "$@"`, list)
	return append([]string{"unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", binary}, args...)
}

// With exactly the documented capabilities, and no privilege beside, everything works.
func TestNeededCapabilitiesAreEnough(t *testing.T) {
	t.Parallel()
	rig := nettest.Lab(t, 1)
	dir := open(t)
	policy := write(t, filepath.Join(dir, "policy.yaml"), guarded)
	socket := filepath.Join(dir, "control.sock")
	d := start(t, rig.Server, socket, unprivileged(needed, "run", "--policy", policy, "--socket", socket)...)

	want := []string{"CAP_NET_ADMIN", "CAP_PERFMON", "CAP_BPF"}
	if diff := cmp.Diff(want, d.status().Capabilities); diff != "" {
		t.Errorf("capabilities in the status (-want +got):\n%s", diff)
	}
	onAllThreads(t, d.status().PID, map[string]string{
		"CapPrm": neededBits, "CapEff": neededBits, "CapBnd": neededBits, "CapInh": none, "CapAmb": none, "NoNewPrivs": "1",
	})
	if got := setting(t, rig.Server, "route_localnet"); got != "1" {
		t.Errorf("route_localnet of lo is %s", got)
	}

	// More rules than the maps have room for: programs are loaded anew.
	var rules strings.Builder
	for i := range 1500 {
		fmt.Fprintf(&rules, "  - {name: r%d, from: 198.18.%d.%d, rate: 1/s}\n", i, i/250, i%250)
	}
	write(t, policy, guarded+"connections:\n"+rules.String())
	output(t, binary, "reload", "--socket", socket)
	if got := len(d.status().Rules); got != 1500 {
		t.Errorf("%d rules after the reload", got)
	}
	output(t, binary, "set", "services.local.concurrency", "3", "--socket", socket)

	more := nettest.Namespace(t, "more")
	second := netip.MustParsePrefix("10.78.0.1/24")
	nettest.Check(t, lab.Connect(lab.End{NS: rig.Server, Dev: "eth1", Addrs: []netip.Prefix{second}}, lab.End{NS: more, Dev: "eth0"}))
	eventually(t, "the new interface is policed", func() bool { return slices.Equal(d.interfaces(), []string{"eth0", "eth1"}) })
	nettest.Check(t, rig.Server.Delete("eth1"))
	eventually(t, "the interface that is gone is not", func() bool { return slices.Equal(d.interfaces(), []string{"eth0"}) })
	nettest.Check(t, rig.Server.AddAddr("eth0", second))
	eventually(t, "the new address is the service's", func() bool {
		return strings.Contains(output(t, binary, "explain", "--from", rig.ClientsV4[0].String(), "--to", "10.78.0.1:80", "--json", "--socket", socket), `"service": "shop"`)
	})
	listens := func() bool { return d.status().Services[0].Listening }
	server := nettest.Nginx(t, rig.Server, netip.AddrPortFrom(rig.ServerV4, 80))
	eventually(t, "the server's start is seen", listens)
	nettest.Check(t, server.Close())
	eventually(t, "the server's end is seen", func() bool { return !listens() })
	nettest.Nginx(t, rig.Server, netip.AddrPortFrom(rig.ServerV4, 80))
	eventually(t, "the next server is seen", listens)

	output(t, binary, "detach", "--socket", socket, "--instance", "default")
	if code := d.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if got := setting(t, rig.Server, "route_localnet"); got != "0" {
		t.Errorf("route_localnet of lo is %s at the end", got)
	}
	attached, err := rig.Server.Command("ip", "-details", "link", "show", lab.Dev).Output()
	nettest.Check(t, err)
	if strings.Contains(string(attached), "xdp") {
		t.Errorf("XDP is attached at the end: %s", attached)
	}
}

// Without any of them the daemon says which one is missing.
func TestEachNeededCapabilityIsNeeded(t *testing.T) {
	t.Parallel()
	rig := nettest.Lab(t, 1)
	dir := open(t)
	policy := write(t, filepath.Join(dir, "policy.yaml"), guarded)
	for i, missing := range needed {
		rest := slices.Delete(slices.Clone(needed), i, i+1)
		command := unprivileged(rest, "run", "--policy", policy, "--socket", filepath.Join(dir, "control.sock"))
		refuses(t, rig.Server.Command(command[0], command[1:]...), "CAP_"+strings.ToUpper(missing)+" is missing")
	}
	command := unprivileged(needed, "run", "--policy", policy, "--socket", filepath.Join(dir, "control.sock"), "--netns", rig.Client.Name())
	refuses(t, rig.Server.Command(command[0], command[1:]...), "CAP_SYS_ADMIN")
}

// refuses expects a daemon to end with one sentence.
func refuses(t *testing.T, cmd *lab.Cmd, says string) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err == nil || cmd.ProcessState.ExitCode() != 1 || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), says) {
		t.Errorf("it ended with %v and said %q, want one line with %q", err, out, says)
	}
}

const none = "0000000000000000"

// onAllThreads compares fields of the status of each thread of a process.
func onAllThreads(t *testing.T, pid int, want map[string]string) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	nettest.Check(t, err)
	if len(files) < 2 {
		t.Errorf("%d threads", len(files))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			continue // the thread has ended
		}
		nettest.Check(t, err)
		got := map[string]string{}
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(line, ":")
			if _, asked := want[name]; asked {
				got[name] = strings.TrimSpace(value)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}

// setting reads a setting of lo in a namespace.
func setting(t *testing.T, ns *lab.Namespace, name string) (value string) {
	t.Helper()
	nettest.Check(t, ns.Do(func() error {
		text, err := os.ReadFile("/proc/sys/net/ipv4/conf/lo/" + name)
		value = strings.TrimSpace(string(text))
		return err
	}))
	return value
}

// Root's daemon gives up all that it can do without.
func TestRootGivesUpCapabilities(t *testing.T) {
	t.Parallel()
	rig := nettest.Lab(t, 1)
	dir := open(t)
	policy := write(t, filepath.Join(dir, "policy.yaml"), guarded)
	socket := filepath.Join(dir, "control.sock")
	instance := fmt.Sprintf("packaging-%d", os.Getpid())
	home := nettest.Namespace(t, "home")
	d := start(t, home, socket, binary, "run", "--policy", policy, "--socket", socket, "--instance", instance, "--netns", rig.Server.Name())
	t.Cleanup(func() { _ = exec.Command(binary, "detach", "--instance", instance).Run() })
	// With CAP_DAC_READ_SEARCH and CAP_SYS_PTRACE, bits 2 and 19.
	const kept = "000000c000081004"
	onAllThreads(t, d.status().PID, map[string]string{
		"CapPrm": kept, "CapEff": kept, "CapBnd": kept, "CapInh": none, "CapAmb": none, "NoNewPrivs": "1",
	})
	// It stays in the namespace that it may not enter any more.
	output(t, binary, "reload", "--socket", socket)
	second := netip.MustParsePrefix("10.78.0.1/24")
	nettest.Check(t, lab.Connect(lab.End{NS: rig.Server, Dev: "eth1", Addrs: []netip.Prefix{second}}, lab.End{NS: rig.Client, Dev: "eth1"}))
	eventually(t, "the new interface is policed", func() bool { return slices.Equal(d.interfaces(), []string{"eth0", "eth1"}) })
	output(t, binary, "detach", "--socket", socket, "--instance", instance)
	if code := d.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if got := setting(t, rig.Server, "route_localnet"); got != "0" {
		t.Errorf("route_localnet of lo is %s at the end", got)
	}
}
