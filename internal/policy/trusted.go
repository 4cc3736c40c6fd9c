// SPDX-License-Identifier: Apache-2.0

package policy

import "strings"

// trustedError says that a service trusts more proxies than tables hold.
type trustedError struct {
	service int
	err     error
}

func (e *trustedError) Error() string { return e.err.Error() }

// buildTrusted makes the tables of trusted proxies. Services that trust the same share them.
func (c *compiler) buildTrusted(t *Tables) error {
	known := map[string]Roots{}
	for i := range c.policy.Services {
		ranges := c.policy.Services[i].TrustedProxies
		name := strings.Join(words(ranges), " ")
		r, ok := known[name]
		if !ok {
			var err error
			if r, err = c.trustedRoots(ranges); err != nil {
				return &trustedError{i, err}
			}
			known[name] = r
		}
		t.Services[i].Trusted = r
	}
	return nil
}

func (c *compiler) trustedRoots(ranges []Range) (r Roots, err error) {
	var v4, v6 []prefix
	for _, from := range ranges {
		for _, p := range from.Prefixes() {
			if p.Addr().Is4() {
				v4 = append(v4, newPrefix(p, RuleEntry(0)))
			} else {
				v6 = append(v6, newPrefix(p, RuleEntry(0)))
			}
		}
	}
	if len(v4)+len(v6) > maxPrefixes {
		return r, errManyPrefixes
	}
	if r.RootV4, err = c.forest.trie(v4); err != nil {
		return r, err
	}
	r.RootV6, err = c.forest.trie(v6)
	return r, err
}

// trie builds the trie of prefixes, in any order.
func (f *forest) trie(list []prefix) (Entry, error) {
	list, err := f.merge(list)
	if err != nil {
		return none, err
	}
	return f.build(list, 0, none)
}

func (c *compiler) blameTrusted(d *diagnostics, e *trustedError) {
	s := &c.policy.Services[e.service]
	d.errorf(s.Pos, `the tables would be too large: "trusted_proxies" of service %q has %s; write prefixes instead of ranges, or merge neighbouring prefixes`,
		s.Name, plural(len(s.TrustedProxies), "entry", "entries"))
}
