// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"narthex/internal/importer/draft"
	"narthex/internal/policy"
)

// TestBurstOfNginx asks a real nginx more often at once than its burst allows. What it lets
// through is what the bucket of the imported rule holds.
func TestBurstOfNginx(t *testing.T) {
	const burst, asked = 20, 30
	dir := t.TempDir()
	// One request per minute: none is gained while this runs.
	conf := fmt.Sprintf(`daemon off; pid %[1]s/pid; error_log %[1]s/log; events {}
http {
	access_log off; client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/g;
	limit_req_zone all zone=one:1m rate=1r/m;
	server { listen unix:%[1]s/s; listen 127.0.0.1:80; location / { limit_req zone=one burst=%[2]d nodelay; try_files /none =204; } }
}`, dir, burst)
	// It is to bind the socket alone.
	client := serve(t, dir, strings.Replace(conf, "listen 127.0.0.1:80;", "", 1))
	let := 0
	for range asked {
		resp, err := client.Get("http://nginx/")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable {
			let++
		}
	}
	result, err := Import("nginx.conf", []byte(conf), Options{Files: draft.Files{None: true}})
	if err != nil {
		t.Fatal(err)
	}
	rule := regexp.MustCompile(`rate: 1/m, burst: (\d+)`).FindSubmatch(result.Policy)
	if rule == nil || string(rule[1]) != fmt.Sprint(let) || let != burst+1 {
		t.Errorf("nginx lets %d of %d through with burst=%d; made:\n%s", let, asked, burst, result.Policy)
	}
}

// serve starts an nginx that listens at the socket s in the folder, and returns a client of it.
func serve(t *testing.T, dir, conf string) *http.Client {
	t.Helper()
	file, socket := filepath.Join(dir, "nginx.conf"), filepath.Join(dir, "s")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	server := exec.Command("/usr/sbin/nginx", "-p", dir, "-e", dir+"/log", "-c", file)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(os.Interrupt)
		_ = server.Wait()
	})
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if conn, err := net.Dial("unix", socket); err == nil {
			conn.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nginx does not listen")
		}
	}
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
}

// places are servers with their locations, among which nginx chooses in ways of its own.
var places = []struct {
	names     string
	locations []string
}{
	{"a.example *.b.example", []string{"/", "/a", "= /a", "/a/b", "/a/b/c", "^~ /img/", "~ \\.php$", "~ ^/a/.*z$", "~ \\.(gif|jpe?g)$", "= /img/x.php"}},
	{"x.b.example .c.example", []string{"/", "/a", "~ ^/(a|d)/", "~ \\.php$"}},
	{"*.x.b.example www.d.*", []string{"/", "~ x"}},
	{"other.example", []string{"/", "/a/", "^~ /a/b", "~ \\.php"}},
}

// TestPlacesOfNginx asks a real nginx which location it takes for hosts and paths, and
// compares with the rule that the imported policy takes.
func TestPlacesOfNginx(t *testing.T) {
	dir := t.TempDir()
	var zones, servers strings.Builder
	n := 0
	for i, p := range places {
		listen := "listen unix:" + dir + "/s; listen 127.0.0.1:80;"
		if i == len(places)-1 {
			listen = strings.ReplaceAll(listen, ";", " default_server;")
		}
		fmt.Fprintf(&servers, "server { %s server_name %s;\n", listen, p.names)
		for _, l := range p.locations {
			n++
			fmt.Fprintf(&zones, "limit_req_zone $binary_remote_addr zone=z%d:32k rate=1r/s;\n", n)
			fmt.Fprintf(&servers, "location %s { limit_req zone=z%d; return 200 z%[2]d; }\n", l, n)
		}
		servers.WriteString("}\n")
	}
	conf := fmt.Sprintf(`daemon off; pid %[1]s/pid; error_log %[1]s/log; events {}
http {
	access_log off; client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/g;
%s%s}`, dir, &zones, &servers)
	client := serve(t, dir, strings.ReplaceAll(strings.ReplaceAll(conf, "listen 127.0.0.1:80;", ""), "listen 127.0.0.1:80 default_server;", ""))
	result, err := Import("nginx.conf", []byte(conf), Options{Files: draft.Files{None: true}})
	if err != nil {
		t.Fatal(err)
	}
	rules, _, err := policy.Parse("policy", result.Policy)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"a.example", "A.example", "y.b.example", "x.b.example", "z.x.b.example", "c.example", "q.c.example", "www.d.org", "other.example", "nobody.example"} {
		for _, path := range []string{"/", "/a", "/a/", "/ab", "/a/b", "/a/b/c/d", "/a/xz", "/a/b/z", "/img/", "/img/y.php", "/img/x.php", "/x.php", "/a/x.php", "/x.phpx", "/y.jpeg", "/y.jpegs", "/d/", "/d", "/axe"} {
			req, err := http.NewRequest(http.MethodGet, "http://"+host+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			want, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			asked := &policy.RequestView{}
			asked.Say(policy.FieldHost, strings.ToLower(host))
			asked.Say(policy.FieldPath, path)
			got := rules.MatchRequest(asked)
			name := "none"
			if got >= 0 {
				name, _, _ = strings.Cut(rules.Requests[got].Name, "-")
			}
			if name != string(want) {
				t.Errorf("%s%s: nginx takes %s, the policy %s", host, path, want, name)
			}
		}
	}
	if t.Failed() {
		t.Logf("%s\n%s", conf, result.Policy)
	}
}
