// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"narthex/internal/datapath"
	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/internal/load"
	"narthex/test/nettest"
)

// perSource has no token come during a test: what passes is the burst.
const perSource = `
version: 1
services: [{name: shop, listen: ["*:80"]}]
connections:
  - {name: made-up, from: [198.18.0.0/15], rate: 1/m, burst: 20}
  - {name: others, rate: 1/m, burst: %d, per: source}
`

// tries opens connections from one source, each with one SYN, for the kernel sends the next after
// a second, and returns how many came through.
func tries(t *testing.T, rig *lab.Lab, n int) (connected int) {
	t.Helper()
	to := netip.AddrPortFrom(rig.ServerV4, 80)
	for range n {
		if _, err := get(rig.Client, to, "/", rig.ClientsV4[0], 800*time.Millisecond); err == nil {
			connected++
		}
	}
	return connected
}

func TestKilledDaemonIsAdopted(t *testing.T) {
	t.Parallel()
	rig := nettest.Lab(t, 1)
	nettest.Nginx(t, rig.Server, netip.AddrPortFrom(rig.ServerV4, 80))
	in := start(t, rig.Server, fmt.Sprintf(perSource, 10))
	raw := nettest.Sender(t, rig.Client, lab.Dev)
	sendSYNs(t, rig, raw, netip.AddrPortFrom(rig.ServerV4, 80), 100)
	in.counted("made-up", datapath.Counts{Passed: 20, Dropped: 80})
	if got := tries(t, rig, 4); got != 4 {
		t.Fatalf("%d of the first 4 connected", got)
	}
	must(t, "set", "connections.made-up.rate", "2/m", "--instance", in.name)

	if code := in.stop(syscall.SIGKILL); code != -1 {
		t.Fatalf("exit code %d", code)
	}
	r := narthex(t, "status", "--instance", in.name)
	if r.code != 0 || !strings.Contains(r.stdout, "without a daemon") {
		t.Errorf("status without a daemon: exit code %d, %q", r.code, r.stdout)
	}
	if got := tries(t, rig, 4); got != 4 {
		t.Errorf("%d of the next 4 connected without a daemon", got)
	}

	in.start()
	s := in.status()
	if !s.Adopted || len(s.Overrides) != 1 {
		t.Errorf("adopted: %v, overrides: %v", s.Adopted, s.Overrides)
	}
	if got := tries(t, rig, 5); got != 2 {
		t.Errorf("%d connected with the two tokens left", got)
	}
	// A client whose SYN is dropped may send it again before it gives up.
	if got := in.rule("others"); got.Passed != 10 || got.Dropped < 3 {
		t.Errorf("rule \"others\" counted %+v, want 10 passed and at least 3 dropped", got)
	}
}

// While one daemon is killed and the next one adopts, again and again, no SYN passes that
// must not.
func TestNoGapWhileDaemonsComeAndGo(t *testing.T) {
	t.Parallel()
	rig := nettest.Lab(t, 1)
	in := start(t, rig.Server, fmt.Sprintf(blockMadeUp, "auto"))
	nettest.Nginx(t, rig.Server, netip.AddrPortFrom(rig.ServerV4, 80))
	stop, sent := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { sent <- n }()
		raw, err := rig.Client.OpenSender(lab.Dev)
		if err != nil {
			return
		}
		defer raw.Close()
		for {
			select {
			case <-stop:
				return
			default:
			}
			sendSYNs(t, rig, raw, netip.AddrPortFrom(rig.ServerV4, 80), 100)
			n += 100
			time.Sleep(5 * time.Millisecond)
		}
	}()
	for range 5 {
		in.stop(syscall.SIGKILL)
		in.start()
		in.reload(fmt.Sprintf(blockMadeUp, "auto"))
	}
	close(stop)
	in.counted("made-up", datapath.Counts{Dropped: uint64(<-sent)})
}

// An upgrade whose maps are laid out in another way says what is reset and enforces on.
func TestOtherLayoutIsReplaced(t *testing.T) {
	t.Parallel()
	rig := nettest.Lab(t, 1)
	in := start(t, rig.Server, fmt.Sprintf(blockMadeUp, "auto"))
	raw := nettest.Sender(t, rig.Client, lab.Dev)
	to := netip.AddrPortFrom(rig.ServerV4, 80)
	sendSYNs(t, rig, raw, to, 30)
	in.counted("made-up", datapath.Counts{Dropped: 30})
	in.stop(syscall.SIGKILL)

	// What an older version might have pinned.
	path := filepath.Join(datapath.Root, in.name, "maps", "source_sets")
	nettest.Check(t, os.Remove(path))
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 40, MaxEntries: 64})
	nettest.Check(t, err)
	nettest.Check(t, m.Pin(path))
	m.Close()

	in.start()
	if s := in.status(); len(s.Notes) != 1 || !strings.Contains(s.Notes[0], "source_sets") {
		t.Errorf("notes %q, want one about source_sets", s.Notes)
	}
	sendSYNs(t, rig, raw, to, 30)
	in.counted("made-up", datapath.Counts{Dropped: 60})
	if got, err := get(rig.Client, to, "/", netip.Addr{}, 200*time.Millisecond); err == nil {
		t.Errorf("an answer without a server: %q", got)
	}
}

