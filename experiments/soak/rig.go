// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"net/netip"
	"os"

	"narthex/internal/lab"
)

// service is one of those in the lab.
type service struct {
	name     string
	port     uint16
	protocol string
	start    func(*rig, *service) (*lab.Server, error)
	hasKinds []kind // of its ordinary clients
	frail    bool   // attackers would take all of the server without a limit

	server *lab.Server
	pace   pace
}

// services are one of each kind.
func services() []*service {
	return []*service{
		{name: "nginx", port: 80, protocol: "http", start: (*rig).startNginx, hasKinds: append(webKinds, putKinds...)},
		{name: "apache", port: 81, protocol: "http", frail: true, start: (*rig).startApache, hasKinds: append(webKinds, echoKinds...)},
		{name: "go", port: 82, protocol: "http", hasKinds: append(append(webKinds, echoKinds...), goKinds...), start: func(l *rig, s *service) (*lab.Server, error) {
			return l.startOrigin(s, origin{})
		}},
		{name: "tls", port: 443, protocol: "tls", hasKinds: tlsKinds, start: func(l *rig, s *service) (*lab.Server, error) {
			return l.startOrigin(s, origin{TLS: true})
		}},
		{name: "mail", port: 25, protocol: "tcp", hasKinds: lineKinds, start: func(l *rig, s *service) (*lab.Server, error) {
			return l.startOrigin(s, origin{Lines: true, Greets: true})
		}},
		{name: "lines", port: 7, protocol: "tcp", hasKinds: lineKinds, start: func(l *rig, s *service) (*lab.Server, error) {
			return l.startOrigin(s, origin{Lines: true, Defers: true})
		}},
	}
}

// class is a class of clients, whose addresses hold its number.
type class struct {
	name   string
	number byte
}

// Ordinary clients are of all classes, attackers of the last one.
var classes = []class{{"gold", 2}, {"silver", 3}, {"bronze", 4}}

// addressesEach is how many addresses of a class there are.
const addressesEach = 4

func (c class) v4(i byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, c.number, 1 + i}) }

func (c class) v6(i byte) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfd, 0x77, 13: c.number, 15: 1 + i})
}

// rig is the servers, and the namespaces of the clients.
type rig struct {
	*lab.Lab
	dir      string // of what goes with the lab
	seed     uint64
	services []*service
}

func newRig(seed uint64, all []*service) (l *rig, err error) {
	l = &rig{seed: seed, services: all}
	if l.Lab, err = lab.New("soak", 1); err != nil {
		return nil, err
	}
	if err := l.build(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *rig) build() (err error) {
	if l.dir, err = l.Server.TempDir("soak"); err != nil {
		return err
	}
	for _, ns := range []*lab.Namespace{l.Server, l.Client} {
		// Addresses stay when the link goes down, and can be used as soon as it comes up.
		for _, set := range [][2]string{{"keep_addr_on_down", "1"}, {"accept_dad", "0"}} {
			if err := ns.Sysctl("ipv6/conf/"+lab.Dev+"/"+set[0], set[1]); err != nil {
				return err
			}
		}
	}
	// Clients often get a port that another one has vanished from.
	if err := l.Client.Sysctl("ipv4/ip_local_port_range", "40000 41999"); err != nil {
		return err
	}
	// Servers hear soon of clients that have vanished. Apache, which would keep a process for
	// each, has none left after a few seconds of them otherwise.
	for _, set := range [][2]string{{"time", "1"}, {"intvl", "1"}, {"probes", "2"}} {
		if err := l.Server.Sysctl("ipv4/tcp_keepalive_"+set[0], set[1]); err != nil {
			return err
		}
	}
	// They also give up sooner on clients that do not answer, on kernels since 6.15.
	if err := l.Server.Sysctl("ipv4/tcp_rto_max_ms", "20000"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, c := range classes {
		for i := range byte(addressesEach) {
			for _, p := range []netip.Prefix{netip.PrefixFrom(c.v4(i), 16), netip.PrefixFrom(c.v6(i), 64)} {
				if err := l.Client.AddAddr(lab.Dev, p); err != nil {
					return err
				}
			}
		}
	}
	if err := l.capture(); err != nil {
		return err
	}
	if err := writeFiles(l.dir, l.seed); err != nil {
		return err
	}
	for _, s := range l.services {
		if s.server, err = s.start(l, s); err != nil {
			return err
		}
	}
	return nil
}

// at is where the service is.
func (l *rig) at(s *service, v6 bool) netip.AddrPort {
	if v6 {
		return netip.AddrPortFrom(l.ServerV6, s.port)
	}
	return netip.AddrPortFrom(l.ServerV4, s.port)
}

// capture begins to write packets to the file that is named for it.
func (l *rig) capture() error {
	if *capture == "" {
		return nil
	}
	cmd := l.Server.Command("tcpdump", "-Z", "root", "-i", lab.Dev, "-n", "-s", "200", "-B", "65536", "-w", *capture)
	if err := cmd.Start(); err != nil {
		return err
	}
	l.Server.OnClose(func() error {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait() // interrupted
		return nil
	})
	return nil
}
