// SPDX-License-Identifier: Apache-2.0

package netif

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// newNamespace returns a fresh network namespace without a name.
func newNamespace(t *testing.T) *Namespace {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes a network namespace")
	}
	made := make(chan netns.NsHandle)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends here
		handle, err := netns.New()
		if err != nil {
			t.Errorf("make network namespace: %v", err)
		}
		made <- handle
	}()
	handle := <-made
	if t.Failed() {
		t.FailNow()
	}
	defer handle.Close()
	ns, err := OpenNamespace(fmt.Sprintf("/proc/self/fd/%d", int(handle)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return ns
}

// in runs rtnetlink calls in the namespace.
func in(t *testing.T, ns *Namespace, steps ...func() error) {
	t.Helper()
	err := ns.Do(func() error {
		for _, step := range steps {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func addVeth(name, peer string) func() error {
	return func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: peer})
	}
}

func addMacvlan(name, lower string) func() error {
	return change(lower, func(parent netlink.Link) error {
		return netlink.LinkAdd(&netlink.Macvlan{
			LinkAttrs: netlink.LinkAttrs{Name: name, ParentIndex: parent.Attrs().Index},
			Mode:      netlink.MACVLAN_MODE_BRIDGE,
		})
	})
}

func change(name string, f func(netlink.Link) error) func() error {
	return func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return f(l)
	}
}

func up(name string) func() error { return change(name, netlink.LinkSetUp) }
func remove(name string) func() error {
	return change(name, netlink.LinkDel)
}

func address(name, cidr string) func() error {
	return change(name, func(l netlink.Link) error {
		addr, err := netlink.ParseAddr(cidr)
		if err != nil {
			return err
		}
		return netlink.AddrAdd(l, addr)
	})
}

func anyIP(cidr string) func() error {
	return change("lo", func(l netlink.Link) error {
		_, dst, err := net.ParseCIDR(cidr)
		if err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: dst, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: unix.RT_SCOPE_HOST})
	})
}

func names(targets []Target) []string {
	var out []string
	for _, target := range targets {
		out = append(out, target.Name)
	}
	return out
}

func TestWatchDeliversWhatChanges(t *testing.T) {
	ns := newNamespace(t)
	in(t, ns, up("lo"), addVeth("eth0", "peer0"), up("eth0"), address("eth0", "10.1.0.1/24"))

	w, err := Watch(ns, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	first, err := w.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	changed := make(chan Snapshot)
	go w.Run(ctx, changed)

	// until waits for a snapshot that says what it should; others may come before it.
	until := func(what string, ok func(Snapshot) bool) {
		t.Helper()
		for {
			select {
			case snap := <-changed:
				if ok(snap) {
					return
				}
			case <-ctx.Done():
				t.Fatalf("no snapshot with %s", what)
			}
		}
	}
	wants := []Want{{Service: "web"}}
	targets := func(want ...string) func(Snapshot) bool {
		return func(s Snapshot) bool { return slices.Equal(names(NewPlan(s, wants).Targets), want) }
	}
	local := func(cidr string) func(Snapshot) bool {
		return func(s Snapshot) bool { return slices.Contains(s.Locals, netip.MustParsePrefix(cidr)) }
	}

	if !targets("eth0")(first) || !local("10.1.0.1/32")(first) || !local("127.0.0.0/8")(first) {
		t.Fatalf("first snapshot: %+v", first)
	}
	in(t, ns, addVeth("eth1", "peer1"), up("eth1"), address("eth1", "fd00::1/64"))
	until("eth1", targets("eth0", "eth1"))
	in(t, ns, addMacvlan("mv1", "eth1"), up("mv1"), address("mv1", "10.5.0.1/24"))
	until("the address of the stacked device", local("10.5.0.1/32"))
	in(t, ns, anyIP("10.9.0.0/16"))
	until("the AnyIP prefix", local("10.9.0.0/16"))
	in(t, ns, anyIP("fd09::/48"))
	until("the IPv6 AnyIP prefix", local("fd09::/48"))
	in(t, ns, remove("eth0"))
	until("eth0 gone", targets("eth1", "mv1"))
}

// TestWatchTellsOfWhatIsAsBefore when something has come and gone: another one may have taken a
// snapshot in between.
func TestWatchTellsOfWhatIsAsBefore(t *testing.T) {
	ns := newNamespace(t)
	w, err := Watch(ns, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	first, err := w.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	changed := make(chan Snapshot)
	go w.Run(ctx, changed)
	in(t, ns, addVeth("eth0", "peer0"), remove("eth0"))
	for {
		select {
		case snap := <-changed:
			if snap.Equal(first) {
				return
			}
		case <-ctx.Done():
			t.Fatal("never told that all is as before")
		}
	}
}

func TestSnapshotReadsWhatLiesBelowWhat(t *testing.T) {
	ns, other := newNamespace(t), newNamespace(t)
	in(t, ns,
		addVeth("eth0", "peer0"), addMacvlan("mv0", "eth0"),
		change("peer0", func(l netlink.Link) error { return netlink.LinkSetNsFd(l, int(other.file.Fd())) }),
		addVeth("eth1", "peer1"), up("eth1"), address("eth1", "10.7.0.1/24"),
		func() error {
			return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}})
		},
		change("br0", func(bridge netlink.Link) error {
			return change("eth1", func(l netlink.Link) error { return netlink.LinkSetMaster(l, bridge) })()
		}),
	)
	snap, err := TakeSnapshot(ns)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]Link{}
	for _, l := range snap.Links {
		byName[l.Name] = l
	}
	index := func(name string) int { return byName[name].Index }
	want := []Link{
		{Name: "lo", Ethernet: true, Loopback: true},
		{Name: "eth0", Kind: "veth", Ethernet: true},
		{Name: "mv0", Kind: "macvlan", Ethernet: true, Lower: index("eth0")},
		{Name: "eth1", Kind: "veth", Ethernet: true, Up: true, HasAddress: true, Lower: index("peer1"), Master: index("br0")},
		{Name: "br0", Kind: "bridge", Ethernet: true},
	}
	for _, l := range want {
		l.Index = index(l.Name)
		l.MAC = byName[l.Name].MAC // as the kernel made it up
		if len(l.MAC) != 6 && !l.Loopback {
			t.Errorf("%s: hardware address %q", l.Name, l.MAC)
		}
		if diff := cmp.Diff(l, byName[l.Name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", l.Name, diff)
		}
	}
}

