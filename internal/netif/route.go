// SPDX-License-Identifier: Apache-2.0

package netif

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

var (
	// ErrNoRoute is wrapped by the error of RouteTo for an address that no packet could be
	// sent to.
	ErrNoRoute = errors.New("no route")
	// ErrNotUnicast is wrapped by the error of RouteTo for an address of more than one host.
	ErrNotUnicast = errors.New("a broadcast or multicast address")
)

// loopbackIndex is the kernel's LOOPBACK_IFINDEX, the same in every namespace.
const loopbackIndex = 1

// RouteTo returns the index of the interface over which a packet to the address would
// leave, which is the loopback device for an address of the host itself.
func RouteTo(ns *Namespace, to netip.Addr) (index int, err error) {
	err = ns.Do(func() error {
		routes, err := netlink.RouteGet(to.Unmap().AsSlice())
		switch {
		case err != nil:
			return noRoute(err)
		case len(routes) == 0:
			return ErrNoRoute
		}
		switch routes[0].Type {
		case unix.RTN_BROADCAST, unix.RTN_MULTICAST:
			return ErrNotUnicast
		case unix.RTN_LOCAL: // IPv6 names the interface that has the address
			index = loopbackIndex
			return nil
		case unix.RTN_UNICAST:
			index = routes[0].LinkIndex
			return nil
		}
		return ErrNoRoute
	})
	if err != nil {
		return 0, fmt.Errorf("find route to %s: %w", to, err)
	}
	return index, nil
}

// noRoute tells what routes of the types unreachable, prohibit and blackhole answer, or a
// table without a route, from a fault.
func noRoute(err error) error {
	for _, known := range []error{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EINVAL} {
		if errors.Is(err, known) {
			return ErrNoRoute
		}
	}
	return err
}
