// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
)

// checkListens reports an address and port that is there twice.
func (d *decoder) checkListens(p *Policy) {
	type owner struct {
		service *Service
		pos     Pos
	}
	owners := map[Listen]owner{}
	for i := range p.Services {
		s := &p.Services[i]
		for j, l := range s.Listen {
			first, twice := owners[l]
			switch {
			case !twice:
				owners[l] = owner{s, s.listenAt[j]}
			case first.service == s:
				d.errorf(s.listenAt[j], "listen: %s is there twice, first at line %d; remove one", l, first.pos.Line)
			default:
				d.errorf(s.listenAt[j], "listen: %s belongs to service %q at line %d; a listen belongs to one service", l, first.service.Name, first.pos.Line)
			}
		}
	}
}

// warnTaken warns of a specific listen that takes an address and port from a * listen of
// another service also on interfaces where its own service is not policed.
func (d *decoder) warnTaken(p *Policy) {
	anywhere := map[uint16]*Service{}
	for i := range p.Services {
		for _, l := range p.Services[i].Listen {
			if !l.Addr.IsValid() {
				anywhere[l.Port] = &p.Services[i]
			}
		}
	}
	type pair struct{ from, to *Service }
	advice := map[pair]string{}
	for i := range p.Services {
		s := &p.Services[i]
		for j, l := range s.Listen {
			from := anywhere[l.Port]
			// A loopback address is reached through lo alone; see loopbackSeen.
			if from == nil || from == s || !l.Addr.IsValid() || l.Addr.IsLoopback() {
				continue
			}
			a, known := advice[pair{from, s}]
			if !known {
				a = uncovered(from, s)
				advice[pair{from, s}] = a
			}
			if a != "" {
				d.warnf(s.listenAt[j], `listen: service %q takes %s from "*:%d" of service %q (line %d) also on interfaces where %q is not policed: nobody polices it there; %s`,
					s.Name, l, l.Port, from.Name, from.Pos.Line, s.Name, a)
			}
		}
	}
}

// uncovered says what to do if a service's interfaces are not surely among those of
// another one, which takes an address from it. Nobody knows the default ones in advance.
func uncovered(from, to *Service) string {
	if len(from.Interfaces) == 0 && len(to.Interfaces) == 0 {
		return ""
	}
	if len(from.Interfaces) == 0 || len(to.Interfaces) == 0 {
		return `give both services the same "interfaces"`
	}
	var missing []string
	for _, iface := range from.Interfaces {
		if !slices.Contains(to.Interfaces, iface) {
			missing = append(missing, iface)
		}
	}
	if len(missing) == 0 {
		return ""
	}
	return fmt.Sprintf(`add %s to "interfaces" of %q`, listing(missing, "and"), to.Name)
}
