// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net/netip"
)

// Dev is the name of both ends of a lab's veth pair.
const Dev = "eth0"

// Lab is the usual set-up: a server's namespace and a client's, joined by a veth pair
// whose ends are both called Dev. The server has the address 10.77.0.1 and fd77::1;
// client i has 10.77.1.1+i and fd77::1:1+i, all on the one device.
type Lab struct {
	Server, Client       *Namespace
	ServerV4, ServerV6   netip.Addr
	ClientsV4, ClientsV6 []netip.Addr
}

// New makes a lab with the given number of clients' addresses, at least one. The
// client's namespace is prepared for high connection rates.
func New(purpose string, clients int) (*Lab, error) {
	l := &Lab{
		ServerV4: netip.MustParseAddr("10.77.0.1"),
		ServerV6: netip.MustParseAddr("fd77::1"),
	}
	v4, v6 := netip.MustParseAddr("10.77.1.1"), netip.MustParseAddr("fd77::1:1")
	for range max(1, clients) {
		l.ClientsV4, l.ClientsV6 = append(l.ClientsV4, v4), append(l.ClientsV6, v6)
		v4, v6 = v4.Next(), v6.Next()
	}
	if err := l.build(purpose); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Lab) build(purpose string) (err error) {
	if l.Server, err = NewNamespace(purpose + "-server"); err != nil {
		return err
	}
	if l.Client, err = NewNamespace(purpose + "-client"); err != nil {
		return err
	}
	server := []netip.Prefix{netip.PrefixFrom(l.ServerV4, 16), netip.PrefixFrom(l.ServerV6, 64)}
	var clients []netip.Prefix
	for i := range l.ClientsV4 {
		clients = append(clients, netip.PrefixFrom(l.ClientsV4[i], 16), netip.PrefixFrom(l.ClientsV6[i], 64))
	}
	if err := Connect(End{l.Server, Dev, server}, End{l.Client, Dev, clients}); err != nil {
		return err
	}
	if err := l.Client.PrepareClient(); err != nil {
		return fmt.Errorf("prepare the clients: %w", err)
	}
	return nil
}

// Close removes both namespaces. Closing twice is no error.
func (l *Lab) Close() error {
	var errs []error
	for _, n := range []*Namespace{l.Client, l.Server} {
		if n != nil {
			errs = append(errs, n.Close())
		}
	}
	return errors.Join(errs...)
}