// Reloads lose no connection, change nothing for rules that stay and leave no descriptor.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	rig := nettest.Lab(t, 2)
	to := netip.AddrPortFrom(rig.ServerV4, 80)
	nettest.Nginx(t, rig.Server, to)
	rules := func(n int) string {
		var b strings.Builder
		b.WriteString("version: 1\nservices: [{name: shop, listen: [\"*:80\"]}]\nconnections:\n")
		for i := range n {
			fmt.Fprintf(&b, "  - {name: r%d, from: [10.%d.%d.0/24], action: drop}\n", i, 100+i/256, i%256)
		}
		b.WriteString("  - {name: everyone, rate: 1000000/s, burst: 1000000}\n")
		return b.String()
	}
	in := start(t, rig.Server, rules(10))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	run, err := load.Closed{Client: load.Client{NS: rig.Client, Target: to, Path: lab.NginxFile, Duration: time.Minute}, Clients: 8}.Start(ctx)
	nettest.Check(t, err)
	in.reload(rules(20))
	before := descriptors(t, in.cmd.Process.Pid)
	for i := range 25 {
		in.reload(rules(10 + 100*(i%2)))
	}
	in.reload(rules(3000)) // more than the instance has room for
	in.reload(rules(20))
	// The daemon may have one open for a moment at any time.
	eventually(t, "no descriptor is left of the reloads", func() bool { return descriptors(t, in.cmd.Process.Pid) <= before })
	cancel()
	report, err := run.Wait()
	nettest.Check(t, err)
	lost := report.Begun - report.Outcomes[load.OK] - report.Outcomes[load.Unfinished]
	if report.Outcomes[load.OK] == 0 || lost != 0 {
		t.Errorf("lost %d of %d connections: %v", lost, report.Begun, report.Outcomes)
	}
	in.counted("everyone", datapath.Counts{Passed: in.rule("everyone").Passed})
	if got := in.rule("everyone").Passed; got < report.Outcomes[load.OK] {
		t.Errorf("%d SYNs counted over the reloads for %d connections", got, report.Outcomes[load.OK])
	}
}

// descriptors counts the open descriptors of a process.
func descriptors(t *testing.T, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	nettest.Check(t, err)
	return len(entries)
}

func TestBadReloadKeepsTheOldPolicy(t *testing.T) {
	t.Parallel()
	rig := nettest.Lab(t, 1)
	in := start(t, rig.Server, fmt.Sprintf(blockMadeUp, "auto"))
	hash := in.status().Policy.Hash
	for _, bad := range []string{
		"version: 2\n", "services: [", fmt.Sprintf(blockMadeUp, "sometimes"),
		strings.ReplaceAll(fmt.Sprintf(blockMadeUp, "auto"), "listen:", "interfaces: [nosuch0], listen:"),
		fmt.Sprintf(blockMadeUp, "auto") + "requests: [{name: r, path: /x}]\n",
	} {
		in.write(bad)
		if r := narthex(t, "reload", "--instance", in.name); r.code == 0 || r.stderr == "" {
			t.Errorf("reload of %q: exit code %d, %q", bad, r.code, r.stderr)
		}
		if got := in.status().Policy.Hash; got != hash {
			t.Errorf("after %q the policy in force is %s, want %s", bad, got, hash)
		}
	}
	raw := nettest.Sender(t, rig.Client, lab.Dev)
	sendSYNs(t, rig, raw, netip.AddrPortFrom(rig.ServerV4, 80), 20)
	in.counted("made-up", datapath.Counts{Dropped: 20})
}

func TestKeepAndDetach(t *testing.T) {
	t.Parallel()
	rig := nettest.Lab(t, 1)
	nettest.Nginx(t, rig.Server, netip.AddrPortFrom(rig.ServerV4, 80))
	in := start(t, rig.Server, fmt.Sprintf(perSource, 3), "--keep")
	if code := in.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if got := tries(t, rig, 6); got != 3 {
		t.Errorf("%d of 6 connected after a stop with --keep, want 3", got)
	}
	must(t, "detach", "--instance", in.name)
	if got := tries(t, rig, 6); got != 6 {
		t.Errorf("%d of 6 connected after detach", got)
	}
	if r := narthex(t, "status", "--instance", in.name); r.code != 1 {
		t.Errorf("status after detach: exit code %d", r.code)
	}
}

