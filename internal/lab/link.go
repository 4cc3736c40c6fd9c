// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// End is one end of a veth pair.
type End struct {
	NS    *Namespace
	Dev   string
	Addrs []netip.Prefix
}

// Connect joins two namespaces, or one to itself, by a veth pair with both ends up. IPv6
// addresses are usable at once: there is no duplicate address detection.
func Connect(a, b End) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = a.Dev
	veth := netlink.NewVeth(attrs)
	veth.PeerName = b.Dev
	veth.PeerNamespace = netlink.NsFd(int(b.NS.handle))
	if err := a.NS.links.LinkAdd(veth); err != nil {
		return fmt.Errorf("connect %q in %q with %q in %q: %w", a.Dev, a.NS.name, b.Dev, b.NS.name, err)
	}
	// Both up before addresses, so that those find a carrier.
	for _, e := range []End{a, b} {
		if err := e.NS.SetUp(e.Dev); err != nil {
			return err
		}
	}
	for _, e := range []End{a, b} {
		for _, addr := range e.Addrs {
			if err := e.NS.AddAddr(e.Dev, addr); err != nil {
				return err
			}
		}
	}
	return nil
}

// Link finds a device by its name.
func (n *Namespace) Link(dev string) (netlink.Link, error) {
	link, err := n.links.LinkByName(dev)
	if err != nil {
		return nil, fmt.Errorf("find device %q in %q: %w", dev, n.name, err)
	}
	return link, nil
}

// MAC returns a device's hardware address.
func (n *Namespace) MAC(dev string) (net.HardwareAddr, error) {
	link, err := n.Link(dev)
	if err != nil {
		return nil, err
	}
	return link.Attrs().HardwareAddr, nil
}

// SetUp brings a device up.
func (n *Namespace) SetUp(dev string) error { return n.onLink("bring up", dev, n.links.LinkSetUp) }

// SetDown brings a device down.
func (n *Namespace) SetDown(dev string) error {
	return n.onLink("bring down", dev, n.links.LinkSetDown)
}

// Delete removes a device, and the other end if it is one of a pair.
func (n *Namespace) Delete(dev string) error { return n.onLink("remove", dev, n.links.LinkDel) }

// onLink finds a device and does something with it.
func (n *Namespace) onLink(what, dev string, do func(netlink.Link) error) error {
	link, err := n.Link(dev)
	if err != nil {
		return err
	}
	if err := do(link); err != nil {
		return fmt.Errorf("%s device %q in %q: %w", what, dev, n.name, err)
	}
	return nil
}

// AddAddr gives a device an address, usable at once.
func (n *Namespace) AddAddr(dev string, addr netip.Prefix) error {
	return n.onLink("give "+addr.String()+" to", dev, func(link netlink.Link) error {
		a := &netlink.Addr{IPNet: ipNet(addr)}
		if addr.Addr().Is6() {
			a.Flags = unix.IFA_F_NODAD
		}
		return n.links.AddrAdd(link, a)
	})
}

// RemoveAddr takes an address from a device.
func (n *Namespace) RemoveAddr(dev string, addr netip.Prefix) error {
	return n.onLink("take "+addr.String()+" from", dev, func(link netlink.Link) error {
		return n.links.AddrDel(link, &netlink.Addr{IPNet: ipNet(addr)})
	})
}

// AddRoute sends packets for a prefix to a gateway. A server that answers raw SYNs from
// made-up sources needs one to the client's address, or it would ask for every source's
// hardware address in vain.
func (n *Namespace) AddRoute(dst netip.Prefix, via netip.Addr) error {
	err := n.links.RouteAdd(&netlink.Route{Dst: ipNet(dst), Gw: via.AsSlice()})
	if err != nil {
		return fmt.Errorf("route %s through %s in %q: %w", dst, via, n.name, err)
	}
	return nil
}

// AddNeighbour says which hardware address has an IP address on a device. With one for a
// source that no kernel has, a server answers that source, and nobody else does anything
// about it.
func (n *Namespace) AddNeighbour(dev string, addr netip.Addr, mac net.HardwareAddr) error {
	return n.onLink("tell a neighbour of", dev, func(link netlink.Link) error {
		return n.links.NeighSet(&netlink.Neigh{
			LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: addr.AsSlice(), HardwareAddr: mac,
		})
	})
}

// AddBridge makes a bridge that is up and takes devices into it.
func (n *Namespace) AddBridge(name string, ports ...string) error {
	bridge := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs()}
	bridge.Name = name
	if err := n.links.LinkAdd(bridge); err != nil {
		return fmt.Errorf("make bridge %q in %q: %w", name, n.name, err)
	}
	for _, port := range ports {
		err := n.onLink("add to bridge "+name, port, func(link netlink.Link) error {
			return n.links.LinkSetMaster(link, bridge)
		})
		if err != nil {
			return err
		}
	}
	return n.SetUp(name)
}

// AddMacvlan makes a macvlan device in bridge mode above another device, and brings it
// up.
func (n *Namespace) AddMacvlan(name, lower string) error {
	return n.addMacvlan(name, lower, netlink.MACVLAN_MODE_BRIDGE)
}

func (n *Namespace) addMacvlan(name, lower string, mode netlink.MacvlanMode) error {
	return n.onLink("put macvlan "+name+" above", lower, func(link netlink.Link) error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		attrs.ParentIndex = link.Attrs().Index
		if err := n.links.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: mode}); err != nil {
			return err
		}
		return n.SetUp(name)
	})
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
