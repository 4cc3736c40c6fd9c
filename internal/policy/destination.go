// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Destination is addresses, with ports, that requests come to.
type Destination struct {
	Addrs Range     // of an invalid First: any address
	Ports PortRange // zero: any port
}

// String returns the destination as in a policy.
func (d Destination) String() string {
	addrs := "*"
	if d.Addrs.First.IsValid() {
		addrs = d.Addrs.String()
	}
	switch {
	case d.Ports == PortRange{}:
		return addrs
	case strings.Contains(addrs, ":"):
		addrs = "[" + addrs + "]"
	}
	return addrs + ":" + d.Ports.String()
}

// contains reports whether an address and port is of the destination.
func (d Destination) contains(to netip.AddrPort) bool {
	anyPort := d.Ports == PortRange{}
	return (!d.Addrs.First.IsValid() || d.Addrs.contains(to.Addr())) &&
		(anyPort || d.Ports.First <= to.Port() && to.Port() <= d.Ports.Last)
}

// covers reports whether all of o is of d.
func (d Destination) covers(o Destination) bool {
	addrs := !d.Addrs.First.IsValid() || o.Addrs.First.IsValid() && d.Addrs.contains(o.Addrs.First) && d.Addrs.contains(o.Addrs.Last)
	ports := d.Ports == PortRange{} || o.Ports != PortRange{} && d.Ports.First <= o.Ports.First && o.Ports.Last <= d.Ports.Last
	return addrs && ports
}

// overlaps reports whether there is an address and port of both.
func (d Destination) overlaps(o Destination) bool {
	anyAddr := !d.Addrs.First.IsValid() || !o.Addrs.First.IsValid()
	anyPort := d.Ports == PortRange{} || o.Ports == PortRange{}
	return (anyAddr || d.Addrs.overlaps(o.Addrs)) && (anyPort || d.Ports.First <= o.Ports.Last && o.Ports.First <= d.Ports.Last)
}

// contains reports whether an address is in the range.
func (r Range) contains(a netip.Addr) bool {
	return r.First.Is4() == a.Is4() && r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0
}

// overlaps reports whether an address is in both ranges.
func (r Range) overlaps(o Range) bool {
	return r.First.Is4() == o.First.Is4() && r.First.Compare(o.Last) <= 0 && o.First.Compare(r.Last) <= 0
}

const destinationAdvice = `write the name of a service, an address, a prefix, or one of them with a port, as "192.0.2.0/24:8080", "[2001:db8::/32]:8080" or "*:8080"`

// parseDestination reads *:PORTS, ADDRESSES or ADDRESSES:PORTS, where IPv6 addresses before a port are in brackets.
func parseDestination(s string) (d Destination, err error) {
	addrs, ports := s, ""
	switch inside, behind, ok := strings.Cut(strings.TrimPrefix(s, "["), "]"); {
	case s[0] == '[' && (!ok || !strings.HasPrefix(behind, ":")):
		return d, fmt.Errorf("%s is no destination; %s", quote(s), destinationAdvice)
	case s[0] == '[':
		addrs, ports = inside, behind[1:]
	case strings.Count(s, ":") == 1:
		addrs, ports, _ = strings.Cut(s, ":")
	}
	if ports == "" && strings.HasSuffix(s, ":") && (s[0] == '[' || strings.Count(s, ":") == 1) {
		return d, fmt.Errorf("%s names no port; %s", quote(s), destinationAdvice)
	}
	if ports != "" {
		if d.Ports, err = parsePorts(ports); err == nil && d.Ports.First == 0 {
			err = errors.New("port 0 is none of a server; write 1 to 65535")
		}
	}
	switch {
	case err != nil || addrs == "*" && ports != "":
		return d, err
	case addrs == "*":
		return d, fmt.Errorf(`"*" is every destination; leave the key out, or write a port, as "*:8080"`)
	}
	d.Addrs, err = parseRange(addrs)
	return d, err
}

