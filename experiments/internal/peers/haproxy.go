// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"net/netip"
	"slices"

	"narthex/internal/lab"
)

// trackers is how many counters HAProxy keeps for a request (MAX_SESS_STKCTR).
const trackers = 3

// HAProxy is HAProxy in front of a server. It follows the configuration manual of
// version 2.6, "http-request deny", "http-request set-priority-class", "http-request
// track-sc0", "stick-table" and the server's "maxconn", and "Four Examples of HAProxy Rate
// Limiting" of its makers.
//
// A rate is that of what was let through: a request is tracked after the rule that denies.
// Tracked before it, as in some examples, those that are denied count too, and clients that
// go on asking never get another answer. The rate is measured over a sliding second; a
// burst has no counterpart.
//
// With MaxConn, connections to the server are kept and shared ("http-reuse always"): the
// requests that wait are in HAProxy's queue, and each connection that it keeps is one for
// which the server has a process. It is at its best, by far, with as many as the server has
// processes. Without, requests would wait in the server's backlog while its processes keep
// idle connections; so each connection is closed after its answer ("option
// http-server-close").
type HAProxy struct {
	Listen  []netip.AddrPort
	Backlog int
	CPUs    []int
	Origin  netip.AddrPort

	MaxConn    int         // requests at the origin at once, beyond which they queue; unlimited if 0
	Priorities []Priority  // in the queue; the first match wins, what matches none has priority 0
	Deny       []RateLimit // beyond it the answer is 503; at most three
}

// Follows says which documentation the configuration follows.
func (HAProxy) Follows() string {
	return `https://docs.haproxy.org/2.6/configuration.html sections 4.2 (http-request deny, set-priority-class, track-sc0; stick-table) and 5.2 (maxconn); ` +
		`https://www.haproxy.com/blog/four-examples-of-haproxy-rate-limiting sections "Setting the Maximum Connections", "Rate Limit by URL"`
}

// Start starts HAProxy.
func (h HAProxy) Start(ns *lab.Namespace) (*lab.Server, error) {
	if len(h.Deny) > trackers {
		return nil, fmt.Errorf("start haproxy: it has counters for %d rates, not for %d", trackers, len(h.Deny))
	}
	var frontend, sections []string
	for i, l := range h.Deny {
		frontend = append(frontend,
			fmt.Sprintf("http-request deny deny_status 503 if%s { int(0),table_http_req_rate(rate%d) ge %d }", l.acl(), i, l.Rate),
			fmt.Sprintf("http-request track-sc%d int(0) table rate%d%s", i, i, ifAny(l.acl())))
		sections = append(sections, fmt.Sprintf("backend rate%d\nstick-table type integer size 1 expire 10s store http_req_rate(1s)", i))
	}
	// Of set-priority-class rules the last one that matches decides.
	for _, p := range slices.Backward(h.Priorities) {
		frontend = append(frontend, fmt.Sprintf("http-request set-priority-class int(%d)%s", p.Priority, ifAny(p.acl())))
	}
	backend := ""
	if h.MaxConn == 0 {
		backend = "option http-server-close"
	}
	return ns.StartHAProxy(lab.HAProxyConfig{
		Listen: h.Listen, Backlog: h.Backlog, CPUs: h.CPUs, Origin: h.Origin, MaxConn: h.MaxConn,
		Frontend: lines(frontend), Backend: backend, Sections: lines(sections),
	})
}

// acl is a condition that holds for the class.
func (c Class) acl() (condition string) {
	if c.Path != "" {
		condition += " { path_beg " + c.Path + " }"
	}
	if c.From.IsValid() {
		condition += " { src " + c.From.String() + " }"
	}
	return condition
}

func ifAny(condition string) string {
	if condition == "" {
		return ""
	}
	return " if" + condition
}
