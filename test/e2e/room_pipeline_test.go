// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

// Whoever sends many requests at once is at the end of the queue with each of them.
func TestRoomPipelinedTakeTurns(t *testing.T) {
	t.Parallel()
	r, first := blocked(t, roomPolicy{service: "queue: {max_wait: 20s}"}, origin.Config{})
	p := r.visit(bronze)
	p.send(getRequest(p.host, "/wait?for=p1") + getRequest(p.host, "/p2") + postHead(p.host, "/p3", 5) + "hello" + getRequest(p.host, "/p4"))
	r.await(1, 1)
	b := r.queue(bronze, "/wait?for=b", 2)
	r.letGo("first")
	first.wants(http.StatusOK)
	eventually(t, "the first of them is in service", func() bool { return len(r.asked()) == 2 })
	g := r.queue(gold, "/g", 2)
	r.letGo("p1")
	p.wants(http.StatusOK)
	g.wants(http.StatusOK)
	eventually(t, "the other is in service", func() bool { return len(r.asked()) == 4 })
	r.await(1, 1) // the second of them has come again
	r.letGo("b")
	b.wants(http.StatusOK)
	for range 3 {
		p.wants(http.StatusOK)
	}
	r.wasAsked("/wait?for=first", "/wait?for=p1", "/g", "/wait?for=b", "/p2", "/p3", "/p4")
	// Who asks while the server goes on with the answer before is left to come again.
	if got := r.class(bronze); got.Arrived-got.GaveUp != 6 {
		t.Errorf("%+v, want 6 arrived and stayed", got)
	}
	r.calm()
}

// However requests lie in segments, each arrives once and in order.
func TestRoomPipelinedSegments(t *testing.T) {
	t.Parallel()
	situations(t, func(t *testing.T, kept, held bool) {
		r, all, unblock := in(t, kept, held, 4, roomPolicy{service: "queue: {max_wait: 20s}"}, origin.Config{})
		text := func(i int) (s string) {
			for j := range 4 {
				s += fmt.Sprintf("POST /%d%d HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", i, j)
			}
			return s
		}
		size := len(text(0)) / 4
		for i, cuts := range [][]int{nil, {size}, {size - 1, 2*size + 1}, {size/2 + 1, size + 1, 2*size - 4, 3*size - 3}} {
			all[i].pieces(text(i), cuts...)
			if held {
				r.await(1, i+1)
			}
		}
		unblock()
		next := map[string]int{}
		for i, v := range all {
			for range 4 {
				v.wants(http.StatusOK)
			}
			next[fmt.Sprint(i)] = 0
		}
		for _, uri := range r.news() {
			who, turn := uri[1:2], uri[2:]
			if fmt.Sprint(next[who]) != turn {
				t.Errorf("the server was asked for %s, want the request %d of it", uri, next[who])
			}
			next[who]++
		}
		r.calm()
	})
}

// A load generator that pipelines has its answers one by one, and does not have to send its requests again.
func TestRoomPipelinedUnderLoad(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, plain, false)
	s.serve(s.server.StartNginx(lab.NginxConfig{Listen: s.listen()}))
	r := s.enforce(roomPolicy{service: "concurrency: 2, queue: {max_wait: 20s}"})
	script := filepath.Join(t.TempDir(), "pipeline.lua")
	nettest.Check(t, os.WriteFile(script, []byte(`
init = function()
  local all = {}
  for i = 1, 4 do all[i] = wrk.format("GET", "`+lab.File+`") end
  together = table.concat(all)
end
request = function() return together end
`), 0o600))
	out, err := s.client.Command("wrk", "-t1", "-c16", "-d4s", "--timeout", "20s", "-s", script, "http://"+s.to.String()+"/").CombinedOutput()
	if err != nil || strings.Contains(string(out), "Socket errors") || strings.Contains(string(out), "Non-2xx") {
		t.Errorf("wrk: %v\n%s", err, out)
	}
	if got := r.read().sum(); got.Held == 0 || got.Arrived < 16 {
		t.Errorf("%+v, want many that arrived and some held", got)
	}
	if got := r.status().Reasons["recalled"].Passed; got < 10 {
		t.Errorf("%d requests had come too early and came in their turn, want 10 at least", got)
	}
	r.calm()
}
