// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"narthex/internal/api"
	"narthex/internal/lab/origin"
	"narthex/internal/load"
	"narthex/test/nettest"
)

const (
	floodClients = 60
	// floodFor is how long a flood lasts: longer than everything that is tried meanwhile.
	floodFor = 30 * time.Second
)

// flood starts clients of a kind that ask again as soon as they are answered.
func (r *room) flood(w who, clients int) *load.Run {
	r.t.Helper()
	return r.floodUntil(r.t.Context(), w, clients)
}

// floodUntil is flood, that ends with a context at the latest.
func (r *room) floodUntil(ctx context.Context, w who, clients int) *load.Run {
	r.t.Helper()
	run, err := load.Closed{
		Client:  load.Client{NS: r.client, Target: r.to, Sources: []netip.Addr{r.addr(w)}, Duration: floodFor},
		Clients: clients,
	}.Start(ctx)
	nettest.Check(r.t, err)
	return run
}

// adapts waits until what the status says of the service's limit fits.
func (r *room) adapts(what string, fits func(api.ServiceStatus, api.AdaptationStatus) bool) (got api.ServiceStatus) {
	r.t.Helper()
	there := within(patience, func() bool {
		got = r.status().Services[0]
		return got.Adaptation != nil && fits(got, *got.Adaptation)
	})
	if !there {
		r.t.Fatalf("never: %s; limit %s, %+v, changes %+v", what, got.Limit, got.Adaptation, got.Changes)
	}
	return got
}

// limited reports whether a limit holds most of the flood back.
func limited(s api.ServiceStatus, a api.AdaptationStatus) bool {
	return a.Auto && a.Overload && a.Limit >= 1 && a.Limit < floodClients/2 && s.InService < floodClients/2 && s.Waiting > 0
}

// A flood at a server that works 5 ms for each request brings a limit about. Somebody can take
// it over and hand it back; rules that ask for overload are enforced; and it outlives the
// daemon. When the flood is over, nothing is left of it.
func TestLimitSetsItself(t *testing.T) {
	s := newScene(t, plain, false)
	s.origin(origin.Config{Work: 5 * time.Millisecond})
	p := roomPolicy{service: "concurrency: auto"}
	r := s.enforce(p)
	r.loose = true
	r.reload(p.String() + "requests: [{name: shed, path: /shed, action: reject, when: overload}]\n")
	first := r.visit(bronze)
	first.get("/shed")
	first.wants(http.StatusOK)

	runs := []*load.Run{r.flood(bronze, floodClients), r.flood(gold, 2)}
	r.adapts("a limit", limited)
	v := r.visit(bronze)
	v.get("/shed")
	v.isRejected()
	eventually(t, "gold goes first", func() bool {
		g, b := r.class(gold), r.class(bronze)
		return g.Wait.Count > 20 && b.Wait.Count > 20 && g.Wait.Mean < b.Wait.Mean
	})
	r.saysWhy()

	must(t, r.command("set", "services.web.concurrency", "3")...)
	eventually(t, "the limit is somebody's", func() bool {
		s := r.status().Services[0]
		return s.Limit == "3" && s.InService <= 3 && s.Waiting > 0
	})
	must(t, r.command("set", "services.web.concurrency", "auto")...)
	r.adapts("a limit of its own again", limited)

	r.stop(syscall.SIGKILL)
	r.instance.start()
	if s := r.status(); !s.Adopted || s.Services[0].InService >= floodClients/2 || s.Services[0].Waiting == 0 {
		t.Errorf("after the daemon was killed and came back: adopted %v, %d in service, %d wait",
			s.Adopted, s.Services[0].InService, s.Services[0].Waiting)
	}
	r.adapts("a limit of the next daemon", limited)

	for _, run := range runs {
		_, err := run.Wait()
		nettest.Check(t, err)
	}
	r.adapts("the end of overload", func(_ api.ServiceStatus, a api.AdaptationStatus) bool { return !a.Overload })
	last := r.visit(bronze)
	last.get("/shed")
	last.wants(http.StatusOK)
	r.await(0, 0)
}

// saysWhy checks that the status says what set the limit, and why.
func (r *room) saysWhy() {
	r.t.Helper()
	changes := r.status().Services[0].Changes
	if len(changes) == 0 || changes[0].By != "agent" || changes[0].Reason == "" || changes[0].Signal == "" || changes[0].At.IsZero() {
		r.t.Errorf("changes %+v", changes)
	}
	if text := must(r.t, r.command("status")...); !strings.Contains(text, "  set by ") || !strings.Contains(text, "overloaded (degree ") || !strings.Contains(text, " (auto)  in service ") {
		r.t.Errorf("the status does not say what set the limit:\n%s", text)
	}
}
