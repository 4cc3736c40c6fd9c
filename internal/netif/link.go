// SPDX-License-Identifier: Apache-2.0

// Package netif decides which network interfaces have to be policed, and watches the
// interfaces and addresses of a network namespace for changes of that.
package netif

import (
	"net/netip"
	"slices"
)

// Link is what the plan needs to know of a network interface.
type Link struct {
	Index      int
	Name       string
	AltNames   []string
	Kind       string // rtnetlink's kind: vlan, bridge, veth…; empty for hardware
	Ethernet   bool   // frames have an Ethernet header; true of the loopback device
	Loopback   bool
	MAC        string // hardware address, as its bytes
	Up         bool   // administratively
	HasAddress bool
	Lower      int  // index of the device it is stacked on (IFLA_LINK), 0 if none or in another namespace
	Hidden     bool // what it receives passes no program on it: ipvlan in mode L3S
	Master     int  // index of the bridge, bond or VRF it is a port of, 0 if none
}

// Called reports whether name is the link's name or one of its alternative names.
func (l Link) Called(name string) bool {
	return l.Name == name || slices.Contains(l.AltNames, name)
}

// Snapshot is the state of a network namespace at one moment.
type Snapshot struct {
	Links  []Link
	Locals []netip.Prefix // what is delivered locally: routes of type local, sorted
}

// Equal reports whether two snapshots say the same.
func (s Snapshot) Equal(o Snapshot) bool {
	return slices.Equal(s.Locals, o.Locals) && slices.EqualFunc(s.Links, o.Links, Link.equal)
}

func (l Link) equal(o Link) bool {
	return l.Index == o.Index && l.Name == o.Name && slices.Equal(l.AltNames, o.AltNames) &&
		l.Kind == o.Kind && l.Ethernet == o.Ethernet && l.Loopback == o.Loopback && l.MAC == o.MAC &&
		l.Up == o.Up && l.HasAddress == o.HasAddress && l.Lower == o.Lower && l.Hidden == o.Hidden && l.Master == o.Master
}
