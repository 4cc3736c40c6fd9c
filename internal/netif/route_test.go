// SPDX-License-Identifier: Apache-2.0

package netif

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestRouteTo(t *testing.T) {
	ns := newNamespace(t)
	in(t, ns, up("lo"), addVeth("a", "b"), up("a"), up("b"), address("a", "192.0.2.1/24"), change("a", func(l netlink.Link) error {
		addr, err := netlink.ParseAddr("2001:db8::1/64")
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD // at once
		return netlink.AddrAdd(l, addr)
	}))
	var snap Snapshot
	eventually(t, func() bool { // the kernel adds what leads to an IPv6 address a little later
		var err error
		if snap, err = TakeSnapshot(ns); err != nil {
			t.Fatal(err)
		}
		return slices.Contains(snap.Locals, netip.MustParsePrefix("2001:db8::1/128"))
	}, "2001:db8::1 is local")
	tests := []struct {
		to, want string // an interface
		err      error
	}{
		{to: "192.0.2.7", want: "a"},
		{to: "192.0.2.1", want: "lo"},
		{to: "127.0.0.9", want: "lo"},
		{to: "2001:db8::7", want: "a"},
		{to: "2001:db8::1", want: "lo"},
		{to: "::ffff:192.0.2.7", want: "a"},
		{to: "198.51.100.1", err: ErrNoRoute},
		{to: "2001:db8:1::1", err: ErrNoRoute},
		{to: "192.0.2.255", err: ErrNotUnicast},
	}
	for _, tt := range tests {
		index, err := RouteTo(ns, netip.MustParseAddr(tt.to))
		if l, _ := snap.Link(index); l.Name != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s: %q, %v; want %q, %v", tt.to, l.Name, err, tt.want, tt.err)
		}
	}
}

func TestThrough(t *testing.T) {
	snap := Snapshot{Links: []Link{
		lo, ether(2, "eth0", port(4)), ether(3, "eth1", port(4)), ether(4, "br0", kind("bridge")), ether(5, "br0.7", vlan(4)),
	}}
	for index, want := range map[int][]int{1: {1}, 2: {2}, 4: {4, 2, 3}, 5: {5, 4, 2, 3}, 9: {9}} {
		if got := snap.Through(index); !slices.Equal(got, want) {
			t.Errorf("through %d: %v, want %v", index, got, want)
		}
	}
}

func TestNamespaceErrorsSayWhatToDo(t *testing.T) {
	err := enterError("/run/netns/blue", unix.EPERM)
	const want = `enter network namespace "/run/netns/blue": operation not permitted: run as root, or with CAP_SYS_ADMIN`
	if err.Error() != want || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("error %q, want %q", err, want)
	}
	if os.Geteuid() == 0 {
		return // may open everything
	}
	path := filepath.Join(t.TempDir(), "closed")
	if err := os.WriteFile(path, nil, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenNamespace(path); err == nil || !strings.HasSuffix(err.Error(), "run as root, or with CAP_SYS_ADMIN") {
		t.Errorf("a file that may not be opened: %v", err)
	}
}
