// SPDX-License-Identifier: Apache-2.0

package importer

import "testing"

// What nginx counts by, and how many limits a place has.
func TestNginxKeysAndStacks(t *testing.T) {
	const source = "limit_req_zone $binary_remote_addr zone=s:1m rate=9r/s; limit_conn_zone $binary_remote_addr zone=c:1m; limit_conn_zone $server_name zone=all:1m; "
	by := func(key string) string {
		return "limit_req_zone " + key + " zone=z:1m rate=1r/s; server { limit_req zone=z burst=19 nodelay; }"
	}
	testLines(t, []lineTest{
		{"a header", Nginx, by("$http_x_tenant_id"), []string{`header: {x-tenant-id: "*"}, rate: 1/s, burst: 20, per: {header: x-tenant-id}`}, []string{"counts by"}},
		{"a cookie", Nginx, by("$cookie_sid"), []string{`cookie: {sid: "*"}, rate: 1/s, burst: 20, per: {cookie: sid}`}, []string{"counts by"}},
		{"a parameter", Nginx, by("$arg_key"), []string{`query: {key: "*"}, rate: 1/s, burst: 20, per: {query: key}`}, []string{"counts by"}},
		{"the host", Nginx, by("$host"), []string{"{name: z, rate: 1/s, burst: 20, per: host}"}, []string{"counts by"}},
		{"two parts", Nginx, by("$host$http_x"), []string{"of several parts"}, []string{"rate:"}},
		{"some addresses", Nginx, "geo $g { default 0; 192.0.2.0/24 1; } map $g $k { 0 ''; 1 $binary_remote_addr; } " + by("$k"),
			[]string{"from: 192.0.2.0/24, rate: 1/s, burst: 20, per: source"}, []string{"do not ask"}},
		{"agents, whatever their case", Nginx, "map $http_user_agent $k { default ''; ~*(bot|crawl) $binary_remote_addr; } " + by("$k"),
			[]string{`header: {user-agent: {pattern: ["*bot*", "*crawl*"], ignore_case: true}}`}, nil},
		{"paths, whatever their case", Nginx, source + "server { location ~* \\.a$ { limit_req zone=s burst=19 nodelay; } }", []string{`path: "*.[Aa]", rate: 9/s`}, []string{"ignores"}},
		{"several limits", Nginx, source + "server { limit_req zone=s burst=19 nodelay; limit_conn c 10; limit_conn all 99; }",
			[]string{"limits: [{rate: 9/s, burst: 20, per: source}, {at_once: 10, per: source}, {at_once: 99}]"}, []string{"Not carried over"}},
		{"limits that are inherited apart", Nginx, source + "server { limit_conn c 10; location /a { limit_req zone=s burst=19 nodelay; } }",
			[]string{`path: "/a*", limits: [{rate: 9/s, burst: 20, per: source}, {at_once: 10, per: source}]`, "{name: c, limits: [{at_once: 10, per: source}]}"}, nil},
		{"some and all", Nginx, source + "limit_req_zone $cookie_a zone=z:1m rate=1r/s; server { limit_req zone=s burst=19 nodelay; limit_req zone=z burst=19 nodelay; }",
			[]string{`cookie: {a: "*"}`, "limits: [{rate: 9/s, burst: 20, per: source}, {rate: 1/s, burst: 20, per: {cookie: a}}]", "{name: s-2, rate: 9/s, burst: 20, per: source}"}, nil},
		{"two conditions", Nginx, "limit_req_zone $cookie_a zone=a:1m rate=1r/s; limit_req_zone $arg_b zone=b:1m rate=1r/s; server { limit_req zone=a; limit_req zone=b; }",
			[]string{"limit_req zone=b: it holds for other requests of this place"}, []string{"{query: b}"}},
		{"exempt from one of two", Nginx, source + "geo $g { default 1; 10.0.0.0/8 0; } map $g $k { 0 ''; 1 $binary_remote_addr; } limit_req_zone $k zone=z:1m rate=1r/s; server { limit_req zone=s burst=19 nodelay; limit_req zone=z burst=19 nodelay; }",
			[]string{"{name: s, from: 10.0.0.0/8, rate: 9/s, burst: 20, per: source}", "limits: [{rate: 9/s, burst: 20, per: source}, {rate: 1/s, burst: 20, per: source}]"}, nil},
		{"statuses", Nginx, source + "server { limit_req zone=s burst=19 nodelay; limit_req_status 444; location /a { limit_req zone=s burst=29 nodelay; limit_req_status 429; } }",
			[]string{"burst: 20, per: source, answer: {status: 444}", "burst: 30, per: source}"}, []string{"one status"}},
	})
}

