// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"narthex/internal/netif"
)

// arrival is by which interface a source's SYN would come, and who is policed there. The
// zero arrival is not known.
type arrival struct {
	link     netif.Link
	services []int // that are policed there
}

// arrivalOf looks up the route to a source. That its packets come by the same way is an
// assumption, for routes need not be symmetric.
func (e *engine) arrivalOf(from netip.Addr) (a arrival, note string, err error) {
	if from.IsLinkLocalUnicast() && from.Is6() {
		return a, fmt.Sprintf("%s may come by any interface: whether it is policed there is not known", from), nil
	}
	index, err := e.net.RouteTo(from)
	switch {
	case errors.Is(err, netif.ErrNotUnicast):
		return a, "", notASource(from)
	case errors.Is(err, netif.ErrNoRoute):
		return a, fmt.Sprintf("there is no route to %s: by which interface it would come is not known", from), nil
	case err != nil:
		return a, "", err
	}
	snap, err := e.net.Snapshot()
	if err != nil {
		return a, "", err
	}
	a.link, _ = snap.Link(index)
	through := snap.Through(index)
	for _, t := range e.plan.Targets {
		if slices.Contains(through, t.Index) && e.attachedTo(t) {
			a.services = append(a.services, t.Services...)
		}
	}
	return a, "", nil
}

// notPoliced says why a service's SYNs pass on the interface, or nothing.
func (a arrival) notPoliced(service int, name string, named []string) string {
	if a.link.Index == 0 || slices.Contains(a.services, service) {
		return ""
	}
	why := "where it is not policed now: see `narthex status`"
	switch {
	case !a.link.Ethernet:
		why = "which has no Ethernet header"
	case a.link.Loopback, len(named) > 0 && !slices.ContainsFunc(named, a.link.Called):
		why = fmt.Sprintf("which service %s does not name", name)
	case !a.link.HasAddress && len(named) == 0:
		why = fmt.Sprintf("which has no address, and service %s does not name it", name)
	}
	return fmt.Sprintf("not policed: it arrives on %s, %s", a.link.Name, why)
}
