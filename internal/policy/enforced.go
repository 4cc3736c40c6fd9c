// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
)

// ErrNotEnforced is wrapped by the error of Override for a setting that is valid but that
// this version does not enforce yet.
var ErrNotEnforced = errors.New("not enforced by this version yet")

// NotEnforced returns one sentence for each thing in the policy that is valid but that
// this version does not enforce, by position, or nil. `narthex run` refuses such a policy:
// who limits something must not believe that it is limited. Not listed, although it has no
// effect, is what lets nobody by (trusted_proxies).
func (p *Policy) NotEnforced() Errors {
	d := &diagnostics{file: p.File}
	for _, r := range p.Connections {
		if len(r.Learned) > 0 {
			d.errorf(r.Pos, `"learned" of connection rule %q is %v: nobody is learned without request rules; remove the rule`, r.Name, ErrNotEnforced)
		}
	}
	if n := len(p.Requests); n > 0 {
		d.errorf(p.Requests[0].Pos, `%s %v: leave "requests" out`, plural(n, "request rule is", "request rules are"), ErrNotEnforced)
	}
	errs, _ := d.err().(Errors)
	return errs
}
