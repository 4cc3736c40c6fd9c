// SPDX-License-Identifier: Apache-2.0

// Package starter writes a policy to start from, by what listens on a machine. It sends
// nothing to any server: what a port speaks is guessed from its number and its program.
package starter

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"

	"narthex/internal/netif"
)

// Listener is a listening TCP socket.
type Listener struct {
	At      netip.AddrPort
	Device  string // interface that it is bound to; empty: none
	Program string // name of the process that listens; empty: it cannot be seen
	PID     int    // of that process; 0: it cannot be seen
}

// Find returns what listens in the named network namespace, or for no name in that of this
// process, in the order of ports and addresses.
func Find(netns string) ([]Listener, error) {
	ns, err := netif.OpenNamespace(netns)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	sockets, err := listening(ns)
	if err != nil {
		return nil, err
	}
	owners := owners(procRoot, sockets)
	found := make([]Listener, 0, len(sockets))
	for _, s := range sockets {
		l := Listener{At: netip.AddrPortFrom(s.At.Addr().Unmap(), s.At.Port())}
		if owner, ok := owners[s.Inode]; ok {
			l.Program, l.PID = owner.name, owner.pid
		}
		if s.Device != 0 {
			if l.Device, err = deviceName(ns, s.Device); err != nil {
				return nil, err
			}
		}
		found = append(found, l)
	}
	slices.SortStableFunc(found, func(a, b Listener) int {
		return cmp.Or(cmp.Compare(a.At.Port(), b.At.Port()), a.At.Addr().Compare(b.At.Addr()))
	})
	return found, nil
}

// listening lists the sockets. Where the kernel has no sock_diag it is not known whose they are.
func listening(ns *netif.Namespace) (sockets []netif.Listening, err error) {
	d, err := netif.OpenDiag(ns)
	if err == nil {
		defer d.Close()
		sockets, err = d.Listening(nil)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return sockets, err
	}
	addresses, err := netif.ReadListeners(ns)
	for _, at := range addresses {
		sockets = append(sockets, netif.Listening{At: at})
	}
	return sockets, err
}

// deviceName names an interface by its index; one that has just gone has no name.
func deviceName(ns *netif.Namespace, index uint32) (name string, err error) {
	err = ns.Do(func() error {
		all, err := net.Interfaces()
		if err != nil {
			return fmt.Errorf("list interfaces: %w", err)
		}
		for _, one := range all {
			if one.Index == int(index) {
				name = one.Name
			}
		}
		return nil
	})
	return name, err
}
