// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"narthex/internal/api"
	"narthex/internal/daemon/openapi"
)

func TestControlSocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.sock")
	first, err := listenControl(path, "test", 0o600)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o600 {
		t.Errorf("mode %o, want 600", got)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("in the folder: %v, %v; want the socket alone", entries, err)
	}
	if _, err := listenControl(path, "test", 0o600); err == nil || !strings.Contains(err.Error(), "another process listens on") {
		t.Errorf("a socket in use: error %v", err)
	}
	first.Close()
	second, err := listenControl(path, "test", 0o600)
	if err != nil {
		t.Fatalf("a dead socket is not replaced: %v", err)
	}
	second.Close()

	long := filepath.Join(dir, strings.Repeat("x", len(unix.RawSockaddrUnix{}.Path)))
	if _, err := listenControl(long, "test", 0o600); err == nil || !strings.Contains(err.Error(), "name a shorter one with --socket") {
		t.Errorf("a long path: error %v", err)
	}
}

func TestControlSocketAfterAKill(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.sock")
	left := temporaryDir(path, "test")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left, temporaryName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := listenControl(path, "test", 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("in the folder: %v, %v; want the socket alone", entries, err)
	}
}

func TestControlSocketMakesNoFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	_, err := listenControl(filepath.Join(dir, "a.sock"), "test", 0o600)
	want := fmt.Sprintf("there is no folder %q for the control socket: make it or name another path with --socket", dir)
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the folder was made")
	}
}

func TestAllowedUser(t *testing.T) {
	tests := []struct {
		peer uint32
		own  int
		want bool
	}{
		{0, 0, true},
		{0, 1000, true},
		{1000, 1000, true},
		{1000, 0, false},
		{1001, 1000, false},
	}
	for _, tt := range tests {
		if got := allowedUser(tt.peer, tt.own); got != tt.want {
			t.Errorf("user %d at a daemon of user %d: %v, want %v", tt.peer, tt.own, got, tt.want)
		}
	}
}

func TestPeerIsCheckedOnEveryConnection(t *testing.T) {
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	w := httptest.NewRecorder()
	onlyAllowedPeers(next).ServeHTTP(w, httptest.NewRequest("GET", "/v1/status", nil))
	if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), `{"error":"no permission to use this socket`) {
		t.Errorf("unknown peer: %d %s", w.Code, w.Body)
	}

	path := filepath.Join(t.TempDir(), "s")
	listener, err := listenControl(path, "test", 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	accepted := make(chan bool)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			accepted <- false
			return
		}
		defer conn.Close()
		peer, _ := groupless.withPeer(t.Context(), conn).Value(peerKey{}).(peer)
		allowed := peer.may == openapi.AccessRoot
		accepted <- allowed
	}()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if !<-accepted {
		t.Error("our own user is refused")
	}
}

