// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"net/netip"
	"strings"

	"narthex/internal/lab"
)

// NginxLimit is nginx as a proxy in front of a server, with limit_req and limit_conn. It
// follows the pages of the modules and "Rate Limiting with NGINX and NGINX Plus" of its
// makers, which recommends burst with nodelay.
//
// A limit is for a class as a whole: the key is the server's name, or what the network is
// mapped to by geo, and those whose key is empty are not limited. A request that exceeds it
// is answered with 503.
type NginxLimit struct {
	Listen  []netip.AddrPort
	Backlog int
	CPUs    []int
	Origin  netip.AddrPort

	LimitReq  []RateLimit
	LimitConn []ConcurrencyLimit

	// Keepalive is how many idle connections to the origin are kept, as the page of the
	// upstream module shows. With 0 each is closed after its answer, as is nginx's default.
	// A prefork server has a process for each connection: that is right for it only if
	// nginx never asks for more at once than it has processes. Otherwise requests wait in
	// its backlog, up to KeepAliveTimeout, while processes wait on kept connections, since
	// nginx has no queue of its own.
	Keepalive int
}

// Follows says which documentation the configuration follows.
func (NginxLimit) Follows() string {
	return `https://nginx.org/en/docs/http/ngx_http_limit_req_module.html#limit_req; ` +
		`https://nginx.org/en/docs/http/ngx_http_limit_conn_module.html#limit_conn; ` +
		`https://nginx.org/en/docs/http/ngx_http_upstream_module.html#keepalive; ` +
		`https://blog.nginx.org/blog/rate-limiting-nginx sections "Queueing with No Delay", "Advanced Configuration Examples"`
}

// Start starts nginx.
func (n NginxLimit) Start(ns *lab.Namespace) (*lab.Server, error) {
	locations := newLocations()
	var http []string
	for i, l := range n.LimitReq {
		key := l.key(&http, fmt.Sprintf("rate%d", i))
		http = append(http, fmt.Sprintf("limit_req_zone %s zone=rate%d:1m rate=%dr/s;", key, i, l.Rate))
		directive := fmt.Sprintf("limit_req zone=rate%d", i)
		if l.Burst > 1 { // nginx counts those beyond the first
			directive += fmt.Sprintf(" burst=%d nodelay", l.Burst-1)
		}
		locations.limit(l.Path, directive+";")
	}
	for i, l := range n.LimitConn {
		key := l.key(&http, fmt.Sprintf("conn%d", i))
		http = append(http, fmt.Sprintf("limit_conn_zone %s zone=conn%d:1m;", key, i))
		locations.limit(l.Path, fmt.Sprintf("limit_conn conn%d %d;", i, l.Requests))
	}
	upstream := fmt.Sprintf("server %s;", n.Origin)
	pass := "proxy_pass http://origin;"
	if n.Keepalive > 0 {
		upstream += fmt.Sprintf(" keepalive %d;", n.Keepalive)
		pass += ` proxy_http_version 1.1; proxy_set_header Connection "";`
	}
	http = append(http, "upstream origin { "+upstream+" }")
	return ns.StartNginx(lab.NginxConfig{
		Listen: n.Listen, Backlog: n.Backlog, CPUs: n.CPUs,
		HTTP: lines(http),
		Server: "server_name narthex.example;\nlimit_req_status 503;\nlimit_conn_status 503;\n" +
			locations.text(pass),
	})
}

// key is a variable that is empty but for requests from the class's network.
func (c Class) key(http *[]string, name string) string {
	if !c.From.IsValid() {
		return "$server_name"
	}
	*http = append(*http, fmt.Sprintf(`geo $from_%s { default ""; %s limited; }`, name, c.From))
	return "$from_" + name
}

// locations are those of a server, in the order in which they were named.
type locations struct {
	paths  []string
	limits []limit
}

type limit struct{ path, directive string }

func newLocations() *locations { return &locations{paths: []string{"/"}} }

// limit has a directive hold for what begins with a path.
func (l *locations) limit(path, directive string) {
	if path == "" {
		path = "/"
	}
	for _, p := range l.paths {
		if p == path {
			path = p
			l.limits = append(l.limits, limit{path, directive})
			return
		}
	}
	l.paths, l.limits = append(l.paths, path), append(l.limits, limit{path, directive})
}

// text has each location with the limits of all paths that it begins with: of locations
// only the longest that fits counts.
func (l *locations) text(pass string) string {
	var b strings.Builder
	for _, p := range l.paths {
		fmt.Fprintf(&b, "location %s {\n", p)
		for _, limit := range l.limits {
			if strings.HasPrefix(p, limit.path) {
				fmt.Fprintln(&b, limit.directive)
			}
		}
		fmt.Fprintf(&b, "%s\n}\n", pass)
	}
	return b.String()
}
