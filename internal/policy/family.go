// SPDX-License-Identifier: Apache-2.0

package policy

import "fmt"

// families is the address families that packets can have.
type families struct{ v4, v6 bool }

// families returns the families of packets to a service: both for a * listen.
func (s *Service) families() families {
	var f families
	for _, l := range s.Listen {
		f.v4 = f.v4 || !l.Addr.Is6()
		f.v6 = f.v6 || !l.Addr.Is4()
	}
	return f
}

func (f families) or(g families) families { return families{f.v4 || g.v4, f.v6 || g.v6} }

// of reports whether the family of a range is among them.
func (f families) of(r Range) bool {
	if r.First.Is4() {
		return f.v4
	}
	return f.v6
}

// familySentence says what the families that the services of a rule listen on have to do
// with it that the rule never matches, or nothing. The rules are those that match first
// what is left of it.
func familySentence(p *Policy, r *Connection, served families, rules map[int]bool) string {
	asked := families{}
	for _, from := range r.From {
		asked = asked.or(families{from.First.Is4(), from.First.Is6()})
	}
	never, only := "IPv4", "IPv6"
	if !served.v6 {
		never, only = only, never
	}
	switch {
	case served.v4 && served.v6 || never == "IPv4" && !asked.v4 || never == "IPv6" && !asked.v6:
		return ""
	case asked.v4 && asked.v6:
		return fmt.Sprintf("its services listen on %s alone, so no %s source comes, and earlier rules match the others first: %s; move it up or remove it", only, never, ruleNames(p.connectionAt, rules))
	}
	return fmt.Sprintf(`its "from" is %s alone, and its services listen on %s alone; correct "from", add a listen, or remove it`, never, only)
}
