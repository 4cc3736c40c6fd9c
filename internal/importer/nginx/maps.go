// SPDX-License-Identifier: Apache-2.0

package nginx

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// readMap reads a map block.
func readMap(d *directive) (string, *variable) {
	if len(d.args) != 2 {
		return "", nil
	}
	name, ok := variableOf(d.args[1])
	if !ok {
		return "", nil
	}
	v := &variable{Origin: d.Origin, source: d.args[0], texts: map[string]string{}}
	for _, e := range d.block {
		switch value := strings.Join(e.args, " "); {
		case e.name == "hostnames" && len(e.args) == 0:
			v.trouble = errors.New(`its map has "hostnames"`)
		case e.name == "volatile" && len(e.args) == 0:
		case e.name == "default":
			v.fallback = value
		case strings.HasPrefix(e.name, "~"):
			expr, caseless := strings.CutPrefix(e.name[1:], "*")
			v.patterns = append(v.patterns, pattern{expr, caseless, value})
		default:
			text := strings.TrimPrefix(e.name, `\`)
			v.texts[strings.ToLower(text)] = value
			v.order = append(v.order, text)
		}
	}
	return name, v
}

// readGeo reads a geo block.
func readGeo(d *directive) (string, *variable) {
	if len(d.args) == 0 || len(d.args) > 2 {
		return "", nil
	}
	name, ok := variableOf(d.args[len(d.args)-1])
	if !ok {
		return "", nil
	}
	v := &variable{Origin: d.Origin, geo: []ranged{}}
	if len(d.args) == 2 && !slices.Contains(clients, strings.Trim(d.args[0], "${}")) {
		v.trouble = fmt.Errorf("its geo block looks up %s", d.args[0])
	}
	for _, e := range d.block {
		value := strings.Join(e.args, " ")
		switch e.name {
		case "default":
			v.fallback = value
		case "ranges":
		case "proxy", "proxy_recursive", "delete", "include":
			v.trouble = fmt.Errorf("its geo block has %q", e.name)
		default:
			r, err := readRange(e.name)
			if err != nil {
				v.trouble = err
			}
			r.value = value
			v.geo = append(v.geo, r)
		}
	}
	if err := overlapping(v.geo); v.trouble == nil {
		v.trouble = err
	}
	return name, v
}

func readRange(text string) (ranged, error) {
	if first, last, ok := strings.Cut(text, "-"); ok {
		a, err := netip.ParseAddr(first)
		b, err2 := netip.ParseAddr(last)
		if err != nil || err2 != nil || a.Is4() != b.Is4() || b.Less(a) {
			return ranged{}, fmt.Errorf("its geo block has %q", text)
		}
		return ranged{from: a.String() + "-" + b.String()}, nil
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return ranged{from: a.String(), width: a.BitLen()}, nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return ranged{}, fmt.Errorf("its geo block has %q", text)
	}
	return ranged{from: p.Masked().String(), width: p.Bits()}, nil
}
