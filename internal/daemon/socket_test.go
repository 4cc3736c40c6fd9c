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

	"golang.org/x/sys/unix"
)

func TestControlSocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.sock")
	first, err := listenControl(path, "test")
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
	if _, err := listenControl(path, "test"); err == nil || !strings.Contains(err.Error(), "another process listens on") {
		t.Errorf("a socket in use: error %v", err)
	}
	first.Close()
	second, err := listenControl(path, "test")
	if err != nil {
		t.Fatalf("a dead socket is not replaced: %v", err)
	}
	second.Close()

	long := filepath.Join(dir, strings.Repeat("x", len(unix.RawSockaddrUnix{}.Path)))
	if _, err := listenControl(long, "test"); err == nil || !strings.Contains(err.Error(), "name a shorter one with --socket") {
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
	listener, err := listenControl(path, "test")
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
	_, err := listenControl(filepath.Join(dir, "a.sock"), "test")
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
	listener, err := listenControl(path, "test")
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
		peer, _ := withPeer(t.Context(), conn).Value(peerKey{}).(peer)
		allowed := peer.allowed
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
			`{"error":"set connections.everyone.rate: \"x\" is not a rate; write a whole number per second or per minute, as 100/s or 15/m","usage":true}`},
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