// Members of the groups may do what these are for, and nobody else anything.
func TestGroups(t *testing.T) {
	g := groups{read: 100, write: 200}
	for _, tt := range []struct {
		of   []uint32
		want openapi.Access
	}{{nil, openapi.AccessNone}, {[]uint32{7}, openapi.AccessNone}, {[]uint32{7, 100}, openapi.AccessRead}, {[]uint32{200, 100}, openapi.AccessWrite}} {
		if got := g.access(tt.of); got != tt.want {
			t.Errorf("a member of %d may %s, want %s", tt.of, got, tt.want)
		}
	}
	if got := groupless.access([]uint32{0, 100, 1<<32 - 1}); got != openapi.AccessNone || groupless.openTo() != 0o600 || g.openTo() != 0o666 {
		t.Errorf("without groups a member may %s", got)
	}
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for _, tt := range []struct {
		may          openapi.Access
		method, path string
		code         int
	}{
		{openapi.AccessRead, "GET", "/v1/status", 204}, {openapi.AccessRead, "POST", "/v1/explain", 204}, {openapi.AccessRead, "POST", "/v1/set", 403},
		{openapi.AccessWrite, "POST", "/v1/set", 204}, {openapi.AccessWrite, "POST", "/v1/reload", 403}, {openapi.AccessWrite, "POST", "/v1/stop", 403},
		{openapi.AccessWrite, "POST", "/v1/shadow", 403}, {openapi.AccessRead, "GET", "/v1/shadow", 204}, {openapi.AccessRoot, "POST", "/v1/stop", 204},
		{openapi.AccessNone, "GET", "/v1/status", 403},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(tt.method, tt.path, nil)
		onlyAllowedPeers(next).ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), peerKey{}, peer{"x", tt.may})))
		if w.Code != tt.code {
			t.Errorf("%s %s by who may %s: %d, want %d", tt.method, tt.path, tt.may, w.Code, tt.code)
		}
	}
	if _, err := findGroup("read-group", "no-such-group"); err == nil || !strings.Contains(err.Error(), "groupadd") {
		t.Errorf("error %v", err)
	}
	if n, err := findGroup("read-group", "root"); n != 0 || err != nil {
		t.Errorf("group root is %d, %v", n, err)
	}
}

// What the control socket offers is what the description says.
func TestDescription(t *testing.T) {
	m := newMachine(t, "eth0")
	cfg := m.config(m.write("p.yaml", onePolicy))
	r := m.start(cfg)
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", cfg.Socket) },
	}}
	for _, e := range openapi.Endpoints {
		if e.Path == api.PathStop {
			continue // its body would be empty, which is refused after it was found
		}
		req, err := http.NewRequest(e.Method, "http://narthex"+e.Path+"?once=1", strings.NewReader("?"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		resp, err := client.Do(req.WithContext(ctx))
		if err != nil {
			t.Errorf("%s %s: %v", e.Method, e.Path, err)
		} else if resp.Body.Close(); resp.StatusCode == http.StatusNotFound {
			t.Errorf("there is no %s %s", e.Method, e.Path)
		}
		cancel()
	}
	r.end()
}

func TestAPIRefuses(t *testing.T) {
	m := newMachine(t, "eth0")
	cfg := m.config(m.write("p.yaml", onePolicy))
	r := m.start(cfg)
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", cfg.Socket) },
	}}
	tests := []struct {
		name, method, path, body string
		code                     int
		want                     string
	}{
		{"unknown path", "GET", "/v1/nothing", "", 404, `{"error":"there is no GET /v1/nothing","usage":true}`},
		{"wrong method", "GET", "/v1/stop", "", 404, `{"error":"there is no GET /v1/stop","usage":true}`},
		{"no body", "POST", "/v1/set", "", 400, `{"error":"read request: EOF","usage":true}`},
		{"unknown key", "POST", "/v1/set", `{"pth": "x"}`, 400, `{"error":"read request: json: unknown field \"pth\"","usage":true}`},
		{"two values", "POST", "/v1/set", `{} {}`, 400, `{"error":"read request: more than one value","usage":true}`},
		{"large", "POST", "/v1/set", `{"path": "` + strings.Repeat("x", largestRequest) + `"}`, 400, `{"error":"read request: http: request body too large","usage":true}`},
		{"override of nothing", "POST", "/v1/set", `{"path": "connections.everyone.rate", "policy": true}`, 200, `{"changed":false,"overrides":[]}`},
		{"wrong value", "POST", "/v1/set", `{"path": "connections.everyone.rate", "value": "x"}`, 422,
			`{"error":"set connections.everyone.rate: \"x\" is not a rate; write a whole number per second, minute or hour, as 100/s, 15/m or 1000/h","usage":true}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req, err := http.NewRequest(tt.method, "http://narthex"+tt.path, strings.NewReader(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tt.code || strings.TrimSpace(string(body)) != tt.want {
				t.Errorf("answer %d\n%s\nwant %d\n%s", resp.StatusCode, body, tt.code, tt.want)
			}
		})
	}
	r.end()
}
