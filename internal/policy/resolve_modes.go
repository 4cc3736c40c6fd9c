// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"slices"
)

// modeClaims are the services that want their interfaces attached in one mode.
type modeClaims struct {
	anywhere *Service            // the first on the default interfaces
	named    map[string]*Service // the first on each named interface
	physical *Service            // the first that names one which can be a default one
}

// notLoopback reports whether an interface can be among the default ones.
func notLoopback(iface string) bool { return iface != "lo" }

// clash returns a service of the claims that can share an interface with s.
func (m *modeClaims) clash(s *Service) *Service {
	if len(s.Interfaces) == 0 {
		return cmp.Or(m.anywhere, m.physical)
	}
	for _, iface := range s.Interfaces {
		if other := m.named[iface]; other != nil {
			return other
		}
	}
	if slices.ContainsFunc(s.Interfaces, notLoopback) {
		return m.anywhere
	}
	return nil
}

func (m *modeClaims) add(s *Service) {
	if len(s.Interfaces) == 0 {
		m.anywhere = cmp.Or(m.anywhere, s)
	}
	for _, iface := range s.Interfaces {
		m.named[iface] = cmp.Or(m.named[iface], s)
		if notLoopback(iface) {
			m.physical = cmp.Or(m.physical, s)
		}
	}
}

// checkModes reports services that can share an interface and want it attached in
// different ways.
func (d *decoder) checkModes(p *Policy) {
	explicit := []XDPMode{XDPNative, XDPGeneric, XDPOff}
	claims := map[XDPMode]*modeClaims{}
	for _, mode := range explicit {
		claims[mode] = &modeClaims{named: map[string]*Service{}}
	}
	for i := range p.Services {
		s := &p.Services[i]
		if s.XDP == XDPAuto {
			continue
		}
		for _, mode := range explicit {
			if other := claims[mode].clash(s); mode != s.XDP && other != nil {
				d.errorf(s.xdpAt, "service %q has xdp %s, but service %q at line %d has xdp %s and both can be on one interface; give them one mode or different interfaces",
					s.Name, s.XDP, other.Name, other.Pos.Line, mode)
				break
			}
		}
		claims[s.XDP].add(s)
	}
}