// How many connections are open at once, and several limits of a firewall.
func TestFirewallStacks(t *testing.T) {
	const input = "table inet t { chain c { type filter hook input priority 0; policy accept; ct state established accept\n"
	const tables = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p tcp --dport 80 --syn "
	testLines(t, []lineTest{
		{"at once", NFTables, input + "tcp dport 80 add @s { ip saddr ct count over 9 } drop } }", []string{"from: 0.0.0.0/0, to: port-80, limits: [{at_once: 9, per: source}]"}, []string{"Not carried over"}},
		{"at once, all together", NFTables, input + "tcp dport 80 ct count over 9 reject } }", []string{"to: port-80, limits: [{at_once: 9}]"}, []string{"Not carried over"}},
		{"two limits", NFTables, input + "tcp dport 80 add @s { ip saddr ct count over 9 } drop\n tcp dport 80 add @r { ip saddr and 255.255.255.0 limit rate over 5/second burst 7 packets } drop } }",
			[]string{"limits: [{at_once: 9, per: source}, {rate: 5/s, burst: 7, per: {v4: 24}}]", "# Also file:3."}, []string{"Not carried over"}},
		{"one of both families", NFTables, input + "tcp dport 80 add @s { ip saddr ct count over 9 } drop\n tcp dport 80 limit rate over 5/second burst 7 packets drop } }",
			[]string{"limits: [{at_once: 9, per: source}, {rate: 5/s, burst: 7}]", `from: "::/0", to: port-80, rate: 5/s, burst: 7`, "IPv4 and IPv6 have a bucket each"}, nil},
		{"two limits of other ports", NFTables, input + "tcp dport 80 limit rate over 9/second burst 7 packets drop\n tcp dport { 80, 443 } limit rate over 5/second burst 7 packets drop } }",
			[]string{"a connection is in one rule"}, []string{"limits:"}},
		{"an empty limit_conn", Nginx, "server { limit_conn; limit_conn a; limit_conn a b; }", nil, []string{"at_once"}},
		{"no number", NFTables, input + "tcp dport 80 ct count over x drop } }", []string{"is not understood"}, []string{"at_once"}},
		{"connlimit", IPTables, tables + "-m connlimit --connlimit-above 9 --connlimit-mask 24 --connlimit-saddr -j DROP\nCOMMIT\n", []string{"limits: [{at_once: 9, per: {v4: 24}}]"}, []string{"Not carried over"}},
		{"connlimit of all", IPTables, tables + "-m connlimit --connlimit-above 9 --connlimit-mask 0 -j DROP\nCOMMIT\n", []string{"limits: [{at_once: 9}]"}, []string{"Not carried over"}},
		{"connlimit and a rate", IPTables, tables + "-m connlimit --connlimit-above 9 -m limit --limit 5/s -j DROP\nCOMMIT\n", []string{"it has two limits"}, []string{"at_once"}},
		{"connlimit by the server", IPTables, tables + "-m connlimit --connlimit-above 9 --connlimit-daddr -j DROP\nCOMMIT\n", []string{"--connlimit-daddr is not carried over"}, []string{"at_once"}},
	})
}

