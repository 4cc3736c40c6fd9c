// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// listens decodes the listens of one service.
func (d *decoder) listens(n *yaml.Node, s *Service) {
	for _, e := range d.list(n, "listen") {
		var l Listen
		scalar(d, e, "listen", &l, parseListen)
		if l.Port != 0 {
			s.Listen = append(s.Listen, l)
			s.listenAt = append(s.listenAt, position(e))
		}
	}
}

// loopbackSeen warns of a loopback address whose packets are not policed.
func (d *decoder) loopbackSeen(s *Service) {
	if slices.Contains(s.Interfaces, "lo") {
		return
	}
	for i, l := range s.Listen {
		if l.Addr.IsLoopback() {
			d.warnf(s.listenAt[i], `listen: %s is reached through lo alone, which is policed only if it is named; add lo to "interfaces"`, l)
		}
	}
}

// tlsPorts are ports on which servers speak TLS from the first byte on (IANA's registry of
// service names: https, submissions, domain-s, imaps, pop3s; 8443 by custom).
var tlsPorts = []uint16{443, 465, 853, 993, 995, 8443}

// plainlySpoken warns of a service that would look for HTTP where TLS is to be expected.
func (d *decoder) plainlySpoken(s *Service) {
	encrypted := func(l Listen) bool { return slices.Contains(tlsPorts, l.Port) }
	first := slices.IndexFunc(s.Listen, encrypted)
	if s.Protocol != HTTP || first < 0 {
		return
	}
	advice := `write "protocol: tls"`
	if slices.ContainsFunc(s.Listen, func(l Listen) bool { return !encrypted(l) }) {
		advice = `give it a service of its own with "protocol: tls"`
	}
	d.warnf(s.listenAt[first], "listen: port %d is usually TLS: the waiting room reads HTTP there; %s", s.Listen[first].Port, advice)
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// parseListen reads ADDRESS:PORT or *:PORT.
func parseListen(s string) (Listen, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return Listen{}, fmt.Errorf("%s is not an address and port; write %s", quote(s), likelyListen(s))
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return Listen{}, fmt.Errorf(`%s has no valid port; write one port from 1 to 65535, as "*:80"`, quote(s))
	}
	if hasLeadingZero(port) {
		return Listen{}, leadingZero(s, strconv.Quote(net.JoinHostPort(host, strconv.Itoa(int(n)))))
	}
	if host == "*" {
		return Listen{Port: uint16(n)}, nil
	}
	if host == "" {
		return Listen{}, fmt.Errorf(`%s names no address; write "*:%d" for every local address`, quote(s), n)
	}
	a, err := parseAddr(host)
	var mapped *mappedError
	switch {
	case errors.As(err, &mapped):
		return Listen{}, fmt.Errorf(`%s is an IPv4 address in IPv6 form; write "%s:%d"`, quote(s), mapped.v4, n)
	case a.Zone() != "":
		return Listen{}, fmt.Errorf("%s names a zone, which a packet does not carry; write %q", quote(s), netip.AddrPortFrom(a.WithZone("").Unmap(), uint16(n)))
	case err != nil:
		return Listen{}, err
	case a == broadcast:
		return Listen{}, fmt.Errorf("%s is the broadcast address, which no TCP server has; write an address of this host", quote(s))
	case a.IsUnspecified():
		return Listen{}, fmt.Errorf(`%s is no address of a packet; write "*:%d" for every local address`, quote(s), n)
	case a.IsMulticast():
		return Listen{}, fmt.Errorf("%s is a multicast address, which no TCP server has; write an address of this host", quote(s))
	}
	return Listen{a, uint16(n)}, nil
}

// likelyListen guesses the listen that was meant.
func likelyListen(s string) string {
	last := strings.LastIndexByte(s, ':')
	guesses := []string{net.JoinHostPort(s, "80"), "*:" + s}
	if last > 0 {
		guesses = slices.Insert(guesses, 0, net.JoinHostPort(s[:last], s[last+1:]))
	}
	for _, g := range guesses {
		if _, _, err := net.SplitHostPort(g); err != nil {
			continue // parseListen would ask for another guess
		}
		if _, err := parseListen(g); err == nil {
			if g == "*:"+s {
				return strconv.Quote(g) + " for every local address"
			}
			return strconv.Quote(g)
		}
	}
	return `"*:80", "192.0.2.1:80" or "[2001:db8::1]:80"`
}

// String returns the listen as in a policy.
func (l Listen) String() string {
	if !l.Addr.IsValid() {
		return fmt.Sprintf("*:%d", l.Port)
	}
	return netip.AddrPortFrom(l.Addr, l.Port).String()
}
