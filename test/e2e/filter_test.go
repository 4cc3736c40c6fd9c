// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"narthex/internal/datapath"
	"narthex/internal/lab"
	"narthex/test/nettest"
)

// Without tcx programs are attached by filters, as on kernels before 6.6.
const withoutTCX = "--without=tcx"

// filtered is a policy with everything that is attached by filters: SYN policing, and the gate.
const filtered = `
version: 1
services: [{name: web, listen: ["*:80"], concurrency: 4, xdp: off}]
connections: [{name: everyone, rate: 1000/s, burst: 1000, per: source}]
requests: [{name: never, path: "/never*", action: reject}]
`

// filters returns the names of the filters at both sides of the server's interface, each without its folder.
func filters(t *testing.T, ns *lab.Namespace) (names []string) {
	t.Helper()
	nettest.Check(t, ns.Do(func() error {
		l, err := netlink.LinkByName(lab.Dev)
		if err != nil {
			return err
		}
		for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
			all, err := netlink.FilterList(l, parent)
			if err != nil {
				return err
			}
			for _, f := range all {
				if b, ok := f.(*netlink.BpfFilter); ok {
					kind, _, _ := strings.Cut(filepath.Base(b.Name), "_")
					names = append(names, kind)
				}
			}
		}
		return nil
	}))
	return names
}

// hasQdisc reports whether the server's interface has a qdisc for filters.
func hasQdisc(t *testing.T, ns *lab.Namespace) (has bool) {
	t.Helper()
	nettest.Check(t, ns.Do(func() error {
		l, err := netlink.LinkByName(lab.Dev)
		if err != nil {
			return err
		}
		all, err := netlink.QdiscList(l)
		for _, q := range all {
			has = has || q.Type() == "clsact"
		}
		return err
	}))
	return has
}

// statusOf asks the server for a path, and returns the status of the answer.
func statusOf(t *testing.T, rig *lab.Lab, path string) (status int) {
	t.Helper()
	nettest.Check(t, rig.Client.Do(func() error {
		conn, err := dial(netip.Addr{}, netip.AddrPortFrom(rig.ServerV4, 80), patience)
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n", path)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return err
		}
		status = resp.StatusCode
		return resp.Body.Close()
	}))
	return status
}

// wantFilters compares the filters, in their order.
func wantFilters(t *testing.T, ns *lab.Namespace, want ...string) {
	t.Helper()
	if got := filters(t, ns); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("filters %v, want %v", got, want)
	}
}

// With filters in place of links, all goes on as ever: through the death of the daemon, its next start,
// reloads, and to the end.
func TestFilters(t *testing.T) {
	t.Parallel()
	rig := nettest.Lab(t, 1)
	nettest.Nginx(t, rig.Server, netip.AddrPortFrom(rig.ServerV4, 80))
	in := start(t, rig.Server, filtered, withoutTCX)
	if got := in.modes()[lab.Dev]; got != datapath.ModeTC {
		t.Errorf("the interface is attached as %q", got)
	}
	ours := []string{"tc", "gatein", "gateout"}
	wantFilters(t, rig.Server, ours...)
	wantAnswers := func() {
		t.Helper()
		for path, want := range map[string]int{"/": 200, "/never/more": 503} {
			if got := statusOf(t, rig, path); got != want {
				t.Errorf("%s: status %d, want %d", path, got, want)
			}
		}
	}
	wantAnswers()
	before := in.programs()
	in.stop(syscall.SIGKILL)
	wantFilters(t, rig.Server, ours...)
	wantAnswers()

	in.start()
	wantFilters(t, rig.Server, ours...)
	for _, old := range before { // the kernel frees a program when no CPU can be in it any more
		eventually(t, fmt.Sprintf("program %d of the old daemon is gone", old), func() bool {
			p, err := ebpf.NewProgramFromID(old)
			if err == nil {
				p.Close()
			}
			return err != nil
		})
	}
	wantAnswers()
	if !in.lacks(datapath.FeatureTCX) {
		t.Error("tcx is not said to be missing")
	}
	in.reload(strings.Replace(filtered, ", concurrency: 4", "", 1))
	wantAnswers()
	in.reload(strings.Replace(filtered, "xdp: off", "xdp: auto", 1))
	wantAnswers()
	in.stop(syscall.SIGTERM)
	if hasQdisc(t, rig.Server) {
		t.Error("the qdisc is left")
	}
}