func TestToLinkOfAVLANInAnotherNamespace(t *testing.T) {
	attrs := netlink.NewLinkAttrs()
	attrs.Index, attrs.Name, attrs.EncapType, attrs.ParentIndex = 5, "eth0.10", "ether", 2
	want := Link{Index: 5, Name: "eth0.10", Kind: "vlan", Ethernet: true, Lower: 2}
	if diff := cmp.Diff(want, toLink(&netlink.Vlan{LinkAttrs: attrs}, set{})); diff != "" {
		t.Errorf("in the same namespace (-want +got):\n%s", diff)
	}
	attrs.NetNsID, want.Lower = 0, 0
	if diff := cmp.Diff(want, toLink(&netlink.Vlan{LinkAttrs: attrs}, set{})); diff != "" {
		t.Errorf("lower device elsewhere (-want +got):\n%s", diff)
	}
}

func TestLocalTablesAreTheMainOneAndThoseOfVRFs(t *testing.T) {
	got := localTables([]netlink.Link{&netlink.Veth{}, &netlink.Vrf{Table: 77}, &netlink.Vrf{Table: 1000}})
	if want := []uint32{unix.RT_TABLE_LOCAL, 77, 1000}; !slices.Equal(got, want) {
		t.Errorf("tables %v, want %v", got, want)
	}
}

func TestNamespace(t *testing.T) {
	own := &Namespace{}
	ns := newNamespace(t)
	a, err := own.Cookie()
	if err != nil {
		t.Fatal(err)
	}
	b, err := ns.Cookie()
	if err != nil {
		t.Fatal(err)
	}
	if a == b {
		t.Errorf("both namespaces have cookie %d", a)
	}
	again, err := own.Cookie()
	if err != nil || again != a {
		t.Errorf("cookie after a visit elsewhere: %d, %v; want %d", again, err, a)
	}
}

func TestOpenNamespaceRefuses(t *testing.T) {
	tests := []struct{ name, want string }{
		{"nowhere-to-be-found", "network namespace \"nowhere-to-be-found\" does not exist: create it with `ip netns add`, or name another"},
		{"/proc/self/ns/mnt", "\"/proc/self/ns/mnt\" is no network namespace: name one of `ip netns list`, or a path such as /proc/PID/ns/net"},
		{"/dev/null", "\"/dev/null\" is no network namespace: name one of `ip netns list`, or a path such as /proc/PID/ns/net"},
	}
	for _, tt := range tests {
		ns, err := OpenNamespace(tt.name)
		if err == nil {
			ns.Close()
			t.Errorf("%s: opened", tt.name)
			continue
		}
		if err.Error() != tt.want {
			t.Errorf("error\n%s\nwant\n%s", err, tt.want)
		}
	}
}

func TestMatters(t *testing.T) {
	message := func(kind uint16, routeType byte) []byte {
		m := make([]byte, unix.SizeofNlMsghdr+unix.SizeofRtMsg)
		m[0], m[4], m[5] = byte(len(m)), byte(kind), byte(kind>>8)
		m[unix.SizeofNlMsghdr+7] = routeType
		return m
	}
	unicast := message(unix.RTM_NEWROUTE, unix.RTN_UNICAST)
	tests := []struct {
		name     string
		messages []byte
		want     bool
	}{
		{"a route to elsewhere", unicast, false},
		{"a local route", message(unix.RTM_DELROUTE, unix.RTN_LOCAL), true},
		{"a local route after others", append(unicast, message(unix.RTM_NEWROUTE, unix.RTN_LOCAL)...), true},
		{"a link", message(unix.RTM_NEWLINK, 0), true},
		{"garbage", []byte{1}, false},
	}
	for _, tt := range tests {
		if got := matters(tt.messages); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
