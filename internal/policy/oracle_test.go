// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"
)

// oracle finds the first rule that matches by trying one after the other. It shares
// nothing with the compiler and is written to be obviously right.
func oracle(p *Policy, service int, from netip.Addr, port uint16) int {
	return learnedOracle(p, service, NotLearned, from, port, 0)
}

// learnedOracle is the same for a source that is remembered in a class, and in lists.
func learnedOracle(p *Policy, service, class int, from netip.Addr, port uint16, lists uint64) int {
	for i, r := range p.Connections {
		if len(r.Learned) > 0 && !slices.Contains(r.Learned, class) {
			continue
		}
		to := len(r.To) == 0 || slices.Contains(r.To, service)
		listed := slices.ContainsFunc(r.FromLists, func(l int) bool { return lists&(1<<l) != 0 })
		addr := len(r.From)+len(r.FromLists) == 0 || listed || slices.ContainsFunc(r.From, func(a Range) bool {
			return a.First.Is4() == from.Is4() && a.First.Compare(from) <= 0 && from.Compare(a.Last) <= 0
		})
		ports := len(r.FromPort) == 0 || slices.ContainsFunc(r.FromPort, func(a PortRange) bool {
			return a.First <= port && port <= a.Last
		})
		if to && addr && ports {
			return i
		}
	}
	return -1
}
