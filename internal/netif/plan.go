// SPDX-License-Identifier: Apache-2.0

package netif

import (
	"fmt"
	"slices"

	"narthex/internal/policy"
)

// Want is what one service asks for.
type Want struct {
	Service    string
	Interfaces []string // empty: those with an address
	XDP        policy.XDPMode
}

// Target is an interface to police and the services, by their position among the
// wants, whose SYNs are decided there.
type Target struct {
	Name     string
	Index    int
	XDP      policy.XDPMode
	Services []int
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
	services := map[int][]int{}
	for i, w := range wants {
		wanted := t.wanted(w, &p)
		for index := range t.lowest(wanted) {
			if !t.byIndex[index].Ethernet {
				p.leaveOut(t.byIndex[index])
				continue
			}
			services[index] = append(services[index], i)
		}
	}
	for index, on := range services {
		mode, conflict := xdpMode(wants, on)
		name := t.byIndex[index].Name
		if conflict {
			p.note(fmt.Sprintf("services on interface %q ask for different modes of XDP: %q is used", name, mode))
		}
		p.Targets = append(p.Targets, Target{Name: name, Index: index, XDP: mode, Services: on})
	}
	slices.SortFunc(p.Targets, func(a, b Target) int { return a.Index - b.Index })
	slices.Sort(p.Notes)
	return p
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
	p.note(fmt.Sprintf("interface %q has no Ethernet header: it is left out", l.Name))
}

func (p *Plan) note(sentence string) {
	if !slices.Contains(p.Notes, sentence) {
		p.Notes = append(p.Notes, sentence)
	}
}

func (p *Plan) absent(w Want, name string, err error) {
	p.Absent = append(p.Absent, Absent{Service: w.Service, Interface: name, Err: err})
}
