// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"net/netip"
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

// ServiceAt returns the index of the service that a connection to an address and port
// belongs to. A specific listen wins over one on any address, for which isLocal says
// whether the address is one of this host.
func (t *Tables) ServiceAt(to netip.AddrPort, isLocal func(netip.Addr) bool) (int, bool) {
	addr := to.Addr().Unmap()
	any := -1
	for i, s := range t.Services {
		for _, l := range s.Listen {
			if l.Port != to.Port() {
				continue
			}
			if l.Addr == addr {
				return i, true
			}
			if !l.Addr.IsValid() {
				any = i
			}
		}
	}
	if any < 0 || !isLocal(addr) {
		return 0, false
	}
	return any, true
}