// What HAProxy tracks, several limits of a proxy, and proxies beside each other.
func TestHAProxyStacks(t *testing.T) {
	const table = "defaults\n mode http\nbackend t\n stick-table type ip size 1k store http_req_rate(1s),conn_rate(1s),conn_cur\nbackend k\n stick-table type string store http_req_rate(1s)\n"
	const frontend = table + "frontend f\n bind :80\n http-request track-sc0 src table t\n "
	by := func(key string) string {
		return table + "frontend f\n bind :80\n http-request track-sc1 " + key + " table k\n http-request deny deny_status 429 if { sc_http_req_rate(1) gt 20 }\n"
	}
	testLines(t, []lineTest{
		{"a header", HAProxy, by("req.hdr(x-key)"), []string{`header: {x-key: "*"}, rate: 20/s, burst: 20, per: {header: x-key}`}, nil},
		{"a cookie", HAProxy, by("cook(sid)"), []string{`cookie: {sid: "*"}, rate: 20/s, burst: 20, per: {cookie: sid}`}, nil},
		{"a parameter", HAProxy, by("url_param(key)"), []string{`query: {key: "*"}, rate: 20/s, burst: 20, per: {query: key}`}, nil},
		{"something else", HAProxy, by("base32+src"), []string{`it counts by "base32+src"`}, []string{"rate: 20"}},
		{"at once", HAProxy, frontend + "http-request deny deny_status 429 if { sc_conn_cur(0) ge 9 }", []string{"limits: [{at_once: 8, per: source}]"}, []string{"goes on refusing"}},
		{"connections at once", HAProxy, frontend + "tcp-request connection reject if { src_conn_cur(t) gt 9 }\n tcp-request connection reject if { src_conn_rate(t) gt 7 }",
			[]string{"to: f, limits: [{at_once: 10, per: source}, {rate: 8/s, burst: 8, per: source}]"}, nil},
		{"connections at once, counted before", HAProxy, table + "frontend f\n bind :80\n tcp-request connection track-sc1 src table t\n tcp-request connection reject if { src_conn_cur(t) ge 9 }\n",
			[]string{"to: f, limits: [{at_once: 8, per: source}]"}, nil},
		{"connections, refused by their content", HAProxy, table + "frontend f\n bind :80\n tcp-request connection track-sc1 src table t\n tcp-request content reject if { sc1_conn_rate gt 20 }\n" +
			" tcp-request content reject if { sc1_http_req_rate gt 30 }\n tcp-request content accept if { req_ssl_hello_type 1 }\n",
			[]string{"to: f, rate: 20/s, burst: 20, per: source", "sc1_http_req_rate gt 30 }: counters are carried over"}, []string{"rate: 30"}},
		{"connections at once, counted behind", HAProxy, table + "frontend f\n bind :80\n tcp-request connection reject if { src_conn_cur(t) ge 9 }\n tcp-request connection track-sc1 src table t\n",
			[]string{"to: f, limits: [{at_once: 9, per: source}]"}, nil},
		{"several", HAProxy, frontend + "http-request deny deny_status 429 if { sc_http_req_rate(0) gt 30 }\n http-request deny deny_status 429 if { sc_conn_cur(0) gt 9 }\n" +
			" http-request deny deny_status 429 if { path_beg /a } { sc_http_req_rate(0) gt 20 }",
			[]string{"limits: [{rate: 30/s, burst: 30, per: source}, {at_once: 9, per: source}]", `path: "/a*"`, "limits: [{rate: 20/s, burst: 20, per: source}, {rate: 30/s, burst: 30, per: source}, {at_once: 9, per: source}]"}, nil},
		{"two ways to refuse", HAProxy, frontend + "http-request deny deny_status 429 if { sc_http_req_rate(0) gt 30 }\n http-request deny if { sc_conn_cur(0) gt 9 }", []string{"a rule refuses in one way"}, []string{"answer"}},
		{"agents, whatever their case", HAProxy, frontend + "http-request deny deny_status 429 if { req.hdr(user-agent) -i -m sub Bot } { sc_http_req_rate(0) gt 20 }",
			[]string{`header: {user-agent: {pattern: "*Bot*", ignore_case: true}}`}, nil},
		{"paths, whatever their case", HAProxy, frontend + "http-request deny deny_status 429 if { path_end -i .A } { sc_http_req_rate(0) gt 20 }", []string{`path: "*.[Aa]"`}, nil},
		{"without a header", HAProxy, frontend + "acl has_key req.hdr(x-api-key) -m found\n http-request deny deny_status 429 if { path_beg /api/ } !has_key { sc_http_req_rate(0) gt 30 }",
			[]string{`path: "/api/*"`, "without: {header: x-api-key}", "rate: 30/s"}, []string{"beside a rate"}},
		{"without a cookie and a parameter", HAProxy, frontend + "http-request deny deny_status 429 if !{ req.cook(sid) -m found } !{ url_param(key) -m found } { sc_http_req_rate(0) gt 30 }",
			[]string{"without: {cookie: sid, query: key}"}, []string{"beside a rate"}},
		{"not a value", HAProxy, frontend + "http-request deny deny_status 429 if !{ req.cook(sid) abc } { sc_http_req_rate(0) gt 30 }", []string{"beside a rate"}, []string{"without:"}},
		{"a parameter's value", HAProxy, frontend + "http-request deny deny_status 429 if { url_param(format) -m beg xm } { sc_http_req_rate(0) gt 30 }", []string{`query: {format: "xm*"}`}, nil},
		{"some addresses", HAProxy, frontend + "http-request deny deny_status 429 if { src 192.0.2.0/24 } { sc_http_req_rate(0) gt 30 }", []string{"from: 192.0.2.0/24, rate: 30/s"}, []string{"beside a rate", "a client of each"}},
		{"connections of some addresses", HAProxy, frontend + "tcp-request connection reject if { src 192.0.2.0/24 } { src_conn_rate(t) gt 7 }\n tcp-request connection reject if { src_conn_rate(t) gt 90 }",
			[]string{"from: 192.0.2.0/24\n    to: f\n    limits: [{rate: 8/s, burst: 8, per: source}, {rate: 91/s, burst: 91, per: source}]", "to: f, rate: 91/s"}, []string{"a connection is in one rule"}},
		{"a class of some addresses' requests", HAProxy, frontend + "http-request set-priority-class int(1) if { src 192.0.2.0/24 } { path_beg /a }", []string{`from: 192.0.2.0/24`, `path: "/a*"`}, []string{"do not ask for addresses"}},
		{"a path in small letters", HAProxy, frontend + "http-request deny deny_status 429 if { path,lower /login } { sc_http_req_rate(0) gt 30 }", []string{`path: "/[Ll][Oo][Gg][Ii][Nn]"`}, []string{"do not ask"}},
		{"a header in small letters", HAProxy, frontend + "http-request deny deny_status 429 if { req.hdr(user-agent),lower -m sub bot } { sc_http_req_rate(0) gt 30 }", []string{`header: {user-agent: {pattern: "*bot*", ignore_case: true}}`}, []string{"do not ask"}},
		{"two frontends", HAProxy, frontend + "http-request deny deny_status 429 if { sc_http_req_rate(0) gt 30 }\nfrontend g\n bind :81\n http-request deny deny_status 429 if { src_http_req_rate(t) gt 20 }",
			[]string{"to: f, rate: 30/s", "to: g, rate: 20/s"}, []string{"hold at every service"}},
	})
}