// destinations decodes the services and addresses of a request rule's "to".
func (d *decoder) destinations(n *yaml.Node, r *rawRequest) {
	var names []reference
	var nodes []*yaml.Node
	for _, e := range d.list(n, "to") {
		if e.Kind == yaml.ScalarNode && strings.ContainsAny(e.Value, ".:/*[") {
			nodes = append(nodes, e)
			continue
		}
		var to reference
		if scalar(d, e, "to", &to, ref(e)) {
			names = append(names, to)
		}
	}
	r.toServices = d.differing("to", names)
	once := onlyOnce[Destination](d, "to", len(nodes))
	for _, e := range nodes {
		var to Destination
		if scalar(d, e, "to", &to, parseDestination) && once(to, position(e)) {
			r.ToAddrs = append(r.ToAddrs, to)
		}
	}
}

// resolveTo finds the services of a request rule's "to".
func (d *decoder) resolveTo(q *rawRequest, services map[string]int) {
	for _, to := range q.toServices {
		if s := d.lookup(to, "service", "to", services); s >= 0 {
			q.To = append(q.To, s)
		}
	}
	slices.Sort(q.To)
}

// destinationsOf returns where requests to a service come to: of one that listens on every address, to those on
// which no other listens.
func (p *Policy) destinationsOf(service int) []Destination {
	var out []Destination
	for _, l := range p.Services[service].Listen {
		ports := PortRange{l.Port, l.Port}
		if l.Addr.IsValid() {
			out = append(out, Destination{Range{l.Addr, l.Addr}, ports})
			continue
		}
		var taken []netip.Addr
		for i, s := range p.Services {
			for _, other := range s.Listen {
				if i != service && other.Addr.IsValid() && other.Port == l.Port {
					taken = append(taken, other.Addr)
				}
			}
		}
		if len(taken) == 0 {
			out = append(out, Destination{Ports: ports})
			continue
		}
		for _, r := range without(taken) {
			out = append(out, Destination{r, ports})
		}
	}
	return out
}

// without returns all addresses but some.
func without(taken []netip.Addr) (out []Range) {
	slices.SortFunc(taken, netip.Addr.Compare)
	for _, all := range []Range{PrefixRange(netip.PrefixFrom(netip.IPv4Unspecified(), 0)), PrefixRange(netip.PrefixFrom(netip.IPv6Unspecified(), 0))} {
		for _, a := range taken {
			if !all.contains(a) {
				continue
			}
			if all.First != a {
				out = append(out, Range{all.First, a.Prev()})
			}
			if all.First = a.Next(); !all.First.IsValid() || a == all.Last {
				all = Range{}
				break
			}
		}
		if all.First.IsValid() {
			out = append(out, all)
		}
	}
	return out
}

// to returns all that the "to" of a request rule stands for; nothing: it does not ask.
func (p *Policy) to(q *Request) []Destination {
	out := slices.Clone(q.ToAddrs)
	for _, s := range q.To {
		out = append(out, p.destinationsOf(s)...)
	}
	return out
}

// froms returns the "from" of a rule in the form of destinations.
func (q *Request) froms() []Destination {
	var out []Destination
	for _, r := range q.From {
		out = append(out, Destination{Addrs: r})
	}
	return out
}

// ToNames returns the services and addresses of the rule's "to" in the words of a policy.
func (p *Policy) ToNames(q *Request) []string {
	return append(p.serviceNames(q.To), words(q.ToAddrs)...)
}

// warnNowhere warns of request rules for destinations to which no service listens.
func (d *decoder) warnNowhere(p *Policy) {
	for i := range p.Requests {
		q := &p.Requests[i]
		if len(q.To) > 0 || len(q.ToAddrs) == 0 {
			continue
		}
		listens := func(to Destination) bool {
			for s := range p.Services {
				if slices.ContainsFunc(p.destinationsOf(s), to.overlaps) {
					return true
				}
			}
			return false
		}
		if !slices.ContainsFunc(q.ToAddrs, listens) {
			d.warnf(q.Pos, `request rule %q can never match: no service listens on what its "to" names`, q.Name)
		}
	}
}
