// SPDX-License-Identifier: Apache-2.0

package netif

import (
	"fmt"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"

	"narthex/internal/policy"
)

// Links for the tables below: ethernet devices that are up and have an address, changed
// by options.
type option func(*Link)

func ether(index int, name string, options ...option) Link {
	l := Link{Index: index, Name: name, Ethernet: true, Up: true, HasAddress: true}
	for _, o := range options {
		o(&l)
	}
	return l
}

func kind(k string) option   { return func(l *Link) { l.Kind = k } }
func on(lower int) option    { return func(l *Link) { l.Lower = lower } }
func port(master int) option { return func(l *Link) { l.Master = master } }
func alt(names ...string) option {
	return func(l *Link) { l.AltNames = names }
}
func vlan(lower int) option { return func(l *Link) { l.Kind, l.Lower = "vlan", lower } }
func mac(address string) option {
	return func(l *Link) { l.MAC = address }
}
func bare(l *Link)       { l.HasAddress = false }
func down(l *Link)       { l.Up = false }
func noEthernet(l *Link) { l.Ethernet = false }
func hidden(l *Link)     { l.Hidden = true }

var lo = ether(1, "lo", func(l *Link) { l.Loopback = true })

func TestPlanTargets(t *testing.T) {
	tests := []struct {
		name  string
		links []Link
		named []string
		want  []string
	}{
		{
			name:  "interfaces with an address, lo not among them",
			links: []Link{lo, ether(2, "eth0"), ether(3, "eth1", bare), ether(4, "eth2", down), ether(5, "eth3", bare, down)},
			want:  []string{"eth0", "eth2"},
		},
		{
			name:  "lo by its name",
			links: []Link{lo, ether(2, "eth0")},
			named: []string{"lo"},
			want:  []string{"lo"},
		},
		{
			name:  "named without an address and down",
			links: []Link{lo, ether(2, "eth0"), ether(3, "eth1", bare, down)},
			named: []string{"eth1"},
			want:  []string{"eth1"},
		},
		{
			name:  "an alternative name",
			links: []Link{ether(2, "eth0"), ether(3, "eth1", alt("enp3s0", "uplink"))},
			named: []string{"uplink"},
			want:  []string{"eth1"},
		},
		{
			name:  "VLAN on a wanted device: tagged frames are read below",
			links: []Link{ether(2, "eth0"), ether(3, "eth0.10", vlan(2))},
			want:  []string{"eth0"},
		},
		{
			name:  "VLAN on a device without an address",
			links: []Link{ether(2, "eth0", bare), ether(3, "eth0.10", vlan(2)), ether(4, "eth0.20", vlan(2))},
			want:  []string{"eth0.10", "eth0.20"},
		},
		{
			name:  "VLAN alone by its name",
			links: []Link{ether(2, "eth0"), ether(3, "eth0.10", vlan(2))},
			named: []string{"eth0.10"},
			want:  []string{"eth0.10"},
		},
		{
			name:  "QinQ, all three with an address",
			links: []Link{ether(2, "eth0"), ether(3, "eth0.10", vlan(2)), ether(4, "eth0.10.20", vlan(3))},
			want:  []string{"eth0"},
		},
		{
			name:  "QinQ, the one in the middle without",
			links: []Link{ether(2, "eth0"), ether(3, "eth0.10", vlan(2), bare), ether(4, "eth0.10.20", vlan(3))},
			want:  []string{"eth0"},
		},
		{
			name:  "QinQ, the lowest without",
			links: []Link{ether(2, "eth0", bare), ether(3, "eth0.10", vlan(2)), ether(4, "eth0.10.20", vlan(3))},
			want:  []string{"eth0.10"},
		},
		{
			name: "bridge with an address; those of its ports do not count",
			links: []Link{
				ether(2, "eth0", port(4)), ether(3, "veth1", kind("veth"), port(4)), ether(4, "br0", kind("bridge")),
			},
			want: []string{"br0"},
		},
		{
			name: "bridge over a VLAN of a wanted device: all its ports",
			links: []Link{
				ether(2, "eth0"), ether(3, "eth0.10", vlan(2), bare, port(5)),
				ether(4, "veth1", kind("veth"), bare, port(5)), ether(5, "br10", kind("bridge")),
			},
			want: []string{"eth0", "veth1"},
		},
		{
			name: "bridge and one of its ports by their names",
			links: []Link{
				ether(2, "eth0", port(4)), ether(3, "eth1", port(4)), ether(4, "br0", kind("bridge")),
			},
			named: []string{"br0", "eth1"},
			want:  []string{"eth0", "eth1"},
		},
		{
			name:  "VLAN on a bridge",
			links: []Link{ether(2, "eth0", port(3)), ether(3, "br0", kind("bridge")), ether(4, "br0.7", vlan(3))},
			want:  []string{"br0"},
		},
		{
			name:  "bond",
			links: []Link{ether(2, "eth0", bare, port(4)), ether(3, "eth1", bare, port(4)), ether(4, "bond0", kind("bond"))},
			want:  []string{"bond0"},
		},
		{
			name: "VLANs on a bond without an address, one of them bridged",
			links: []Link{
				ether(2, "eth0", bare, port(3)), ether(3, "bond0", kind("bond"), bare),
				ether(4, "bond0.10", vlan(3)), ether(5, "bond0.20", vlan(3), bare, port(6)), ether(6, "br20", kind("bridge")),
			},
			want: []string{"bond0.10", "br20"},
		},
		{
			name:  "team with a named port",
			links: []Link{ether(2, "eth0", port(4)), ether(3, "eth1", port(4)), ether(4, "team0", kind("team"))},
			named: []string{"eth0", "team0"},
			want:  []string{"eth0", "eth1"},
		},
		{
			name:  "macvlan and ipvlan on a wanted device",
			links: []Link{ether(2, "eth0"), ether(3, "mv0", kind("macvlan"), on(2)), ether(4, "ipv0", kind("ipvlan"), on(2)), ether(5, "tap0", kind("macvtap"), on(2))},
			want:  []string{"eth0"},
		},
		{
			name:  "macvlan with an address: siblings reach it directly",
			links: []Link{ether(2, "eth0"), ether(3, "mv0", kind("macvlan"), on(2), mac("\x02aaaaa"))},
			want:  []string{"eth0", "mv0"},
		},
		{
			name:  "macvlan on a VLAN of a wanted device",
			links: []Link{ether(2, "eth0"), ether(3, "eth0.10", vlan(2), bare), ether(4, "mv0", kind("macvlan"), on(3), mac("\x02aaaaa"))},
			want:  []string{"eth0", "mv0"},
		},
		{
			name:  "macvlan without an address of its own",
			links: []Link{ether(2, "eth0"), ether(3, "mv0", kind("macvlan"), on(2), bare, mac("\x02aaaaa"))},
			want:  []string{"eth0"},
		},
		{
			name:  "macvlan whose lower device is in another namespace",
			links: []Link{ether(2, "eth0"), ether(3, "mv0", kind("macvlan"))},
			want:  []string{"eth0", "mv0"},
		},
		{
			name:  "both ends of a veth: neither is stacked on the other",
			links: []Link{ether(2, "veth0", kind("veth"), on(3)), ether(3, "veth1", kind("veth"), on(2))},
			want:  []string{"veth0", "veth1"},
		},
		{
			name:  "tunnel over a wanted device: it delivers other packets",
			links: []Link{ether(2, "eth0"), ether(3, "vxlan0", kind("vxlan"), on(2)), ether(4, "gretap1", kind("gretap"), on(2))},
			want:  []string{"eth0", "vxlan0", "gretap1"},
		},
		{
			name:  "VRF: its ports are wanted, it is not",
			links: []Link{ether(2, "eth0", port(3)), ether(3, "vrf0", kind("vrf"))},
			want:  []string{"eth0"},
		},
		{
			name:  "an ipvlan in mode L3S, whose packets pass the device below alone",
			links: []Link{ether(2, "eth0"), ether(3, "ip0", kind("ipvlan"), on(2), hidden)},
			want:  []string{"eth0"},
		},
		{
			name:  "an ipvlan in mode L3S above a device without an address",
			links: []Link{ether(2, "eth0", bare), ether(3, "ip0", kind("ipvlan"), on(2), hidden)},
			want:  nil,
		},
		{
			name:  "an ifb, which shapes what another interface receives",
			links: []Link{ether(2, "eth0"), ether(3, "ifb0", kind("ifb"))},
			want:  []string{"eth0"},
		},
		{
			name:  "a loop in a torn snapshot, entered from outside",
			links: []Link{ether(2, "a", vlan(3), bare), ether(3, "b", vlan(2), bare), ether(4, "c", vlan(3))},
			want:  []string{"c"},
		},
		{
			name:  "a loop in a torn snapshot, with a wanted device in it",
			links: []Link{ether(2, "a", vlan(3)), ether(3, "b", vlan(2), bare)},
			want:  nil,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			plan := NewPlan(Snapshot{Links: tt.links}, []Want{{Service: "web", Interfaces: tt.named}})
			var got []string
			for _, target := range plan.Targets {
				got = append(got, target.Name)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("targets (-want +got):\n%s", diff)
			}
			if len(plan.Absent) > 0 {
				t.Errorf("absent: %v", plan.Absent)
			}
		})
	}
}