// What others have in the qdisc stays, and with it the qdisc.
func TestFiltersBesideOthers(t *testing.T) {
	t.Parallel()
	rig := nettest.Lab(t, 1)
	nettest.Check(t, rig.Server.Do(func() error {
		l, err := netlink.LinkByName(lab.Dev)
		if err != nil {
			return err
		}
		attrs := netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}
		return netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: attrs})
	}))
	in := start(t, rig.Server, filtered, withoutTCX)
	wantFilters(t, rig.Server, "tc", "gatein", "gateout")
	in.stop(syscall.SIGTERM)
	wantFilters(t, rig.Server)
	if !hasQdisc(t, rig.Server) {
		t.Error("the qdisc of others is gone")
	}
}

// After a crash `detach` finds filters in the namespace that they are in, from any other.
func TestFiltersDetached(t *testing.T) {
	t.Parallel()
	rig := nettest.Lab(t, 1)
	in := start(t, rig.Server, filtered, withoutTCX)
	in.stop(syscall.SIGKILL)
	must(t, "detach", "--instance", in.name)
	wantFilters(t, rig.Server)
	if hasQdisc(t, rig.Server) {
		t.Error("the qdisc is left")
	}
	if _, err := os.Stat(filepath.Join(datapath.Root, in.name)); !os.IsNotExist(err) {
		t.Errorf("the pins are left: %v", err)
	}
}

// What a kernel lacks is said, and the rest is enforced.
func TestWithoutFeatures(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		without string
		mode    datapath.Mode
		gate    bool
	}{
		{"xdp", datapath.ModeTCX, true},
		{"xdp,tcx", datapath.ModeTC, true},
		{"tc", datapath.ModeNative, true},
		{"cgroup", datapath.ModeNative, true},
		{"casts,memory-keys", datapath.ModeNative, true},
		{"gate", datapath.ModeNative, false},
		{"gate,xdp,tcx", datapath.ModeTC, false},
	} {
		t.Run(c.without, func(t *testing.T) {
			rig := nettest.Lab(t, 1)
			nettest.Nginx(t, rig.Server, netip.AddrPortFrom(rig.ServerV4, 80))
			policy := strings.Replace(strings.Replace(filtered, "xdp: off", "xdp: auto", 1), "burst: 1000", "burst: 2", 1)
			policy = strings.Replace(strings.Replace(policy, "1000/s", "1/m", 1), ", per: source", "", 1)
			in := start(t, rig.Server, policy, "--without="+c.without)
			want := c.mode
			if want == datapath.ModeTCX {
				want = in.traffic()
			}
			if got := in.modes()[lab.Dev]; got != want {
				t.Errorf("the interface is attached as %q, want %q", got, want)
			}
			answer := 404
			if c.gate {
				answer = 503
			}
			if got := statusOf(t, rig, "/never"); got != answer {
				t.Errorf("status %d, want %d", got, answer)
			}
			sendSYNs(t, rig, nettest.Sender(t, rig.Client, lab.Dev), netip.AddrPortFrom(rig.ServerV4, 80), 10)
			in.counted("everyone", datapath.Counts{Passed: 2, Dropped: 9})
			for f := range strings.SplitSeq(c.without, ",") {
				if !in.lacks(datapath.Feature(f)) {
					t.Errorf("%q is not said to be missing", f)
				}
			}
			text := must(t, in.command("status")...)
			if said := strings.Contains(text, "are not enforced"); said == c.gate {
				t.Errorf("what is enforced is not said right:\n%s", text)
			}
		})
	}
}
