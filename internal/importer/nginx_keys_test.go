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
