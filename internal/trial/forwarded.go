// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"net/netip"
	"slices"
	"strings"

	"narthex/internal/httphead"
	"narthex/internal/policy"
)

// mostForwarded is how many elements of one X-Forwarded-For the data path looks at.
const mostForwarded = 32

// ForwardedFor returns whom the headers of a request that a trusted proxy sends name in
// X-Forwarded-For: the last address that is not a trusted proxy's, or the first of all. It is
// firm if it is not a trusted proxy's, and invalid if nobody is named.
func ForwardedFor(headers []policy.NameValue, trusted func(netip.Addr) bool) (client netip.Addr, firm bool) {
	for _, h := range slices.Backward(headers) {
		if h.Name != "x-forwarded-for" {
			continue
		}
		looked := 0
		for _, element := range slices.Backward(strings.Split(h.Value, ",")) {
			element = strings.Trim(element, " \t")
			if element == "" {
				continue
			}
			addr, ok := httphead.Address(element)
			if !ok {
				return netip.Addr{}, false // what is said names nobody
			}
			if !trusted(addr) {
				return addr, true
			}
			if looked++; looked == mostForwarded {
				return netip.Addr{}, false
			}
			client = addr
		}
	}
	return client, false
}
