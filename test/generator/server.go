// SPDX-License-Identifier: Apache-2.0

package generator

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"narthex/internal/lab"
)

// prepareServer has the server's end take frames from XDP, and the server send answers to the
// client's device. A neighbour that is permanent keeps the first answers from waiting, and later
// ones from being dropped, when ARP is late because there is much to do.
func (c Config) prepareServer() error {
	if err := c.Server.SetOffload(c.Dev, lab.GRO, true); err != nil {
		return err
	}
	via, err := c.gateway()
	if err != nil {
		return err
	}
	mac, err := c.Client.MAC(c.Dev)
	if err != nil {
		return err
	}
	if err := c.Server.AddNeighbour(c.Dev, via, mac); err != nil {
		return err
	}
	if err := c.Server.AddRoute(c.From.Masked(), via); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

// gateway returns an address of the client's device that is in a network of the server's.
func (c Config) gateway() (netip.Addr, error) {
	near, err := addresses(c.Server, c.Dev)
	if err != nil {
		return netip.Addr{}, err
	}
	far, err := addresses(c.Client, c.Dev)
	if err != nil {
		return netip.Addr{}, err
	}
	for _, f := range far {
		for _, n := range near {
			if n.Contains(f.Addr()) {
				return f.Addr(), nil
			}
		}
	}
	return netip.Addr{}, fmt.Errorf("route %s: the client's device has no IPv4 address in a network of the server's", c.From)
}

// addresses returns the IPv4 addresses of a device.
func addresses(n *lab.Namespace, dev string) (all []netip.Prefix, err error) {
	err = n.Do(func() error {
		device, err := net.InterfaceByName(dev)
		if err != nil {
			return err
		}
		addrs, err := device.Addrs()
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
				all = append(all, p)
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the addresses of %q: %w", dev, err)
	}
	return all, nil
}
