// SPDX-License-Identifier: Apache-2.0

package importer

import "testing"

// TestWithinNginx checks what nginx does with a request before a limit holds.
func TestWithinNginx(t *testing.T) {
	const zone = "limit_req_zone $binary_remote_addr zone=z:1m rate=1r/s;\n"
	const php = " location ~ \\.php$ { limit_req zone=z; } }"
	const goes = "nginx goes on with another path here"
	const geo = "limit_req_zone $k zone=z:1m rate=1r/s; map $g $k { 0 ''; 1 $binary_remote_addr; } real_ip_header X-Forwarded-For; set_real_ip_from 10.1.0.0/16; server { limit_req zone=z; } "
	testLines(t, []lineTest{
		{"try_files", Nginx, zone + "server { location / { try_files $uri /index.php?$args; }" + php, []string{"try_files $uri /index.php?$args: " + goes}, nil},
		{"try_files to a named location", Nginx, zone + "server { location / { try_files $uri @app; } location @app { limit_req zone=z; } location /x { limit_req zone=z; } }", []string{goes}, nil},
		{"try_files with a status", Nginx, zone + "server { location / { try_files $uri $uri/ =404; }" + php, nil, []string{goes}},
		{"try_files without a limit behind", Nginx, zone + "server { location / { try_files $uri /index.html; }" + php, nil, []string{goes}},
		{"a limit holds once", Nginx, zone + "server { limit_req zone=z; location / { try_files $uri /index.php; }" + php, nil, []string{goes}},
		{"index with a limit", Nginx, zone + "server { index index.html index.php; location / { }" + php, []string{"index index.html index.php: " + goes}, nil},
		{"index around servers", Nginx, "http { " + zone + "index index.php; server { location / { }" + php + " }", []string{"index index.php: " + goes}, nil},
		{"harmless index", Nginx, zone + "server { index index.html index.htm; location / { } location /api/ { limit_req zone=z; }" + php, nil, []string{goes}},
		{"rewrite", Nginx, zone + "server { location /a { rewrite ^/a/(.*)$ /b/$1 last; } location /b { limit_req zone=z; } }", []string{goes}, nil},
		{"rewrite in if", Nginx, zone + "server { if ($arg_x) { rewrite ^ /b; } location /b { limit_req zone=z; } }", []string{goes}, nil},
		{"an answer", Nginx, zone + "server { rewrite ^ https://example.org/ permanent; location /b { limit_req zone=z; } }", nil, []string{goes}},
		{"error_page", Nginx, zone + "server { location / { error_page 404 = /x.php; }" + php, []string{goes}, nil},
		{"harmless error_page", Nginx, zone + "server { error_page 500 502 /50x.html; location = /50x.html { }" + php, nil, []string{goes}},
		{"no limits", Nginx, zone + "server { location / { rewrite ^/a /b last; try_files $uri /x; } }", nil, []string{goes}},

		{"exempt proxies", Nginx, geo + "geo $g { default 1; 10.0.0.0/8 0; 192.0.2.0/24 0; }", []string{"{name: no-limit, from: [192.0.2.0/24, 10.0.0.0/8], class: normal}"}, []string{"action: pass"}},
		{"ranges that overlap", Nginx, geo + "geo $g { ranges; default 1; 10.0.0.0-10.0.0.9 0; 10.0.0.5-10.0.0.7 1; }", []string{"10.0.0.0-10.0.0.9 and 10.0.0.5-10.0.0.7 of its geo block overlap"}, []string{"action: pass"}},

		{"an expression within ^~", Nginx, zone + "server { location ^~ /a/ { limit_req zone=z burst=1 nodelay; location ~ \\.x$ { limit_req zone=z burst=2 nodelay; } } location ~ \\.x$ { limit_req zone=z burst=3 nodelay; } }",
			[]string{"path: \"/a/*.x\", rate: 1/s, burst: 3, per: source}\n  # file:2\n  - {name: z-2, path: \"/a/*\", rate: 1/s, burst: 2, per: source}\n  # file:2\n  - {name: z-3, path: \"*.x\", rate: 1/s, burst: 4"}, nil},
		{"a prefix beside an expression within ^~", Nginx, zone + "server { location ^~ /a/ { location /a/b/ { limit_req zone=z; } location ~ \\.x$ { limit_req zone=z burst=2; } } }", []string{"nginx asks the regular expressions beside it before it"}, nil},
		{"within an expression", Nginx, zone + "server { location ~ ^/a/ { limit_req zone=z; location /a/b { limit_req zone=z burst=2; } } }", []string{"location /a/b: its limits are not carried over: it is within"}, nil},
	})
}
