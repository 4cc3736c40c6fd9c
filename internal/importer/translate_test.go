// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"slices"
	"strings"
	"testing"

	"narthex/internal/importer/draft"
)

// TestLines checks one construct at a time: lines that are in the policy, and those that
// are not.
func TestLines(t *testing.T) {
	const zone = "limit_req_zone $binary_remote_addr zone=z:1m rate=1r/s;\n"
	const frontend = "frontend f\n mode http\n bind :80\n "
	const input = "table inet t { chain c { type filter hook input priority 0; policy drop; "
	testLines(t, []lineTest{
		{"quotes and escapes", Nginx, zone + `server { listen 80; location = "/a \"b\" c" { limit_req 'zone=z' burst=1 nodelay; } }`, []string{`path: "/a \"b\" c", rate: 1/s, burst: 2`}, nil},
		{"comment within a word", Nginx, zone + "server { listen 80; location /a#b { limit_req zone=z; } # }\n}", []string{"Narthex refuses it"}, nil},
		{"hosts", Nginx, zone + "server { server_name a.example *.b.example www.c.*; limit_req zone=z; } server { server_name x; listen 80 default_server; }", []string{`a.example`, `"*.b.example"`}, nil},
		{"the longest prefix first", Nginx, zone + "server { location / {} location /a { limit_req zone=z burst=1 nodelay; } location /a/b {} location /a/b/c { limit_req zone=z burst=2 nodelay; } }",
			[]string{"path: \"/a/b/c*\", rate: 1/s, burst: 3", "path: \"/a/b*\", class: normal", "path: \"/a*\", rate: 1/s, burst: 2"}, []string{"can never match"}},
		{"no limit where nothing follows", Nginx, zone + "server { location /a { limit_req zone=z; } location /b { } }", []string{`path: "/a*"`}, []string{"class: normal"}},
		{"per server", Nginx, "limit_req_zone $server_name zone=z:1m rate=60r/m; server { limit_req zone=z; }", []string{"rate: 1/s, burst: 1}"}, []string{"per: source"}},
		{"unknown variable", Nginx, "limit_req_zone $request_uri zone=z:1m rate=1r/s; server { limit_req zone=z; }", []string{"it counts by $request_uri"}, []string{"rate: 1/s"}},
		{"inherited unless there is one", Nginx, "http { " + zone + " limit_req zone=z burst=8 nodelay; server { location /a { limit_req zone=z burst=2 nodelay; } } }", []string{`path: "/a*", rate: 1/s, burst: 3`, "burst: 9"}, nil},
		{"stream", Nginx, "stream { server { listen 192.0.2.1:25; } server { listen 53 udp; } }", []string{`listen: "192.0.2.1:25"`, "protocol: tcp", "Narthex sees TCP alone"}, nil},

		{"the last class wins", HAProxy, frontend + "http-request set-priority-class int(5)\n http-request set-priority-class int(-1) if { path_end .css }", []string{"path: \"*.css\", class: priority-minus-1}", "{name: priority-5, class: priority-5}"}, nil},
		{"all but some", HAProxy, frontend + "http-request set-priority-class int(5) unless { hdr(x-a) b }", []string{"header: {x-a: b}, class: priority-0}", "{name: priority-5, class: priority-5}"}, nil},
		{"quotes", HAProxy, frontend + `acl a path_beg "/a b" '/c"d' /e\ f` + "\n http-request set-priority-class int(1) if a", []string{`"/a b*"`, `"/c\"d*"`, `"/e f*"`}, nil},
		{"hosts without ports", HAProxy, frontend + "http-request set-priority-class int(1) if { hdr(host),host_only a.example }\n http-request set-priority-class int(2) if { hdr(host),lower,host_only b.example }", []string{"host: a.example", "host: b.example"}, []string{"rules do not ask for"}},
		{"other converters", HAProxy, frontend + "http-request set-priority-class int(1) if { hdr(host),host_only,base64 a.example }\n http-request set-priority-class int(2) if { hdr(x),base64 b }", []string{"rules do not ask for \"hdr(host),host_only,base64\"", "rules do not ask for \"hdr(x),base64\""}, []string{"host:"}},
		{"tcp", HAProxy, "frontend f\n bind 192.0.2.1:25-26\n mode tcp", []string{`["192.0.2.1:25", "192.0.2.1:26"]`, "protocol: tcp"}, nil},
		{"sni", HAProxy, "frontend f\n bind :443\n mode tcp\n tcp-request content set-priority-class int(1) if { req.ssl_sni -i A.example }", []string{"sni: A.example", "protocol: tls"}, nil},
		{"within TLS", HAProxy, "frontend f\n bind :443 ssl\n mode http\n http-request set-priority-class int(1) if { path /a }", []string{"requests within TLS are not visible"}, []string{"path:"}},
		{"conditions", HAProxy, frontend + "\n.if true\n maxconn 3\n.endif", []string{"conditions are not evaluated"}, []string{"maxconn 3:"}},
		{"unset", HAProxy, frontend + `maxconn "${N}"`, []string{"the environment variable N is not set"}, nil},
		{"maxconn", HAProxy, "defaults\n mode http\n timeout queue 90s\nlisten l\n bind :80\n default-server maxconn 7\n server-template s 3 h:80\n server t h:80 maxconn 2", []string{"concurrency: 23", "max_wait: 1m", "max_wait is at most 1m"}, nil},
		{"per hour", NFTables, input + "tcp dport 80 ct state new limit rate over 6/hour burst 9 packets drop } }", []string{"rate: 6/h, burst: 9"}, []string{"Not carried over"}},
		{"per day", NFTables, input + "tcp dport 80 ct state new limit rate over 48/day drop\n tcp dport 81 ct state new limit rate over 7/day drop } }", []string{"to: port-80, rate: 2/h", "7 in 1d is not a whole number per second, minute or hour"}, []string{"rate: 7"}},
		{"a whole number of another unit", NFTables, input + "tcp dport 80 ct state new limit rate over 2000/minute drop } }", []string{"rate: 2000/m"}, []string{"rounded"}},
		{"rounded", HAProxy, frontend + "stick-table type ip size 1 store http_req_rate(7s)\n http-request deny if { src_http_req_rate(f) gt 10 }", []string{"10 in 7s, rounded down.", "rate: 85/m, burst: 10, per: source"}, nil},

		{"packets are not connections", NFTables, input + "tcp dport 80 limit rate over 9/second drop\n tcp dport 81 ct state new limit rate over 9/second drop } }", []string{"it counts packets", "to: port-81, rate: 9/s, burst: 5"}, []string{"port-80"}},
		{"established before", NFTables, input + "ct state vmap { established : accept }\n ct state established accept\n tcp dport 80 limit rate over 9/second drop } }", []string{"to: port-80, rate: 9/s"}, nil},
		{"limits nothing", NFTables, input + "tcp dport 80 ct state new limit rate 9/second accept\n tcp dport 80 accept\n ip saddr 192.0.2.1 tcp dport 22 drop } }", []string{"so that it limits nothing"}, []string{"rate: 9/s"}},
		{"drops before limits", NFTables, input + "tcp dport 80 ct state new limit rate over 9/second drop\n ip saddr 192.0.2.1 drop } }", []string{"action: drop}\n  # file:1\n  - {name: limit"}, nil},
		{"second limit", NFTables, input + "tcp dport 80 ct state new limit rate over 9/second drop\n tcp dport 80 ct state new meter m { ip saddr limit rate over 1/second } drop } }", []string{"a connection is in one rule"}, []string{"rate: 1/s"}},
		{"server's address", NFTables, input + "ip daddr 192.0.2.9 tcp dport 80 ct state new limit rate over 9/second drop } }", []string{`listen: "192.0.2.9:80"`, "from: 0.0.0.0/0"}, nil},
		{"IPv6", IPTables, "# Generated by ip6tables-save\n*filter\n:INPUT ACCEPT\n-A INPUT -p tcp --dport 80 --syn -m hashlimit --hashlimit-above 5/min --hashlimit-mode srcip --hashlimit-srcmask 56 -j DROP", []string{`from: "::/0"`, "rate: 5/m, burst: 5, per: {v6: 56}"}, nil},
		{"returns within a rate", IPTables, "*filter\n:INPUT DROP\n:LIMIT - [0:0]\n-A INPUT -p tcp --dport 80 --syn -j LIMIT\n-A INPUT -p tcp --dport 80 -j ACCEPT\n-A LIMIT -m hashlimit --hashlimit-upto 20/sec --hashlimit-burst 40 --hashlimit-mode srcip --hashlimit-name w -j RETURN\n-A LIMIT -j DROP", []string{"to: port-80, rate: 20/s, burst: 40, per: source"}, []string{"what returns"}},
		{"returns within a rate, and logs the others", IPTables, "*filter\n:INPUT DROP\n:LIMIT - [0:0]\n-A INPUT -p tcp --syn -j LIMIT\n-A INPUT -p tcp --dport 80 -j ACCEPT\n-A LIMIT -m hashlimit --hashlimit-upto 20/sec --hashlimit-burst 40 --hashlimit-mode srcip --hashlimit-name w -j RETURN\n-A LIMIT -m limit --limit 1/s -j LOG\n-A LIMIT -j DROP",
			[]string{`listen: "*:80"`, "rate: 20/s, burst: 40, per: source"}, []string{"Not carried over"}},
		{"returns for the ports of its jump", IPTables, "*filter\n:INPUT ACCEPT\n:LIMIT - [0:0]\n-A INPUT -p tcp -m multiport --dports 80,443 --syn -j LIMIT\n-A LIMIT -p tcp -m multiport --dports 80,443 -m hashlimit --hashlimit-upto 20/sec --hashlimit-mode srcip --hashlimit-name w -j RETURN\n-A LIMIT -j DROP",
			[]string{"to: [port-80, port-443], rate: 20/s"}, []string{"Not carried over"}},
		{"returns for one port, and drops others", IPTables, "*filter\n:INPUT ACCEPT\n:LIMIT - [0:0]\n-A INPUT -p tcp -m multiport --dports 80,81 --syn -j LIMIT\n-A LIMIT -p tcp --dport 80 -m hashlimit --hashlimit-upto 20/sec --hashlimit-mode srcip --hashlimit-name w -j RETURN\n-A LIMIT -j DROP", []string{"what returns to the chain before"}, []string{"rate: 20/s"}},
		{"not from", IPTables, "*filter\n-A INPUT ! -s 192.0.2.0/24 -p tcp --dport 22 -j DROP", []string{"from: 192.0.2.0/24, to: port-22, class: normal", "from: 0.0.0.0/0, to: port-22, action: drop"}, nil},
	})
}