func TestPlanLeavesOutWhatHasNoEthernetHeader(t *testing.T) {
	plan := NewPlan(Snapshot{Links: []Link{
		ether(2, "eth0"), ether(3, "wg0", kind("wireguard"), noEthernet),
		ether(4, "ib0", noEthernet, port(6)), ether(5, "eth1", port(6)), ether(6, "bond0", kind("bond")),
	}}, []Want{
		{Service: "web"},
		{Service: "admin", Interfaces: []string{"bond0", "eth1"}},
	})
	want := Plan{
		Targets: []Target{
			{Name: "eth0", Index: 2, XDP: policy.XDPAuto, Services: []int{0}},
			{Name: "eth1", Index: 5, XDP: policy.XDPAuto, Services: []int{1}},
			{Name: "bond0", Index: 6, XDP: policy.XDPOff, Services: []int{0}, Ports: []int{4, 5}},
		},
		Notes: []string{
			`interface "ib0" has no Ethernet header: it is left out`,
			`interface "wg0" has no Ethernet header: it is left out`,
		},
	}
	if diff := cmp.Diff(want, plan); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

func TestPlanNamedInterfaceThatCannotBePoliced(t *testing.T) {
	plan := NewPlan(Snapshot{Links: []Link{
		ether(2, "eth0"), ether(3, "tun0", kind("tun"), noEthernet), ether(4, "vrf0", kind("vrf")), ether(5, "ifb0", kind("ifb")),
	}}, []Want{{Service: "web", Interfaces: []string{"eth7", "tun0", "eth0", "vrf0", "ifb0"}}})
	want := []string{
		`web: interface "eth7" does not exist: create it or correct ` + "`interfaces` in the policy",
		`web: interface "tun0" has no Ethernet header: name the device that carries it instead, or take it out of ` + "`interfaces`",
		`web: interface "vrf0" is a VRF: name the interfaces in it instead`,
		`web: interface "ifb0" is an ifb: name the interfaces whose packets take a turn by it instead`,
	}
	var got []string
	for _, a := range plan.Absent {
		got = append(got, fmt.Sprintf("%s: %v", a.Service, a.Err))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("absent (-want +got):\n%s", diff)
	}
	if len(plan.Targets) != 1 || plan.Targets[0].Name != "eth0" {
		t.Errorf("targets: %v, want eth0 alone", plan.Targets)
	}
}

func TestPlanNotesVRF(t *testing.T) {
	links := []Link{ether(2, "eth0"), ether(3, "eth0.10", vlan(2), port(4)), ether(4, "vrf0", kind("vrf"))}
	for _, requests := range []bool{false, true} {
		var want []string
		if requests {
			want = []string{`interface "eth0.10" is in VRF "vrf0": SYNs are policed there, but requests go by undecided`}
		}
		plan := NewPlan(Snapshot{Links: links}, []Want{{Service: "web", Requests: requests}})
		if diff := cmp.Diff(want, plan.Notes); diff != "" {
			t.Errorf("requests=%v: notes (-want +got):\n%s", requests, diff)
		}
	}
}

// Behind generic XDP requests cannot be decided.
func TestPlanGenericXDP(t *testing.T) {
	for requests, want := range map[bool]policy.XDPMode{false: policy.XDPGeneric, true: policy.XDPOff} {
		plan := NewPlan(Snapshot{Links: []Link{ether(2, "eth0")}}, []Want{{Service: "web", XDP: policy.XDPGeneric}, {Service: "shop", Requests: requests}})
		if got := plan.Targets[0].XDP; got != want || requests != (len(plan.Notes) == 1) {
			t.Errorf("requests=%v: %q with notes %q, want %q", requests, got, plan.Notes, want)
		}
	}
}

func TestPlanServicesWithDifferentInterfaces(t *testing.T) {
	plan := NewPlan(Snapshot{Links: []Link{
		ether(2, "eth0"), ether(3, "eth0.10", vlan(2)), ether(4, "eth1"),
	}}, []Want{
		{Service: "all"},
		{Service: "tagged", Interfaces: []string{"eth0.10"}, XDP: policy.XDPOff},
		{Service: "one", Interfaces: []string{"eth1"}, XDP: policy.XDPNative},
		{Service: "two", Interfaces: []string{"eth1"}, XDP: policy.XDPGeneric},
	})
	want := Plan{
		Targets: []Target{
			{Name: "eth0", Index: 2, XDP: policy.XDPAuto, Services: []int{0}},
			{Name: "eth0.10", Index: 3, XDP: policy.XDPOff, Services: []int{1}},
			{Name: "eth1", Index: 4, XDP: policy.XDPNative, Services: []int{0, 2, 3}},
		},
		Notes: []string{`services on interface "eth1" ask for different modes of XDP: "native" is used`},
	}
	if diff := cmp.Diff(want, plan); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

// A lower device leaves the addresses of macvlan devices to these, but not if some service
// wants it alone.
func TestPlanUppers(t *testing.T) {
	links := []Link{ether(2, "eth0"), ether(3, "mv0", kind("macvlan"), on(2), mac("\x02aaaaa")), ether(4, "eth0.10", vlan(2), bare), ether(5, "mv1", kind("macvlan"), on(4), mac("\x02bbbbb"))}
	web := Want{Service: "web"}
	plan := NewPlan(Snapshot{Links: links}, []Want{web})
	want := []Target{
		{Name: "eth0", Index: 2, XDP: policy.XDPAuto, Services: []int{0}, Uppers: []net.HardwareAddr{[]byte("\x02aaaaa"), []byte("\x02bbbbb")}},
		{Name: "mv0", Index: 3, XDP: policy.XDPAuto, Services: []int{0}},
		{Name: "mv1", Index: 5, XDP: policy.XDPAuto, Services: []int{0}},
	}
	if diff := cmp.Diff(want, plan.Targets); diff != "" {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
	plan = NewPlan(Snapshot{Links: links}, []Want{web, {Service: "lower", Interfaces: []string{"eth0"}}})
	want = []Target{{Name: "eth0", Index: 2, XDP: policy.XDPAuto, Services: []int{0, 1}}}
	if diff := cmp.Diff(want, plan.Targets); diff != "" {
		t.Errorf("targets with a service on eth0 alone (-want +got):\n%s", diff)
	}
}

func TestPlanNotesInterfacesWithoutAddress(t *testing.T) {
	plan := NewPlan(Snapshot{Links: []Link{
		ether(2, "eth0"), ether(3, "eth1", bare), ether(4, "eth2", bare, down), ether(5, "eth3", bare), ether(6, "eth3.7", vlan(5)), ether(7, "eth4", bare, port(8)), ether(8, "br0", kind("bridge")),
	}}, []Want{{Service: "web"}})
	want := []string{"without an address and not policed: eth1; name them in `interfaces` if clients come by them"}
	if diff := cmp.Diff(want, plan.Notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

func TestPlanFollowsARename(t *testing.T) {
	byName := []Want{{Service: "web", Interfaces: []string{"eth0"}}}
	byAddress := []Want{{Service: "web"}}
	before := Snapshot{Links: []Link{ether(2, "eth0")}}
	after := Snapshot{Links: []Link{ether(2, "lan0")}}

	if plan := NewPlan(before, byName); len(plan.Targets) != 1 {
		t.Fatalf("targets before: %v, want one", plan.Targets)
	}
	if plan := NewPlan(after, byName); len(plan.Targets) != 0 || len(plan.Absent) != 1 {
		t.Errorf("named: targets %v, absent %v; want none and one", plan.Targets, plan.Absent)
	}
	want := []Target{{Name: "lan0", Index: 2, XDP: policy.XDPAuto, Services: []int{0}}}
	if diff := cmp.Diff(want, NewPlan(after, byAddress).Targets); diff != "" {
		t.Errorf("by address (-want +got):\n%s", diff)
	}
	if before.Equal(after) {
		t.Error("the rename makes no difference to Equal")
	}
}
