// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"narthex/internal/api"
	"narthex/internal/lab/origin"
	"narthex/internal/load"
)

// pacedPolicy has a rate that sets itself for bronze.
func pacedPolicy(service, connection, request string) string {
	return `version: 1
services: [{name: web, listen: ["*:80"], ` + service + `}]
classes: [{name: gold, priority: 1}, {name: bronze, priority: 2}]
connections:
  - {name: gold, from: 10.77.2.0/24, class: gold}
  - {name: bronze, from: 10.77.3.0/24, class: bronze` + connection + `}
` + request
}

// A rate sets itself where nothing is held, for connections that only their SYNs tell of and for requests. It
// outlives the daemon for a while, and when the flood is over nothing is left of it.
func TestRateSetsItself(t *testing.T) {
	for name, tt := range map[string]struct {
		policy string
		rule   func(api.Status) api.RuleStatus
		wants  string // in the status
		blind  bool   // a daemon that comes while the flood lasts cannot tell how quick the server would be
	}{
		"connections, tcp":       {pacedPolicy("protocol: tcp", ", rate: auto", ""), func(s api.Status) api.RuleStatus { return s.Rules[1] }, "auto, now ", false},
		"requests, no limit":     {pacedPolicy("concurrency: unlimited", "", "requests: [{name: dynamic, path: /, rate: {auto: true, max: 350/s}, class: bronze}]\n"), func(s api.Status) api.RuleStatus { return s.Requests[0].RuleStatus }, "auto (max 350/s), now ", true},
		"connections, with room": {pacedPolicy("concurrency: auto", ", rate: auto", ""), func(s api.Status) api.RuleStatus { return s.Rules[1] }, "auto, now ", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, plain, false)
			s.origin(origin.Config{Workers: 8, Sleep: 20 * time.Millisecond, NoKeepAlive: true, NoMPTCP: true})
			r := s.enforce(roomPolicy{service: "concurrency: unlimited"})
			r.loose = true
			r.reload(tt.policy)
			ctx, end := context.WithCancel(t.Context())
			defer end()
			runs := []*load.Run{r.floodUntil(ctx, gold, 1)}
			eventually(t, "quick answers", func() bool { return r.status().Services[0].Passed > 50 })
			runs = append(runs, r.floodUntil(ctx, bronze, floodClients))
			limits := func() bool {
				s := r.status()
				rule := tt.rule(s)
				a := s.Services[0].Adaptation
				return a != nil && a.Overload && rule.RateNow > 50 && rule.RateNow < 1000 && rule.Dropped > 0
			}
			eventually(t, "a rate", limits)
			if text := must(t, r.command("status")...); !strings.Contains(text, tt.wants) {
				t.Errorf("the status does not say %q:\n%s", tt.wants, text)
			}
			r.stop(syscall.SIGKILL)
			r.instance.start()
			if !tt.blind {
				eventually(t, "a rate of the next daemon", limits)
			}
			end()
			for _, run := range runs {
				<-run.Done()
			}
			eventually(t, "the end of overload", func() bool {
				s := r.status()
				return !s.Services[0].Adaptation.Overload && tt.rule(s).RateNow == 0
			})
		})
	}
}
