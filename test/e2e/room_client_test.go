// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/http"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

// ways are how a client can leave.
var ways = []struct {
	name  string
	leave func(s *scene, v *visitor)
}{
	{"resets", func(_ *scene, v *visitor) { v.reset() }},
	{"half-closes", func(_ *scene, v *visitor) { v.halfClose() }},
	{"closes", func(_ *scene, v *visitor) { v.conn.Close() }},
	{"vanishes", func(s *scene, v *visitor) { s.vanish(v.who) }},
}

// Whenever and however a client leaves, nothing of it stays.
func TestRoomClientLeaves(t *testing.T) {
	t.Parallel()
	for _, state := range []struct {
		name string
		run  func(t *testing.T, leave func(s *scene, v *visitor))
	}{
		{"after the handshake", func(t *testing.T, leave func(s *scene, v *visitor)) {
			s := sharedScene(t, plain, false)
			s.origin(origin.Config{})
			r := s.enforce(roomPolicy{})
			leave(s, r.visit(bronze))
			r.calm()
		}},
		{"in the middle of the head", func(t *testing.T, leave func(s *scene, v *visitor)) {
			s := sharedScene(t, plain, false)
			s.origin(origin.Config{})
			r := s.enforce(roomPolicy{service: "queue: {max_wait: 2s, max_service: 10s}"})
			v := r.visit(bronze)
			v.send("GET / HT")
			eventually(t, "it has come", func() bool { return r.class(bronze).Arrived == 1 || r.read().pool.UsedFlows > 0 })
			leave(s, v)
			eventually(t, "nothing gathers", func() bool { return r.read().Gathering == 0 })
			r.refused[bronze] += r.class(bronze).Rejected["max_wait"] // who vanishes is waited for
			r.calm()
		}},
		{"while it is held", func(t *testing.T, leave func(s *scene, v *visitor)) {
			s := sharedScene(t, plain, false)
			s.origin(origin.Config{})
			r := s.enforce(roomPolicy{})
			first := r.visit(gold)
			first.get("/wait?for=first")
			r.await(1, 0)
			v := r.queue(bronze, "/gone", 1)
			g := r.queue(gold, "/g", 2)
			leave(s, v)
			r.letGo("first")
			first.wants(http.StatusOK)
			g.wants(http.StatusOK)
			r.calm()
		}},
		{"while its next request is held", func(t *testing.T, leave func(s *scene, v *visitor)) {
			s := sharedScene(t, plain, false)
			s.origin(origin.Config{})
			r := s.enforce(roomPolicy{})
			v := r.visit(bronze)
			v.get("/")
			v.wants(http.StatusOK)
			first := r.visit(gold)
			first.get("/wait?for=first")
			r.await(1, 0)
			v.get("/gone")
			r.await(1, 1)
			leave(s, v)
			r.letGo("first")
			first.wants(http.StatusOK)
			r.calm()
		}},
		{"in service", func(t *testing.T, leave func(s *scene, v *visitor)) {
			s := sharedScene(t, plain, false)
			s.origin(origin.Config{})
			r := s.enforce(roomPolicy{})
			v := r.visit(bronze)
			v.get("/wait?for=first")
			r.await(1, 0)
			g := r.visit(gold)
			g.get("/g")
			leave(s, v)
			r.letGo("first")
			g.wants(http.StatusOK)
			r.calm()
		}},
		{"in service, and is never answered", func(t *testing.T, leave func(s *scene, v *visitor)) {
			s := sharedScene(t, plain, false)
			s.origin(origin.Config{})
			r := s.enforce(roomPolicy{service: "queue: {max_service: 10s}"})
			v := r.visit(bronze)
			v.get("/wait?for=ever")
			r.await(1, 0)
			leave(s, v)
			r.calm()
		}},
		{"idle", func(t *testing.T, leave func(s *scene, v *visitor)) {
			s := sharedScene(t, plain, false)
			s.origin(origin.Config{})
			r := s.enforce(roomPolicy{})
			v := r.visit(bronze)
			v.get("/")
			v.wants(http.StatusOK)
			leave(s, v)
			r.calm()
		}},
	} {
		for _, way := range ways {
			t.Run(state.name+"/"+way.name, func(t *testing.T) { state.run(t, way.leave) })
		}
	}
}

// A client that offers MPTCP is held and served like any other.
func TestRoomMPTCPClient(t *testing.T) {
	t.Parallel()
	r, first := blocked(t, roomPolicy{}, origin.Config{})
	v, err := r.tryVisit(gold, unix.IPPROTO_MPTCP)
	nettest.Check(t, err)
	defer v.conn.Close()
	v.get("/held")
	r.await(1, 1)
	r.letGo("first")
	first.wants(http.StatusOK)
	v.wants(http.StatusOK)
	v.get("/next")
	v.wants(http.StatusOK)
	r.wasAsked("/wait?for=first", "/held", "/next")
	v.conn.Close()
	r.calm()
}

// A crowd that vanishes at once leaves nothing.
func TestRoomCrowdVanishes(t *testing.T) {
	t.Parallel()
	r, first := blocked(t, roomPolicy{}, origin.Config{})
	const crowd = 300
	var all sync.WaitGroup
	var failed sync.Once
	for range crowd {
		all.Add(1)
		go func() {
			defer all.Done()
			v, err := r.tryVisit(bronze, 0)
			if err == nil {
				t.Cleanup(func() { v.conn.Close() })
				_, err = v.conn.Write([]byte(getRequest(v.host, "/gone")))
			}
			if err != nil {
				failed.Do(func() { t.Error(err) })
			}
		}()
	}
	all.Wait()
	r.await(1, crowd)
	r.vanish(bronze)
	r.letGo("first")
	_ = first
	r.calm()
}

// While the kernel answers with SYN cookies requests wait like all others: none goes by,
// none is lost.
func TestRoomSYNCookies(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, plain, false)
	s.origin(origin.Config{Backlog: 8})
	r := s.enforce(roomPolicy{})
	before := r.counter("TcpExtSyncookiesSent")
	first := r.visit(bronze)
	first.get("/wait?for=first")
	r.await(1, 0)
	const clients = 30
	var held []*visitor
	for range clients {
		v := r.visit(gold)
		v.get("/held")
		held = append(held, v)
	}
	r.await(1, clients)
	r.wasAsked("/wait?for=first")
	if r.counter("TcpExtSyncookiesSent") == before {
		t.Error("no SYN cookies were sent")
	}
	r.letGo("first")
	first.wants(http.StatusOK)
	for _, v := range held {
		v.wants(http.StatusOK)
	}
	if got := r.asked(); len(got) != 1+clients || slices.Contains(got[1:], "/wait?for=first") {
		t.Errorf("the server was asked %d times: %q", len(got), got)
	}
	r.calm()
}
