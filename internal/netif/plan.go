// SPDX-License-Identifier: Apache-2.0

package netif

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"narthex/internal/policy"
)

// Want is what one service asks for.
type Want struct {
	Service    string
	Interfaces []string // empty: those with an address
	XDP        policy.XDPMode
	Requests   bool // it decides about requests, or connections, and not about SYNs alone
}

// Target is an interface to police and the services, by their position among the
// wants, whose SYNs are decided there.
type Target struct {
	Name     string
	Index    int
	XDP      policy.XDPMode
	Services []int
	// Ports are the devices whose frames XDP on this one may show under their own index.
	Ports []int
	// Uppers are the hardware addresses of macvlan devices above that are targets
	// themselves.
	Uppers []net.HardwareAddr
}

// Absent is an interface that a service names and that cannot be policed.
type Absent struct {
	Service   string
	Interface string
	Err       error // says why, and what to do
}

// Plan says where to attach.
type Plan struct {
	Targets []Target // by index of the interface
	Absent  []Absent
	Notes   []string // interfaces that were left out, in sentences
}

// ErrMissing is the Err of an interface that does not exist.
type ErrMissing struct{ Interface string }

func (e ErrMissing) Error() string {
	return fmt.Sprintf("interface %q does not exist: create it or correct `interfaces` in the policy", e.Interface)
}

// NewPlan decides where to attach so that every packet to a service is decided exactly
// once, at the lowest device that it passes among those that count for the service.
//
// Wanted are the interfaces that the service names, or those that are up and have an
// address. A device that is stacked on a wanted one would see the same packets again: it
// is replaced by what is below it, where the program reads them through their VLAN
// tags. For a bridge that is all of its ports, for packets arrive by any of them.
func NewPlan(snap Snapshot, wants []Want) Plan {
	t := newTopology(snap.Links)
	var p Plan
	wanted := make([]set, len(wants))
	for i, w := range wants {
		wanted[i] = t.wanted(w, &p)
	}
	t.separate(wanted)
	services := map[int][]int{}
	for i := range wants {
		for index := range t.lowest(wanted[i]) {
			if l := t.byIndex[index]; !l.Ethernet || l.Hidden {
				p.leaveOut(l)
				continue
			}
			services[index] = append(services[index], i)
		}
	}
	uppers := t.uppers(wanted)
	for index, on := range services {
		target := Target{Name: t.byIndex[index].Name, Index: index, Services: on, Uppers: uppers[index]}
		var conflict bool
		if target.XDP, conflict = xdpMode(wants, on); conflict {
			p.note(fmt.Sprintf("services on interface %q ask for different modes of XDP: %q is used", target.Name, target.XDP))
		}
		p.mindRequests(&target, wants)
		t.mindPorts(&target)
		p.Targets = append(p.Targets, target)
	}
	p.noteVRF(t, wants, wanted)
	p.noteBare(t, services)
	slices.SortFunc(p.Targets, func(a, b Target) int { return a.Index - b.Index })
	slices.Sort(p.Notes)
	return p
}

// mindRequests has tcx take the place of generic XDP where requests are decided. Newer kernels copy most
// packets for generic XDP, and forget how long their Ethernet headers are: tcx programs, which decide
// about requests, would see these packets without.
func (p *Plan) mindRequests(target *Target, wants []Want) {
	if target.XDP == policy.XDPGeneric && slices.ContainsFunc(target.Services, func(i int) bool { return wants[i].Requests }) {
		target.XDP = policy.XDPOff
		p.note(fmt.Sprintf("interface %q: tcx is used in place of generic XDP, behind which requests cannot be decided", target.Name))
	}
}

// mindPorts settles what a bond's or a team's ports mean for XDP. Native XDP on a bond is
// run by its ports, binds it to ports and modes that support it, and sees their index.
func (t *topology) mindPorts(target *Target) {
	switch t.byIndex[target.Index].Kind {
	case "bridge":
		return
	case "bond", "team":
		if target.XDP == policy.XDPAuto {
			target.XDP = policy.XDPOff
		}
	}
	target.Ports = t.ports[target.Index]
}

// uppers returns the hardware addresses that a device leaves to macvlan devices above it.
func (t *topology) uppers(wanted []set) map[int][]net.HardwareAddr {
	found := map[int][]net.HardwareAddr{}
	for _, l := range t.links {
		if !t.apart[l.Index] {
			continue
		}
		below := set{}
		for _, w := range wanted {
			if w[l.Lower] || t.touched(l.Lower, w, set{}) {
				t.expand(l.Lower, w, set{}, below)
			}
		}
		for index := range below {
			found[index] = append(found[index], net.HardwareAddr(l.MAC))
		}
	}
	return found
}

// xdpMode returns the first explicit mode among the services on an interface.
func xdpMode(wants []Want, on []int) (mode policy.XDPMode, conflict bool) {
	mode = policy.XDPAuto
	for _, i := range on {
		switch m := wants[i].XDP; {
		case m == "" || m == policy.XDPAuto || m == mode:
		case mode == policy.XDPAuto:
			mode = m
		default:
			conflict = true
		}
	}
	return mode, conflict
}

func (p *Plan) leaveOut(l Link) {
	if l.Hidden {
		p.note(fmt.Sprintf("interface %q is an ipvlan in mode L3S, whose packets pass no program: it is left out; use mode L2 or L3", l.Name))
		return
	}
	p.note(fmt.Sprintf("interface %q has no Ethernet header: it is left out", l.Name))
}

// noteVRF names interfaces in a VRF whose services have requests to decide. The sockets of a VRF are bound
// to it, and the kernel finds none of these for a program that asks on one of its interfaces.
func (p *Plan) noteVRF(t *topology, wants []Want, wanted []set) {
	for i, w := range wants {
		for index := range wanted[i] {
			if l := t.byIndex[index]; w.Requests && t.byIndex[l.Master].Kind == "vrf" {
				p.note(fmt.Sprintf("interface %q is in VRF %q: SYNs are policed there, but requests go by undecided", l.Name, t.byIndex[l.Master].Name))
			}
		}
	}
}

// noteBare names interfaces without an address by which services may still be reached:
// those that are not policed, nor below one that is.
func (p *Plan) noteBare(t *topology, services map[int][]int) {
	below := set{}
	for index := range services {
		for _, lower := range t.under(t.byIndex[index]) {
			below[lower] = true
		}
		if t.apart[index] {
			below[t.byIndex[index].Lower] = true
		}
	}
	var names []string
	for _, index := range t.bare {
		if _, policed := services[index]; !policed && !below[index] {
			names = append(names, t.byIndex[index].Name)
		}
	}
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	what := strings.Join(names[:min(len(names), 5)], ", ")
	if len(names) > 5 {
		what += fmt.Sprintf(" and %d more", len(names)-5)
	}
	p.note(fmt.Sprintf("without an address and not policed: %s; name them in `interfaces` if clients come by them", what))
}

func (p *Plan) note(sentence string) {
	if !slices.Contains(p.Notes, sentence) {
		p.Notes = append(p.Notes, sentence)
	}
}

func (p *Plan) absent(w Want, name string, err error) {
	p.Absent = append(p.Absent, Absent{Service: w.Service, Interface: name, Err: err})
}
