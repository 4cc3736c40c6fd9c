// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"narthex/internal/datapath"
	"narthex/internal/lab"
	"narthex/internal/policy"
	"narthex/test/nettest"
)

// withoutTCX is an instance on a kernel that is taken to have no tcx.
func withoutTCX(t *testing.T) *subject {
	t.Helper()
	s, err := open(datapath.Config{Sources: 64, Without: []datapath.Feature{datapath.FeatureTCX}})
	nettest.Check(t, err)
	t.Cleanup(func() { nettest.Check(t, s.remove()) })
	return s
}

// traffic is what is in an interface's traffic control: its qdiscs but the one for what it sends, and its
// filters with their priorities, those for what comes in first, ours by what they are pinned as.
func traffic(t *testing.T, ns *lab.Namespace, d datapath.Target) (has []string) {
	t.Helper()
	nettest.Check(t, ns.Do(func() error {
		l, err := netlink.LinkByIndex(d.Index)
		if err != nil {
			return err
		}
		qdiscs, err := netlink.QdiscList(l)
		if err != nil {
			return err
		}
		for _, q := range qdiscs {
			if q.Type() == "clsact" || q.Type() == "ingress" {
				has = append(has, q.Type())
			}
		}
		for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
			all, err := netlink.FilterList(l, parent)
			if err != nil {
				return err
			}
			for _, f := range all {
				name := f.Type()
				if b, ok := f.(*netlink.BpfFilter); ok {
					name, _, _ = strings.Cut(filepath.Base(b.Name), "_")
				}
				has = append(has, fmt.Sprintf("%s %d", name, f.Attrs().Priority))
			}
		}
		return nil
	}))
	return slices.Compact(has) // at an ingress qdisc both sides are one
}

// wantTraffic compares what is there.
func wantTraffic(t *testing.T, ns *lab.Namespace, d datapath.Target, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, traffic(t, ns, d)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", d.Name, diff)
	}
}

// limited is a policy with a waiting room.
const limited = `
version: 1
services: [{name: shop, listen: ["*:80"], concurrency: 4}]
connections: [{name: all, rate: 1/m, burst: 5}]
`

func TestFilterModes(t *testing.T) {
	ns := nettest.Namespace(t, "packet")
	d := device(t, ns, "d0")
	s := withoutTCX(t)
	for _, c := range []struct {
		xdp  policy.XDPMode
		want datapath.Mode
	}{{"off", "tc"}, {"generic", "generic"}, {"off", "tc"}, {"auto", "tc"}, {"generic", "generic"}} {
		d.XDP = c.xdp
		s.mustTry(t, ns, limited, d)
		if a := s.Attachments(); len(a) != 1 || a[0].Mode != c.want {
			t.Errorf("xdp: %s: attachments %+v", c.xdp, a)
		}
		want := []string{"clsact", "tc 1", "gatein 2", "gateout 1"}
		if c.want == "generic" {
			want = []string{"clsact", "gatein 2", "gateout 1"}
		}
		wantTraffic(t, ns, d, want...)
	}
	s.mustTry(t, ns, limited)
	wantTraffic(t, ns, d)
	if pins, err := os.ReadDir(s.pin("links")); err != nil || len(pins) != 0 {
		t.Errorf("pins %v, %v", pins, err)
	}
}

// The next daemon finds its filters, and puts its programs in their place.
func TestFiltersAreAdopted(t *testing.T) {
	ns := nettest.Namespace(t, "packet")
	d := device(t, ns, "d0")
	s := withoutTCX(t)
	s.mustTry(t, ns, limited, d)
	want := []string{"clsact", "tc 1", "gatein 2", "gateout 1"}
	wantTraffic(t, ns, d, want...)
	var again *subject
	nettest.Check(t, ns.Do(func() error {
		again = s.reopen(t, datapath.Config{Without: []datapath.Feature{datapath.FeatureTCX}}, 0)
		return nil
	}))
	wantTraffic(t, ns, d, want...)
	again.mustTry(t, ns, limited, d)
	wantTraffic(t, ns, d, want...)
	again.mustTry(t, ns, limited)
	wantTraffic(t, ns, d)
}

// Filters of others stay as they are. Those that eBPF cannot stand beside keep their place.
func TestFiltersOfOthers(t *testing.T) {
	ns := nettest.Namespace(t, "packet")
	d := device(t, ns, "d0")
	nettest.Check(t, ns.Do(func() error {
		q := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: d.Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
		}}
		if err := netlink.QdiscAdd(q); err != nil {
			return err
		}
		return netlink.FilterAdd(&netlink.U32{FilterAttrs: netlink.FilterAttrs{
			LinkIndex: d.Index, Parent: netlink.HANDLE_MIN_INGRESS, Protocol: unix.ETH_P_ALL, Priority: 2,
		}})
	}))
	s := withoutTCX(t)
	s.mustTry(t, ns, limited, d)
	wantTraffic(t, ns, d, "clsact", "tc 1", "u32 2", "gatein 3", "gateout 1")
	s.mustTry(t, ns, limited)
	wantTraffic(t, ns, d, "clsact", "u32 2")
}

// An interface that goes to another namespace loses its filters, and is let go.
func TestFilteredInterfaceMoves(t *testing.T) {
	ns, other := nettest.Namespace(t, "packet"), nettest.Namespace(t, "packet")
	nettest.Check(t, ns.Do(func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "d0"}, PeerName: "d1"})
	}))
	l, err := ns.Link("d0")
	nettest.Check(t, err)
	d := datapath.Target{Name: "d0", Index: l.Attrs().Index, XDP: policy.XDPOff, Services: []int{0}}
	s := withoutTCX(t)
	s.mustTry(t, ns, limited, d)
	to, err := os.Open(other.Path())
	nettest.Check(t, err)
	defer to.Close()
	nettest.Check(t, ns.Do(func() error { return netlink.LinkSetNsFd(l, int(to.Fd())) }))
	s.mustTry(t, ns, limited)
	if a := s.Attachments(); len(a) != 0 {
		t.Errorf("attachments %+v", a)
	}
	if pins, err := os.ReadDir(s.pin("links")); err != nil || len(pins) != 0 {
		t.Errorf("pins %v, %v", pins, err)
	}
	moved, err := other.Link("d0")
	nettest.Check(t, err)
	wantTraffic(t, other, datapath.Target{Name: "d0", Index: moved.Attrs().Index})
}

// An ingress qdisc has no place for what goes out: SYNs are policed, and the waiting room is refused.
func TestFiltersAtIngressQdisc(t *testing.T) {
	ns := nettest.Namespace(t, "packet")
	d := device(t, ns, "d0")
	nettest.Check(t, ns.Do(func() error {
		return netlink.QdiscAdd(&netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: d.Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS,
		}})
	}))
	s := withoutTCX(t)
	s.mustTry(t, ns, rules(0, 3, "1/m"), d)
	wantTraffic(t, ns, d, "ingress", "tc 1")
	if err := s.try(t, ns, limited, d); err == nil || !strings.Contains(err.Error(), "tc qdisc del dev") {
		t.Errorf("a waiting room: error %v", err)
	}
	wantTraffic(t, ns, d, "ingress", "tc 1")
	s.mustTry(t, ns, limited)
	wantTraffic(t, ns, d, "ingress")
}
