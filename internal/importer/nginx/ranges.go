// SPDX-License-Identifier: Apache-2.0

package nginx

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// span is what addresses a text stands for: an address, a prefix or a range.
type span struct{ first, last netip.Addr }

// spanOf reads a text of readRange or trust.
func spanOf(text string) (span, bool) {
	if first, last, ok := strings.Cut(text, "-"); ok {
		a, err := netip.ParseAddr(first)
		b, err2 := netip.ParseAddr(last)
		return span{a, b}, err == nil && err2 == nil
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return span{a, a}, true
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return span{}, false
	}
	last := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(last)*8; bit++ {
		last[bit/8] |= 0x80 >> (bit % 8)
	}
	end, _ := netip.AddrFromSlice(last) // as long as an address is
	return span{p.Masked().Addr(), end}, true
}

// meets reports whether two texts have an address in common. It errs on the side of yes.
func meets(a, b string) bool {
	x, okX := spanOf(a)
	y, okY := spanOf(b)
	return !okX || !okY || x.first.Is4() == y.first.Is4() && !x.last.Less(y.first) && !y.last.Less(x.first)
}

// overlapping returns an error if ranges of a geo block have addresses in common: which of
// them holds is a matter of their order there.
func overlapping(list []ranged) error {
	var ranges []ranged
	for _, r := range list {
		if strings.Contains(r.from, "-") {
			ranges = append(ranges, r)
		}
	}
	slices.SortFunc(ranges, func(a, b ranged) int {
		x, _ := spanOf(a.from)
		y, _ := spanOf(b.from)
		return x.first.Compare(y.first)
	})
	for i := 1; i < len(ranges); i++ {
		if meets(ranges[i-1].from, ranges[i].from) {
			return fmt.Errorf("the ranges %s and %s of its geo block overlap", ranges[i-1].from, ranges[i].from)
		}
	}
	return nil
}
