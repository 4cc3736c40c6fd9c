// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"net/netip"
	"slices"

	"narthex/internal/importer/draft"
	"narthex/internal/policy"
)

// to returns the services that a rule is about, making those that are not there yet. Without
// ports it is about all.
func (t *translator) to(r *rule) ([]string, bool) {
	var out []string
	addrs := []string{"*"}
	if r.daddr != nil {
		addrs = r.daddr
		if len(r.ports) == 0 {
			t.leave(r, "it names an address of the server and no port")
			return nil, false
		}
	}
	for _, p := range r.ports {
		if int(p.last)-int(p.first) >= maxPorts {
			t.leave(r, fmt.Sprintf("it is about a range of more than %d ports", maxPorts))
			return nil, false
		}
		for port := int(p.first); port <= int(p.last); port++ {
			for _, addr := range addrs {
				name, ok := t.service(r, addr, uint16(port))
				if !ok {
					return nil, false
				}
				if !slices.Contains(out, name) {
					out = append(out, name)
				}
			}
		}
	}
	return out, true
}

func (t *translator) service(r *rule, addr string, port uint16) (string, bool) {
	listen, wish := fmt.Sprintf("*:%d", port), fmt.Sprintf("port-%d", port)
	if addr != "*" {
		a, err := netip.ParseAddr(addr)
		if err != nil {
			t.leave(r, "a service listens at one address, not at "+addr)
			return "", false
		}
		listen, wish = netip.AddrPortFrom(a, port).String(), fmt.Sprintf("port-%d-at-%s", port, a)
	}
	if name := t.services[listen]; name != "" {
		return name, true
	}
	s := &draft.Service{Origin: r.Origin, Name: t.draft.Name("service", wish), Listen: []string{listen}, Protocol: policy.TCP}
	t.services[listen], t.ports[listen] = s.Name, port
	t.draft.Services = append(t.draft.Services, s)
	return s.Name, true
}

// add adds a rate, unless there is one already for the same connections.
func (t *translator) add(r *rule, out, except *draft.Rule) {
	families := []int{4, 6}
	if r.family != 0 {
		families = []int{r.family}
	}
	for _, f := range families {
		if t.hasRate(out.To, f) {
			t.draft.Leave(r.Origin, r.text, "Narthex asks no rule after the first that matches, so that a connection is in one limit, not in several", "keep the one of the two that matters more")
			return
		}
	}
	if r.from == nil || r.not {
		t.limit(out.To, families)
		for _, above := range t.ending {
			if above.Rate != "" && !t.within[above] && meet(above, out) {
				t.leave(r, "a connection is in one limit, not in several: those of rule "+above.Name+" are not in this one")
			}
		}
	}
	out.Name = t.draft.Name("connection", "limit")
	t.insert(r, out, except, func(*draft.Rule) bool { return false })
}

// hasRate reports whether there is a rate for anybody of a family at one of these services.
func (t *translator) hasRate(to []string, family int) bool {
	if len(to) == 0 {
		to = []string{""}
	}
	return t.limited[fmt.Sprint(" ", family)] || slices.ContainsFunc(to, func(s string) bool { return t.limited[fmt.Sprint(s, " ", family)] })
}

func (t *translator) limit(to []string, families []int) {
	if len(to) == 0 {
		to = []string{""}
	}
	for _, f := range families {
		for _, s := range to {
			t.limited[fmt.Sprint(s, " ", f)] = true
		}
	}
}