func TestStopDetaches(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		rig := nettest.Lab(t, 1)
		nettest.Nginx(t, rig.Server, netip.AddrPortFrom(rig.ServerV4, 80))
		in := start(t, rig.Server, fmt.Sprintf(perSource, 1))
		had := in.programs()
		if got := tries(t, rig, 3); got != 1 {
			t.Errorf("%d of 3 connected, want 1", got)
		}
		if code := in.stop(s); code != 0 {
			t.Errorf("%v: exit code %d", s, code)
		}
		in.nothingLeft(had)
		if got := tries(t, rig, 3); got != 3 {
			t.Errorf("%d of 3 connected after %v", got, s)
		}
	}
}

// Two instances on one interface: the second finds XDP taken and uses tcx.
func TestTwoInstances(t *testing.T) {
	t.Parallel()
	rig := nettest.Lab(t, 1)
	first := start(t, rig.Server, `
version: 1
services: [{name: web, listen: ["*:80"]}]
connections: [{name: all, action: drop}]
`)
	second := start(t, rig.Server, `
version: 1
services: [{name: alt, listen: ["*:81"]}]
connections: [{name: all, action: drop}]
`)
	if got := first.modes()[lab.Dev]; got != datapath.ModeNative {
		t.Errorf("the first is attached as %q", got)
	}
	s := second.status().Services[0]
	if len(s.Interfaces) != 1 || s.Interfaces[0].Mode != second.traffic() || s.Interfaces[0].Reason == "" {
		t.Errorf("the second is attached as %+v", s.Interfaces)
	}
	raw := nettest.Sender(t, rig.Client, lab.Dev)
	sendSYNs(t, rig, raw, netip.AddrPortFrom(rig.ServerV4, 80), 10)
	sendSYNs(t, rig, raw, netip.AddrPortFrom(rig.ServerV4, 81), 7)
	first.counted("all", datapath.Counts{Dropped: 10})
	second.counted("all", datapath.Counts{Dropped: 7})

	r := finish(t, exec.Command(binary, first.args...))
	if r.code != 1 || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "busy") {
		t.Errorf("a second daemon of one instance: exit code %d, %q", r.code, r.stderr)
	}
}

func TestInterfacesComeAndGo(t *testing.T) {
	t.Parallel()
	rig := nettest.Lab(t, 1)
	in := start(t, rig.Server, decideOnce)
	end := func(ns *lab.Namespace, dev, addr string) lab.End {
		return lab.End{NS: ns, Dev: dev, Addrs: []netip.Prefix{netip.MustParsePrefix(addr)}}
	}
	for range 3 {
		nettest.Check(t, lab.Connect(end(rig.Server, "eth1", "10.79.0.1/24"), end(rig.Client, "eth1", "10.79.0.2/24")))
		eventually(t, "eth1 is policed", func() bool { return in.modes()["eth1"] == datapath.ModeNative })
		before := in.rule("everyone").Passed
		// The kernel refuses a connection to the new address: nobody listens. The SYN counts.
		if _, err := get(rig.Client, netip.MustParseAddrPort("10.79.0.1:80"), "/", netip.Addr{}, patience); err == nil {
			t.Error("an answer without a server")
		}
		in.counted("everyone", datapath.Counts{Passed: before + 1})
		nettest.Check(t, rig.Server.Delete("eth1"))
		eventually(t, "eth1 is let go", func() bool { _, ok := in.modes()["eth1"]; return !ok })
	}
	links, err := os.ReadDir(filepath.Join(datapath.Root, in.name, "links"))
	nettest.Check(t, err)
	var pins []string
	for _, l := range links {
		kind, _, _ := strings.Cut(l.Name(), "_") // from the interface's index
		pins = append(pins, kind)
	}
	// Those of eth0, and the two that every waiting room needs.
	if diff := cmp.Diff([]string{"gatein", "gateout", "native", "sockops", "sockrelease"}, pins); diff != "" {
		t.Errorf("links pinned (-want +have):\n%s", diff)
	}
}

// A link that goes down for a moment takes the machine's IPv6 addresses with it. Who connects as soon as it is
// back is followed like any other.
func TestLinkGoesDownForAMoment(t *testing.T) {
	t.Parallel()
	s := newScene(t, plain, true)
	for _, ns := range []*lab.Namespace{s.rig.Server, s.rig.Client} { // they come back with it
		nettest.Check(t, ns.Sysctl("ipv6/conf/"+lab.Dev+"/keep_addr_on_down", "1"))
		nettest.Check(t, ns.Sysctl("ipv6/conf/"+lab.Dev+"/accept_dad", "0"))
	}
	s.origin(origin.Config{})
	r := s.enforce(roomPolicy{service: "concurrency: 2"})
	ask := func() {
		v := s.visit(bronze)
		v.get("/")
		v.wants(200)
	}
	ask()
	for range 3 {
		before := r.class(bronze).Arrived
		nettest.Check(t, s.rig.Server.SetDown(lab.Dev))
		time.Sleep(400 * time.Millisecond) // the daemon has heard of it
		nettest.Check(t, s.rig.Server.SetUp(lab.Dev))
		ask()
		if got := r.class(bronze).Arrived - before; got != 1 {
			t.Errorf("%d requests were seen after the link went down and came back, want 1", got)
		}
	}
}
