// SPDX-License-Identifier: Apache-2.0

package netif

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// dumpAttempts is how often a dump is asked for again that a change had interrupted.
const dumpAttempts = 10

// TakeSnapshot reads the state of the namespace.
func TakeSnapshot(ns *Namespace) (snap Snapshot, err error) {
	err = ns.Do(func() error {
		for range dumpAttempts {
			if snap, err = readSnapshot(); !errors.Is(err, netlink.ErrDumpInterrupted) {
				break
			}
		}
		return err
	})
	return snap, err
}

func readSnapshot() (Snapshot, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return Snapshot{}, fmt.Errorf("list interfaces: %w", err)
	}
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return Snapshot{}, fmt.Errorf("list addresses: %w", err)
	}
	addressed := set{}
	for _, a := range addrs {
		addressed[a.LinkIndex] = true
	}
	var snap Snapshot
	for _, l := range links {
		snap.Links = append(snap.Links, toLink(l, addressed))
	}
	slices.SortFunc(snap.Links, func(a, b Link) int { return a.Index - b.Index })
	for _, table := range localTables(links) {
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			routes, err := localRoutes(family, table)
			if err != nil {
				return Snapshot{}, fmt.Errorf("list local addresses: %w", err)
			}
			snap.Locals = append(snap.Locals, routes...)
		}
	}
	slices.SortFunc(snap.Locals, comparePrefix)
	snap.Locals = slices.Compact(snap.Locals)
	return snap, nil
}

// localTables returns the routing tables that hold the host's own addresses. Others hold
// routes of type local, too, but for packets that a rule with a mark selects, such as those
// of a transparent proxy: what they cover is not local by its address alone.
func localTables(links []netlink.Link) []uint32 {
	tables := []uint32{unix.RT_TABLE_LOCAL}
	for _, l := range links {
		if vrf, ok := l.(*netlink.Vrf); ok {
			tables = append(tables, vrf.Table)
		}
	}
	return tables
}

func comparePrefix(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return a.Bits() - b.Bits()
}

func toLink(l netlink.Link, addressed set) Link {
	a := l.Attrs()
	link := Link{
		Index:      a.Index,
		Name:       a.Name,
		AltNames:   a.AltNames,
		Ethernet:   a.EncapType == "ether" || a.EncapType == "loopback",
		Loopback:   a.EncapType == "loopback",
		Up:         a.RawFlags&unix.IFF_UP != 0,
		MAC:        string(a.HardwareAddr),
		HasAddress: addressed[a.Index],
		Master:     a.MasterIndex,
	}
	if kind := l.Type(); kind != "device" {
		link.Kind = kind
	}
	if v, ok := l.(*netlink.IPVlan); ok {
		link.Hidden = v.Mode == netlink.IPVLAN_MODE_L3S
	}
	if a.NetNsID < 0 {
		link.Lower = a.ParentIndex
	}
	return link
}

// localRoutes returns what a routing table delivers locally. The kernel filters, for the
// table of a router can be long.
func localRoutes(family uint8, table uint32) ([]netip.Prefix, error) {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	if err := unix.SetsockoptInt(socket.GetFd(), unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1); err != nil {
		return nil, err
	}
	req := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: socket}}
	msg := &nl.RtMsg{}
	msg.Family = family
	msg.Type = unix.RTN_LOCAL
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(unix.RTA_TABLE, nl.Uint32Attr(table)))
	answers, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil // no route was ever put into this table
	}
	if err != nil {
		return nil, err
	}
	var found []netip.Prefix
	for _, answer := range answers {
		prefix, ok, err := parseLocal(answer)
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, prefix)
		}
	}
	return found, nil
}

func parseLocal(answer []byte) (prefix netip.Prefix, ok bool, err error) {
	msg := nl.DeserializeRtMsg(answer)
	if msg.Type != unix.RTN_LOCAL {
		return netip.Prefix{}, false, nil
	}
	attrs, err := nl.ParseRouteAttr(answer[msg.Len():])
	if err != nil {
		return netip.Prefix{}, false, err
	}
	addr := netip.IPv4Unspecified()
	if msg.Family == unix.AF_INET6 {
		addr = netip.IPv6Unspecified()
	}
	for _, attr := range attrs {
		if attr.Attr.Type == unix.RTA_DST {
			addr, _ = netip.AddrFromSlice(attr.Value)
		}
	}
	prefix, err = addr.Prefix(int(msg.Dst_len))
	return prefix, err == nil, err
}
