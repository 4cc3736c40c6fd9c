// SPDX-License-Identifier: Apache-2.0

package draft

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// writable reports whether a policy file can hold the texts.
func writable(texts ...[]string) bool {
	bad := func(s string) bool {
		return !utf8.ValidString(s) || strings.IndexFunc(s, func(r rune) bool {
			return r < ' ' || r >= 0x7f && r < 0xa0 || r == 0xfeff || r == 0xfffe || r == 0xffff
		}) >= 0
	}
	return !slices.ContainsFunc(texts, func(list []string) bool { return slices.ContainsFunc(list, bad) })
}

// unwritable takes out the rules that a policy file cannot hold.
func (d *Draft) unwritable() {
	for _, r := range slices.Concat(d.Connections, d.Requests) {
		ok := writable(r.From, r.Path, r.Host, r.Method, r.SNI)
		for _, p := range slices.Concat(r.Cookie, r.Header, r.Query) {
			ok = ok && writable([]string{p.Name}, p.Values)
		}
		if !ok {
			d.Leave(r.Origin, "rule "+r.Name, "it has bytes that a policy file does not have: control characters, or no UTF-8", "")
			d.remove(r)
		}
	}
}
