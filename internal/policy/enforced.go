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
// who limits something must not believe that it is limited. What only shapes the waiting
// room (queue, reject, service_ends, reserve, trusted_proxies, h2c) is not listed: nobody
// waits while concurrency is unlimited.
func (p *Policy) NotEnforced() Errors {
	d := &diagnostics{file: p.File}
	for _, s := range p.Services {
		if s.Concurrency.Mode == ConcurrencyFixed {
			d.errorf(s.Concurrency.Pos, `concurrency %d of service %q is %v: write "concurrency: unlimited" or leave it out`, s.Concurrency.Limit, s.Name, ErrNotEnforced)
		}
	}
	for _, c := range p.Classes {
		if c.Max != 0 {
			d.errorf(c.MaxPos, `max %d of class %q is %v: leave it out`, c.Max, c.Name, ErrNotEnforced)
		}
	}
	if n := len(p.Requests); n > 0 {
		d.errorf(p.Requests[0].Pos, `%s %v: leave "requests" out`, plural(n, "request rule is", "request rules are"), ErrNotEnforced)
	}
	errs, _ := d.err().(Errors)
	return errs
}
