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
// who limits something must not believe that it is limited. Two kinds of things are not
// listed although they have no effect: what shapes the waiting room of a tls or tcp service
// (queue, reject, service_ends), in which nobody waits, and what lets nobody by
// (trusted_proxies, h2c).
func (p *Policy) NotEnforced() Errors {
	d := &diagnostics{file: p.File}
	for i := range p.Services {
		d.serviceNotEnforced(&p.Services[i])
	}
	for _, c := range p.Classes {
		if c.Max != 0 && !p.speaks(HTTP) {
			d.errorf(c.MaxPos, `max %d of class %q is %v, whose waiting rooms are for "protocol: http", which no service has; leave it out`, c.Max, c.Name, ErrNotEnforced)
		}
	}
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

// serviceNotEnforced reports what a tls or tcp service asks for that only http services
// have in this version.
func (d *diagnostics) serviceNotEnforced(s *Service) {
	if s.Protocol == HTTP {
		return
	}
	if s.Concurrency.Mode == ConcurrencyFixed {
		d.errorf(s.Concurrency.Pos, `concurrency %d of service %q is %v, whose waiting rooms are for "protocol: http"; write "concurrency: unlimited"`, s.Concurrency.Limit, s.Name, ErrNotEnforced)
	}
	if s.SocketMark != 0 {
		d.errorf(s.markAt, `socket_mark %#x of service %q is %v, which marks sockets of services with "protocol: http" alone; leave it out`, s.SocketMark, s.Name, ErrNotEnforced)
	}
}
