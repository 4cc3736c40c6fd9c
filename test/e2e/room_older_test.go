// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"narthex/internal/datapath"
	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

// older has so many connections on each of which a request has been answered before there is a daemon.
func older(t *testing.T, s *scene, n int) (all []*visitor) {
	t.Helper()
	for range n {
		v := s.visit(bronze)
		v.get("/")
		v.wants(http.StatusOK)
		all = append(all, v)
	}
	return all
}

const olderPolicy = `
version: 1
services: [{name: web, listen: ["*:80"], concurrency: 2, queue: {max_wait: 20s}}]
requests: [{name: denied, path: "/denied*", action: drop}]
`

// What a connection older than the limit asks for is decided on from its next request on, however its head is cut.
func TestRoomOlderConnectionsCutHeads(t *testing.T) {
	t.Parallel()
	r := newRuled(t, map[string]uint16{"web": 80}, "web")
	s := r.at(t, "web", false)
	all := append(older(t, s, 6), s.visit(bronze), s.visit(bronze)) // these have said nothing
	r.enforce(olderPolicy)
	const busy = "GET /wait?for=first HTTP/1.1\r\nHost: x\r\n\r\n"
	for i, v := range all {
		v.pieces(busy, 1+i*3)
	}
	r.awaits("web", 2, len(all)-2)
	if got := strings.Count(strings.Join(s.asked(), " "), "/wait"); got > 2 {
		t.Errorf("%d requests are with the server, the limit is 2", got)
	}
	s.letGo("first")
	for _, v := range all {
		v.wants(http.StatusOK)
	}
	r.awaits("web", 0, 0)

	all = older(t, s, 4)
	r.stop(15)
	all = append(all, older(t, s, 4)...)
	r.start()
	for i, v := range all {
		if err := v.tries("GET /denied HTTP/1.1\r\nHost: x\r\n\r\n", 4+i); err == nil {
			if resp, _, err := v.answer(); err == nil && resp.StatusCode == http.StatusOK {
				t.Errorf("connection %d gets what no rule lets through", i)
			}
		}
	}
	for _, uri := range s.asked() {
		if uri == "/denied" {
			t.Error("the server was asked for what no rule lets through")
		}
	}
	r.awaits("web", 0, 0)
}

// Transfers that run when the daemon comes go on undisturbed, and an upload counts as one, even beyond the limit.
func TestRoomOlderTransfers(t *testing.T) {
	t.Parallel()
	s := newScene(t, plain, false)
	const size = 4 << 20
	s.origin(origin.Config{Body: size})
	half := strings.Repeat("half of it", 10000)
	up := s.visit(bronze)
	up.send(fmt.Sprintf("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", 2*len(half), half))
	down := s.visit(bronze)
	down.get("/")
	_, err := down.r.Peek(1)
	nettest.Check(t, err)
	eventually(t, "the server has the half", func() bool { return len(s.asked()) == 2 })

	r := s.enforce(roomPolicy{})
	first := r.visit(gold)
	first.get("/wait?for=first")
	r.await(1, 0)
	sent := up.sendLater(half)
	resp, err := http.ReadResponse(down.r, nil)
	nettest.Check(t, err)
	if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != size {
		t.Errorf("%d bytes of the download came, %v", n, err)
	}
	if _, body := up.wants(http.StatusOK); string(body) != half+half {
		t.Errorf("the upload's %d bytes are not those that were sent", len(body))
	}
	<-sent
	r.letGo("first")
	first.wants(http.StatusOK)
	down.get("/next")
	down.wants(http.StatusOK)
	up.get("/next")
	up.wants(http.StatusOK)
	r.loose = true
	r.calm()
}

// traced reports whether programs hear of each change of each socket of the machine.
func (in *instance) traced() bool {
	in.t.Helper()
	links, err := os.ReadDir(filepath.Join(datapath.Root, in.name, "links"))
	nettest.Check(in.t, err)
	return slices.ContainsFunc(links, func(l os.DirEntry) bool { return l.Name() == "sockstate" || l.Name() == "sockmissed" })
}

// The end of a connection that is older than the daemon is seen like any other, and what that takes goes with the
// last of them. The next daemon has none that are older: those of before tell it of themselves.
func TestRoomOlderConnectionsEnd(t *testing.T) {
	t.Parallel()
	r := newRuled(t, map[string]uint16{"web": 80}, "web")
	s := r.at(t, "web", false)
	all := older(t, s, 2)
	r.enforce(olderPolicy)
	if !r.traced() {
		t.Error("nobody hears of the end of connections that are older")
	}
	end := func(all []*visitor, sign string) {
		t.Helper()
		for _, v := range all {
			v.get("/wait?for=" + sign)
		}
		r.awaits("web", len(all), 0)
		all[0].reset() // the server works on
		v := s.visit(bronze)
		v.get("/")
		r.awaits("web", len(all), 1)
		s.letGo(sign)
		v.wants(http.StatusOK)
		r.awaits("web", 0, 0)
	}
	end(all, "first")
	r.reload(olderPolicy)
	if !r.traced() {
		t.Error("nobody hears of the end of the connection that is left")
	}
	all[1].wants(http.StatusOK)
	nettest.Check(t, all[1].conn.Close())
	eventually(t, "no older connection is left", func() bool {
		r.reload(olderPolicy)
		return !r.traced()
	})
	all = []*visitor{s.visit(bronze), s.visit(bronze)}
	end(all, "second")
	r.stop(15)
	r.start()
	if r.traced() {
		t.Error("connections of the daemon before are not told of")
	}
	all[1].wants(http.StatusOK)
	all[1].get("/")
	all[1].wants(http.StatusOK)
	nettest.Check(t, all[1].conn.Close())
	r.awaits("web", 0, 0)
}