// lineTest is a configuration, and what is in what is made of it and what is not.
type lineTest struct {
	name string
	kind Kind
	text string
	has  []string
	not  []string
}

func testLines(t *testing.T, tests []lineTest) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			result, err := Import("file", []byte(test.text), Options{Kind: test.kind, Files: draft.Files{None: true}, Listen: []string{"*:9999"}, Env: unset})
			if err != nil {
				t.Fatal(err)
			}
			if err := wrong(result.Policy); err != nil {
				t.Error(err)
			}
			text := string(result.Policy)
			flat := strings.ReplaceAll(text, "\n# ", " ")
			for _, want := range test.has {
				if !strings.Contains(text, want) && !strings.Contains(flat, want) {
					t.Errorf("there is no %q in\n%s", want, text)
				}
			}
			for _, bad := range test.not {
				if strings.Contains(text, bad) {
					t.Errorf("there is %q in\n%s", bad, text)
				}
			}
		})
	}
}

func TestGlobs(t *testing.T) {
	for expr, want := range map[string]string{
		`^/api/`: "/api/*", `\.php$`: "*.php", `^/a$`: "/a", `x`: "*x*", `\.(gif|jpe?g)$`: "*.gif *.jpg *.jpeg", `^/(a|b)/.*\.js$`: "/a/*.js /b/*.js",
		`^`: "*", `.*`: "*", `^/[ab]x`: "/ax* /bx*", `^/a|b$`: "/a* *b",
		`a+`: "", `[0-9]+`: "", `^/a.b`: "", `a^b`: "", `\*`: "", `(?i)abc`: "", `(`: "", `a{2,}`: "",
	} {
		got, err := draft.Globs(expr, false, false)
		slices.Sort(got)
		words := strings.Fields(want)
		slices.Sort(words)
		if !slices.Equal(got, words) || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", expr, got, err, want)
		}
	}
	got, err := draft.Globs(`\.p9$`, true, false)
	if want := []string{"*.[Pp]9"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("without regard to case: %q, %v, want %q", got, err, want)
	}
}
