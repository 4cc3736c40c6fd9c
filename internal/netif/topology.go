// SPDX-License-Identifier: Apache-2.0

package netif

import (
	"fmt"
	"slices"
)

// topology knows which device lies below which.
type topology struct {
	links   []Link
	byIndex map[int]Link
	ports   map[int][]int // by index of the master
	bare    []int         // up, but without an address
	apart   set           // macvlan devices that are policed themselves; see separate
}

type set map[int]bool

func newTopology(links []Link) *topology {
	t := &topology{links: links, byIndex: map[int]Link{}, ports: map[int][]int{}}
	for _, l := range links {
		t.byIndex[l.Index] = l
		if l.Master != 0 {
			t.ports[l.Master] = append(t.ports[l.Master], l.Index)
		}
	}
	return t
}

// under returns the devices through which frames of a stacked device arrive, as the same
// frames with or without a VLAN tag. A veth is not stacked on its peer, and a tunnel not
// on the device that carries it: what arrives there is another packet.
func (t *topology) under(l Link) []int {
	switch l.Kind {
	case "vlan", "macvlan", "macvtap", "ipvlan", "ipvtap":
		if t.apart[l.Index] {
			return nil
		}
		if _, ok := t.byIndex[l.Lower]; ok {
			return []int{l.Lower}
		}
	case "bridge", "bond", "team":
		return t.ports[l.Index]
	}
	return nil
}

// separate has macvlan devices policed themselves, and not at the device below: siblings
// send to each other within it. The device below then leaves their hardware addresses
// alone, for all services alike, so that no service may want only the device below.
func (t *topology) separate(wanted []set) {
	apart := set{}
	for _, l := range t.links {
		if _, ok := t.byIndex[l.Lower]; l.Kind != "macvlan" || !ok || l.MAC == "" {
			continue
		}
		apart[l.Index] = true
		for _, w := range wanted {
			if !w[l.Index] && (w[l.Lower] || t.touched(l.Lower, w, set{})) {
				apart[l.Index] = false
			}
		}
	}
	t.apart = apart
}

// swallowed reports whether a device's frames go to its master and never to its own
// addresses. (The ports of a bridge do carry a link-local address.)
func (t *topology) swallowed(l Link) bool {
	master, ok := t.byIndex[l.Master]
	return ok && master.Kind != "vrf"
}

// wanted returns the devices that a service counts as its own.
func (t *topology) wanted(w Want, p *Plan) set {
	if len(w.Interfaces) > 0 {
		return t.named(w, p)
	}
	found := set{}
	for _, l := range t.links {
		switch {
		case l.Loopback || l.Kind == "vrf" || l.Kind == "ifb" || t.swallowed(l):
		case !l.Up && !l.HasAddress: // one that is down keeps its IPv4 addresses, and what is attached
		case !l.HasAddress:
			t.leaveOutBare(l)
		case !l.Ethernet:
			p.leaveOut(l)
		default:
			found[l.Index] = true
		}
	}
	return found
}

// leaveOutBare remembers an interface by which packets to the addresses of others may come.
func (t *topology) leaveOutBare(l Link) {
	if l.Ethernet && !slices.Contains(t.bare, l.Index) {
		t.bare = append(t.bare, l.Index)
	}
}

func (t *topology) named(w Want, p *Plan) set {
	found := set{}
	for _, name := range w.Interfaces {
		switch l, ok := t.called(name); {
		case !ok:
			p.absent(w, name, ErrMissing{name})
		case l.Kind == "vrf":
			p.absent(w, name, fmt.Errorf("interface %q is a VRF: name the interfaces in it instead", name))
		case l.Kind == "ifb":
			p.absent(w, name, fmt.Errorf("interface %q is an ifb: name the interfaces whose packets take a turn by it instead", name))
		case l.Hidden:
			p.absent(w, name, fmt.Errorf("interface %q is an ipvlan in mode L3S, whose packets pass no program: use mode L2 or L3, or name the device below it", name))
		case !l.Ethernet:
			p.absent(w, name, fmt.Errorf("interface %q has no Ethernet header: name the device that carries it instead, or take it out of `interfaces`", name))
		default:
			found[l.Index] = true
		}
	}
	return found
}

func (t *topology) called(name string) (Link, bool) {
	for _, l := range t.links {
		if l.Called(name) {
			return l, true
		}
	}
	return Link{}, false
}

// lowest replaces every wanted device that another wanted one lies below.
func (t *topology) lowest(wanted set) set {
	out := set{}
	for index := range wanted {
		t.expand(index, wanted, set{}, out)
	}
	return out
}

// expand adds the devices to attach to in order to see the frames of one device. The
// kernel allows no loop of stacked devices, but a snapshot taken amid changes can hold
// one: seen ends it.
func (t *topology) expand(index int, wanted, seen, out set) {
	if seen[index] {
		return
	}
	seen[index] = true
	if !t.touched(index, wanted, set{}) {
		out[index] = true
		return
	}
	for _, lower := range t.under(t.byIndex[index]) {
		t.expand(lower, wanted, seen, out)
	}
}

// touched reports whether a wanted device lies below this one.
func (t *topology) touched(index int, wanted, seen set) bool {
	if seen[index] {
		return false
	}
	seen[index] = true
	for _, lower := range t.under(t.byIndex[index]) {
		if wanted[lower] || t.touched(lower, wanted, seen) {
			return true
		}
	}
	return false
}

// Through returns the devices through which a packet comes that arrives on an interface:
// the interface first, then what it is stacked on.
func (s Snapshot) Through(index int) []int {
	t := newTopology(s.Links)
	through := []int{index}
	for i := 0; i < len(through); i++ {
		for _, lower := range t.under(t.byIndex[through[i]]) {
			if !slices.Contains(through, lower) {
				through = append(through, lower)
			}
		}
	}
	return through
}

// Link returns the interface with that index.
func (s Snapshot) Link(index int) (Link, bool) {
	i := slices.IndexFunc(s.Links, func(l Link) bool { return l.Index == index })
	if i < 0 {
		return Link{}, false
	}
	return s.Links[i], true
}
