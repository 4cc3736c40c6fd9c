// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"net/http"
	"testing"
	"time"

	"narthex/internal/lab/origin"
)

// A flood brings each level of overload about, one after the other, with the rules that are enforced from it on. When
// it is over, all of them end.
func TestLevelsOfOverload(t *testing.T) {
	s := newScene(t, plain, false)
	s.origin(origin.Config{Sleep: 20 * time.Millisecond})
	p := roomPolicy{service: "concurrency: 1, queue: {size: 4}, overload: {rejecting: 5/s, flooded: 60/s, calm: 1s}"}
	r := s.enforce(p)
	r.loose = true
	r.reload(p.String() + `requests:
  - {name: first, path: /first, action: reject, when: overload}
  - {name: second, path: /second, action: reject, when: rejecting}
  - {name: third, path: /third, action: reject, when: flooded}
`)
	level := func() string { return r.status().Services[0].Adaptation.Level }
	v := r.visit(gold)
	v.get("/third")
	v.wants(http.StatusOK)

	ctx, end := context.WithCancel(t.Context())
	defer end()
	few := r.floodUntil(ctx, bronze, 3) // there is room for all to wait
	eventually(t, "overload", func() bool { return level() == "overload" })
	many := r.floodUntil(ctx, bronze, floodClients)
	eventually(t, "a flood", func() bool { return level() == "flooded" })
	for _, path := range []string{"/first", "/second", "/third"} {
		v := r.visit(gold)
		v.get(path)
		v.isRejected()
	}
	end()
	<-few.Done()
	<-many.Done()
	eventually(t, "the end of it", func() bool { return level() == "calm" })
	last := r.visit(gold)
	last.get("/first")
	last.wants(http.StatusOK)
}
