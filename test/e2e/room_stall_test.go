// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

// unread has clients ask for more than the server's sockets take, on connections that close, and read nothing.
func (r *room) unread(clients int) (all []*visitor) {
	r.t.Helper()
	for range clients {
		v := r.visit(bronze)
		v.send("GET " + lab.LargeFile + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		all = append(all, v)
	}
	return all
}

// Clients that do not read what they asked for keep no places of a server that polls, whatever their connections
// end with.
func TestRoomUnread(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, plain, false)
	s.serve(s.server.StartNginx(lab.NginxConfig{Listen: s.listen()}))
	r := s.enforce(roomPolicy{service: "concurrency: 4"})
	all := r.unread(8)
	r.await(0, 0)
	if got := r.class(bronze); got.Paused != 8 {
		t.Errorf("%+v, want all 8 to have left service without an end", got)
	}
	g := r.visit(gold)
	for range 3 {
		g.get(lab.File)
		g.wants(http.StatusOK)
	}
	if _, body := all[0].wants(http.StatusOK); len(body) != lab.LargeBytes { // who reads gets it all
		t.Errorf("%d bytes", len(body))
	}
	for _, v := range all[1:] {
		v.reset()
	}
	g.conn.Close()
	r.calm()
}

// With last_byte a place is free when the server has written all, though the client has taken nothing.
func TestRoomWritten(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, plain, false)
	const length = 30_000 // more than its client's window, less than the socket takes
	s.handle(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(length))
		_, _ = w.Write(make([]byte, length))
	}))
	nettest.Check(t, s.client.Sysctl("ipv4/tcp_rmem", "4096 8192 8192"))
	s.changed = true
	r := s.enforce(roomPolicy{service: "service_ends: last_byte"})
	for range 3 {
		v := r.visit(bronze)
		v.get("/")
		r.await(0, 0)
		defer v.reset()
	}
}

// Where a worker works for one client at a time, one that keeps it waiting is reset, if others wait.
func TestRoomStall(t *testing.T) {
	t.Parallel()
	const workers = 4
	for _, server := range []roomServer{
		{"apache-prefork", func(s *scene) *lab.Server {
			return s.serve(s.server.StartApache(lab.ApacheConfig{Listen: s.listen(), MPM: lab.Prefork, Workers: workers}))
		}},
		{"nginx", func(s *scene) *lab.Server {
			return s.serve(s.server.StartNginx(lab.NginxConfig{Listen: s.listen()}))
		}},
	} {
		for _, v6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, v6=%v", server.name, v6), func(t *testing.T) {
				s := sharedScene(t, plain, v6)
				server.start(s)
				r := s.enforce(roomPolicy{service: fmt.Sprintf("concurrency: %d, service_ends: last_byte", workers), bronze: "stall: 500ms"})
				all := r.unread(workers)
				r.await(workers, 0)
				g := r.visit(gold)
				g.get(lab.File)
				g.wants(http.StatusOK)
				g.conn.Close()
				ended := 0
				for _, v := range all {
					if _, _, err := v.answer(); err != nil {
						ended++
					}
					v.conn.Close()
				}
				if ended == 0 {
					t.Error("nobody was reset")
				}
				r.calm()
			})
		}
	}
}

// The same of clients that leave out the bodies of their requests. They have no places any more, but workers.
func TestRoomStalledBodies(t *testing.T) {
	t.Parallel()
	const workers = 4
	s := sharedScene(t, plain, false)
	s.serve(s.server.StartApache(lab.ApacheConfig{Listen: s.listen(), MPM: lab.Prefork, Workers: workers}))
	r := s.enforce(roomPolicy{service: fmt.Sprintf("concurrency: %d", workers), bronze: "stall: 500ms"})
	for range workers {
		v := r.visit(bronze)
		v.send(postHead(v.host, lab.File, 10))
		defer v.conn.Close()
	}
	r.await(0, 0)
	var all []*visitor
	for range workers + 1 { // one of them has to wait
		g := r.visit(gold)
		g.get(lab.File)
		all = append(all, g)
	}
	for _, g := range all {
		g.wants(http.StatusOK)
		g.conn.Close()
	}
	r.calm()
}
