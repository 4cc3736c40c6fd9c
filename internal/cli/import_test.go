// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const shopConf = `limit_req_zone $binary_remote_addr zone=a:1m rate=2r/s;
server {
	listen 80;
	limit_req zone=a burst=12 nodelay;
}
`

func TestImport(t *testing.T) {
	w := newWorld(t)
	good := w.write("shop.conf", shopConf)
	partly := w.write("partly.conf", strings.Replace(shopConf, "listen", "limit_conn b 1; listen", 1))
	bad := w.write("bad.conf", "server {\n listen 80;\n")
	blocked := w.write("blocked.rules", "*filter\n:INPUT ACCEPT\n-A INPUT -s 192.0.2.0/24 -j DROP\nCOMMIT\n")
	prose := w.write("prose", "hello\n")
	tests := []struct {
		args []string
		code int
		out  string // is in the standard output
		errs string // is in the standard error
	}{
		{[]string{good}, 0, "{name: a, rate: 2/s, burst: 13, per: source}", ""},
		{[]string{"nginx", good}, 0, "mode: shadow", ""},
		{[]string{"--strict", good}, 0, "mode: shadow", ""},
		{[]string{partly}, 0, "# - DIR/partly.conf:3: limit_conn b 1: ", "DIR/partly.conf:3: limit_conn b 1: "},
		{[]string{"--strict", partly}, 1, "mode: shadow", "1 thing not carried over"},
		{[]string{"nginx", bad}, 2, "", `narthex: DIR/bad.conf:3: the block of "server", which begins at line 1, is not closed: "}" is missing`},
		{[]string{prose}, 2, "", "narthex: DIR/prose: this is not known as a configuration of nginx, HAProxy, nftables or iptables; say what it is: narthex import nginx DIR/prose\n"},
		{[]string{"apache", good}, 2, "", `narthex: "apache" is not known: write nginx, haproxy, nftables or iptables`},
		{[]string{"nginx"}, 2, "", "narthex: name the file: narthex import nginx FILE\n"},
		{[]string{}, 2, "", "narthex: name the file, and before it what it is for if that is not to be guessed, not 0 arguments"},
		{[]string{w.dir + "/none"}, 1, "", "narthex: read the configuration: open DIR/none: no such file or directory"},
		{[]string{blocked}, 1, "", `no server's address and port is named, so that there is nothing to protect; say where the server listens: --listen "*:80"`},
		{[]string{"--listen", "*:80", blocked}, 0, "{name: drop, from: 192.0.2.0/24, action: drop}", ""},
		{[]string{"--root", w.dir, "/shop.conf"}, 0, "rate: 2/s", ""},
	}
	for _, test := range tests {
		got := w.do(append([]string{"import"}, test.args...)...)
		if got.Code != test.code || !strings.Contains(got.Out, test.out) || !strings.Contains(got.Err, test.errs) || test.errs == "" && got.Err != "" {
			t.Errorf("import %v: %+v, want code %d, %q and %q", test.args, got, test.code, test.out, test.errs)
		}
		if got.Code == 0 {
			policy := w.write("policy.yaml", strings.ReplaceAll(got.Out, "DIR", w.dir))
			if checked := w.do("check", policy); checked.Code != 0 {
				t.Errorf("import %v makes what check refuses: %s", test.args, checked.Err)
			}
		}
	}
}

func TestImportOutput(t *testing.T) {
	w := newWorld(t)
	good := w.write("shop.conf", shopConf)
	out := filepath.Join(w.dir, "out.yaml")
	if got := w.do("import", "--output", out, good); got.Code != 0 || got.Out != "" {
		t.Fatalf("import --output: %+v", got)
	}
	text, err := os.ReadFile(out)
	if err != nil || !bytes.Contains(text, []byte("burst: 13")) {
		t.Errorf("written: %q, %v", text, err)
	}
	if got := w.do("import", "--output", out, good); got.Code != 1 || !strings.Contains(got.Err, "out.yaml exists") {
		t.Errorf("import over a file that exists: %+v", got)
	}
	var read imported
	if got := w.do("import", "--json", good); json.Unmarshal([]byte(got.Out), &read) != nil || read.Kind != "nginx" || read.Left == nil || !strings.Contains(read.Policy, "burst: 13") {
		t.Errorf("import --json: %+v", got)
	}
}

func TestImportAsJSONWithoutAService(t *testing.T) {
	w := newWorld(t)
	blocked := w.write("blocked.rules", "*filter\n:INPUT ACCEPT\n-A INPUT -m set --match-set blocklist src -j DROP\nCOMMIT\n")
	got := w.do("import", "--json", blocked)
	var read imported
	err := json.Unmarshal([]byte(got.Out), &read)
	if err != nil || read.Kind != "iptables" || read.Policy != "" || len(read.Left) == 0 || got.Code != 1 || !strings.Contains(got.Err, "nothing to protect") {
		t.Errorf("import --json: %+v, %v", got, err)
	}
}

func TestImportOfStandardInput(t *testing.T) {
	w := newWorld(t)
	var out, errs bytes.Buffer
	env := w.env(&out, &errs, "import", "nginx", "-")
	env.Stdin = strings.NewReader(shopConf)
	if code := Main(t.Context(), env); code != 0 || !strings.Contains(out.String(), "# <stdin>:4") {
		t.Errorf("exit %d, %s%s", code, &out, &errs)
	}
}
