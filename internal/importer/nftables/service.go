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

// opened makes services of the ports that a rule accepts, if one above it is about all ports: that one holds there.
func (t *translator) opened(r *rule) {
	if t.general && r.verdict == "accept" && len(r.ports) > 0 {
		t.to(r)
	}
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
	if except == nil && t.stacked(r, out) {
		return
	}
	families := []int{4, 6}
	switch {
	case r.family != 0:
		families = []int{r.family}
	case slices.Equal(out.From, []string{"::/0"}):
		families = []int{6}
	}
	for _, f := range families {
		if t.hasRate(out.To, f) {
			t.draft.Leave(r.Origin, r.text, "a connection is in one rule, not in several, and one above it decides for these", "write this limit into the limits of that rule as well")
			return
		}
	}
	if r.from == nil || r.not {
		t.limit(out.To, families)
		for _, above := range t.ending {
			if above.Limited() && !t.within[above] && meet(above, out) {
				t.leave(r, "a connection is in one rule, not in several: those of rule "+above.Name+" are not in this one")
			}
		}
	}
	out.Name = t.draft.Name("connection", "limit")
	t.insert(r, out, except, func(*draft.Rule) bool { return false })
}

// stacked gives a limit to the rule above it that has one for the same connections. A limit of both families, where
// that is of IPv4, goes on as one of IPv6. It reports whether nothing is left to do.
func (t *translator) stacked(r *rule, out *draft.Rule) bool {
	above := len(t.draft.Connections) - 1
	if above < 0 || t.within[out] {
		return false
	}
	a := t.draft.Connections[above]
	v4 := len(out.From) == 0 && slices.Equal(a.From, []string{"0.0.0.0/0"})
	if !a.Limited() || t.within[a] || t.excepts[a] != nil || !slices.Equal(a.To, out.To) || !slices.Equal(t.beside[a], t.beside[out]) || !v4 && !slices.Equal(a.From, out.From) {
		return false
	}
	for _, l := range out.All() {
		a.Also(l)
	}
	a.Note = append(a.Note, out.Note...)
	a.Note = append(a.Note, fmt.Sprintf("Also %s:%d.", r.File, r.Line))
	if v4 {
		out.From = []string{"::/0"}
		t.draft.Leave(r.Origin, r.text, "IPv4 and IPv6 have a bucket each, where the firewall counts both together", "lower the limits if they must not have both")
	}
	return !v4
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
