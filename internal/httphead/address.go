// SPDX-License-Identifier: Apache-2.0

package httphead

import (
	"net/netip"
	"strings"
)

// Address reads an address of X-Forwarded-For, with or without a port; one of IPv6 also in
// brackets.
func Address(s string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(s)
	if at, wrong := netip.ParseAddrPort(s); wrong == nil {
		addr, err = at.Addr(), nil
	}
	if inner, ok := strings.CutPrefix(s, "["); ok && strings.HasSuffix(inner, "]") {
		addr, err = netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		if addr.Is4() {
			return addr, false
		}
	}
	return addr.Unmap(), err == nil && addr.Zone() == ""
}
