// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/internal/load"
	"narthex/test/nettest"
)

// proxying has nginx pass everything on at once, with upgrades.
const proxying = `
location / {
	proxy_pass http://127.0.0.1:8000;
	proxy_http_version 1.1;
	proxy_set_header Upgrade $http_upgrade;
	proxy_set_header Connection $upgrades;
	proxy_buffering off;
}
`

// proxied starts an origin behind nginx.
func (s *scene) proxied(workers int) *lab.Server {
	s.t.Helper()
	cfg := origin.Config{Listen: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:8000")}, Control: []netip.AddrPort{s.tell}, Body: 64}
	s.serve(origin.Start(s.server, cfg))
	return s.serve(s.server.StartNginx(lab.NginxConfig{
		Listen: s.listen(), Workers: workers, Server: proxying, HTTP: `map $http_upgrade $upgrades { default upgrade; "" ""; }`,
	}))
}

// A WebSocket that nginx passes on is in service until it closes, and what is said in it is nobody's request.
func TestRoomProxiedWebSocket(t *testing.T) {
	t.Parallel()
	for _, kept := range []bool{false, true} {
		t.Run(fmt.Sprintf("kept=%v", kept), func(t *testing.T) {
			s := sharedScene(t, plain, false)
			s.proxied(1)
			r := s.enforce(roomPolicy{})
			v := r.visit(gold)
			if kept {
				v.get("/")
				v.wants(http.StatusOK)
				r.await(0, 0)
			}
			v.tunnel = true
			v.pieces(websocket, 4)
			v.wants(http.StatusSwitchingProtocols)
			r.await(1, 0)
			b := r.queue(bronze, "/b", 1)
			for _, text := range []string{"\x81\x05hello", getRequest("x", "/no-request"), "GET / HTTP/1.1\n\n", strings.Repeat("long", 5000)} {
				v.sendLater(text)
				got := make([]byte, len(text))
				if _, err := readFull(v, got); err != nil || string(got) != text {
					t.Fatalf("through the WebSocket came %.40q, error %v; want %.40q", got, err, text)
				}
			}
			b.silent(3 * quiet)
			r.await(1, 1)
			v.conn.Close()
			b.wants(http.StatusOK)
			r.calm()
		})
	}
}

// Events that a server sends now and then: their stream has begun, so that others go on, and nothing of it is lost. A
// request for which a server waits long has its place until it is answered.
func TestRoomProxiedStreams(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, plain, false)
	s.proxied(1)
	r := s.enforce(roomPolicy{})
	const streams = 8
	var all []*visitor
	for i := range streams {
		v := r.visit([]who{gold, bronze}[i%2])
		v.get("/stream?for=events")
		resp, err := http.ReadResponse(v.r, nil)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("stream %d: %v, %v", i, resp, err)
		}
		first := make([]byte, 64)
		if _, err := resp.Body.Read(first); err != nil {
			t.Fatalf("stream %d: %v, %+v", i, err, resp)
		}
		all = append(all, v)
		r.await(0, 0)
	}
	poll := r.visit(gold)
	poll.get("/wait?for=news")
	r.await(1, 0)
	b := r.queue(bronze, "/b", 1)
	b.silent(3 * quiet)
	r.letGo("events")
	for i, v := range all {
		rest := new(strings.Builder)
		for !strings.Contains(rest.String(), "\r\n0\r\n\r\n") {
			c, err := v.r.ReadByte()
			if err != nil {
				t.Fatalf("stream %d ends with %q, %v", i, rest, err)
			}
			rest.WriteByte(c)
		}
	}
	r.await(1, 1) // the news are still to come
	r.letGo("news")
	poll.wants(http.StatusOK)
	b.wants(http.StatusOK)
	for _, v := range all { // their connections are as good as before
		v.get("/again")
		v.wants(http.StatusOK)
	}
	r.calm()
}

// nginx is told to read its configuration again, while requests come: none is lost, and no place.
func TestRoomNginxReload(t *testing.T) {
	t.Parallel()
	for _, keepAlive := range []bool{false, true} {
		t.Run(fmt.Sprintf("keepalive=%v", keepAlive), func(t *testing.T) {
			s := sharedScene(t, plain, false)
			nginx := s.proxied(2)
			r := s.enforce(roomPolicy{service: "concurrency: 2, queue: {size: 64, max_wait: 20s}"})
			run, err := load.Closed{
				Client:  load.Client{NS: s.client, Target: s.to, Sources: []netip.Addr{s.addr(gold), s.addr(bronze)}, Path: "/wait?ms=2", Duration: 4 * time.Second, Timeout: patience, ConnectTimeout: patience},
				Clients: 24, KeepAlive: keepAlive,
			}.Start(t.Context())
			nettest.Check(t, err)
			eventually(t, "somebody waits", func() bool { return r.read().Waiting > 0 })
			for range 6 {
				nettest.Check(t, syscall.Kill(nginx.PID(), syscall.SIGHUP))
				time.Sleep(400 * time.Millisecond)
			}
			report, err := run.Wait()
			nettest.Check(t, err)
			bad := report.Begun - report.Outcomes[load.OK] - report.Outcomes[load.Unfinished]
			if keepAlive {
				// nginx closes kept connections: whose request waits at that moment is told so, and who asks at that moment sees
				// the close.
				bad -= report.Outcomes[load.Reset] + report.Outcomes[load.Cut] + uint64(report.Statuses[http.StatusServiceUnavailable])
				if most := uint64(6 * 24); report.Begun-report.Outcomes[load.OK] > most {
					t.Errorf("%d requests of %d failed in six reloads, more than there are connections", report.Begun-report.Outcomes[load.OK], report.Begun)
				}
			}
			if bad > 0 || report.Outcomes[load.OK] < 200 {
				t.Errorf("of %d requests %d failed: %v, statuses %v", report.Begun, bad, report.Outcomes, report.Statuses)
			}
			r.loose = true // some have gone in the midst
			r.calm()
		})
	}
}
