// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"narthex/internal/importer/draft"
)

// FuzzImport checks that whatever is read, what is printed compiles, and that nothing but
// the errors that are documented is returned.
func FuzzImport(f *testing.F) {
	for i, kind := range Kinds() {
		for _, file := range cases[kind] {
			text, err := os.ReadFile(filepath.Join("testdata", string(kind), file))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(i, string(text))
		}
	}
	for i, text := range []string{
		"limit_req_zone $a zone=a:1m rate=1r/s; map $a $a { default $a; } server { limit_req zone=a; }",
		"server { listen 80; location /a\x01* { limit_req zone=z; } location ~ (a|b)(c|d)* {} } limit_req_zone x zone=z:1m rate=9999999r/s;",
		"http { server { server_name \xff; location /\xff { limit_req zone=z burst=-3; } } limit_req_zone $remote_addr zone=z:1 rate=1r/s; } stream { server { listen 53 udp; listen 53; } }",
	} {
		f.Add(0, text)
		f.Add(i+1, text)
	}
	f.Add(1, "frontend a\n bind :0,:80,:80-90\n http-request set-priority-class int(1) if { path_beg \"/a b\" '\\' } or !{ src 1.2.3.4 }\n mode http")
	f.Add(2, "table inet a { set s { elements = { $a } } chain c { type filter hook input priority 0; ip saddr @s drop; tcp dport { 1-65535 } ct state new limit rate 0/second accept } }\ndefine a = $a")
	f.Add(2, `{"nftables": [{"chain": {"family": "ip", "table": "t", "name": "c", "type": "filter", "hook": "input"}}, {"rule": {"family": "ip", "table": "t", "chain": "c", "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": {"prefix": {"addr": "1.2.3.4", "len": 99}}}}, {"limit": {"rate": 1e300, "per": "x"}}, {"drop": null}]}}]}`)
	f.Add(3, "*filter\n:INPUT DROP\n-A INPUT -p tcp --dport 80 --syn -m hashlimit --hashlimit-above 1/day --hashlimit-mode srcip --hashlimit-srcmask 77 -j DROP\n-A INPUT -s 1.2.3.4/99 -j INPUT")
	f.Fuzz(func(t *testing.T, kind int, text string) {
		if kind < 0 || kind >= len(Kinds()) || len(text) > 1<<16 {
			return
		}
		result, err := Import("file", []byte(text), Options{Kind: Kinds()[kind], Listen: []string{"*:80"}, Files: draft.Files{None: true}, Env: unset})
		if err != nil {
			if !errors.As(err, new(*draft.SyntaxError)) && !errors.Is(err, draft.ErrNoService) {
				t.Fatalf("%v", err)
			}
			return
		}
		if err := wrong(result.Policy); err != nil {
			t.Fatalf("%v in\n%s", err, result.Policy)
		}
		if slices.ContainsFunc(result.Left, func(l draft.Left) bool { return l.Why == "" || l.File == "" || l.Line < 1 }) {
			t.Fatalf("left out without a place or a reason: %v", result.Left)
		}
	})
}
