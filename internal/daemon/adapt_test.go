// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/policy"
)

const overloadPolicy = `version: 1
services:
  - {name: web, listen: "*:80"}
  - {name: free, listen: "*:81", concurrency: unlimited}
classes: [{name: gold, priority: 1}, {name: bronze, priority: 2}]
connections:
  - {name: crawler, from: 10.0.0.0/24, action: drop, when: overload, class: gold}
  - {name: slow, from: 10.0.2.0/24, rate: 5/s, burst: 3, when: overload}
requests:
  - {name: search, path: /search, action: reject, when: overload, class: gold}
  - {name: basket, path: /basket, rate: 2/s, burst: 1, per: source, over: drop, when: overload}
`

// TestSetTakesOver has somebody take a limit over and hand it back, and keeps who it was.
func TestSetTakesOver(t *testing.T) {
	m := newMachine(t, "eth0")
	var log bytes.Buffer
	cfg := m.config(m.write("p.yaml", overloadPolicy))
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	m.kernel.SetRooms(datapath.Room{Classes: make([]datapath.RoomClass, 2)})
	r := m.start(cfg)
	web := func() api.ServiceStatus { return r.status().Services[0] }
	eventually(t, "the limit sets itself", func() bool { return web().Adaptation != nil && strings.HasSuffix(web().Limit, " (auto)") })
	set := func(path, value string) {
		t.Helper()
		if _, err := r.client.Set(context.Background(), api.SetRequest{Path: path, Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	set("services.web.concurrency", "7")
	if s := web(); s.Limit != "7" || s.Adaptation == nil || s.Adaptation.Auto || s.Adaptation.Signal != "policy" {
		t.Errorf("taken over: limit %s, %+v", s.Limit, s.Adaptation)
	}
	set("services.web.concurrency.max", "40")
	set("services.web.concurrency", "auto")
	s := web()
	if s.Adaptation == nil || !s.Adaptation.Auto || s.Adaptation.Ceiling != 40 {
		t.Errorf("handed back: limit %s, %+v", s.Limit, s.Adaptation)
	}
	me := ownName()
	var got []string
	for _, c := range s.Changes {
		if c.By != byAgent {
			got = append(got, c.Old+" to "+c.New+" by "+c.By)
		}
	}
	if want := fmt.Sprintf("[7 to auto (max 40) by %s auto to 7 by %s]", me, me); fmt.Sprint(got) != want {
		t.Errorf("changes %v, want %s", got, want)
	}
	if _, err := r.client.Reload(context.Background(), api.ReloadRequest{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the reload is among the changes", func() bool {
		return strings.HasPrefix(fmt.Sprint(web().Changes), "[") && strings.Contains(fmt.Sprint(web().Changes), "auto (max 40) auto  false reload "+me)
	})
	r.end()
	for _, want := range []string{
		`msg=set instance=test path=services.web.concurrency old=auto new=7 by=` + logged(me),
		`msg="limit of a service" instance=test service=web old="auto (max 40)" new=auto by=` + logged(me) + ` reason=reload`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, log.String())
		}
	}
}

// TestSamples streams what is seen, until the listener has enough, and until the daemon ends.
func TestSamples(t *testing.T) {
	m := newMachine(t, "eth0")
	m.kernel.SetRooms(datapath.Room{InService: 3, Classes: make([]datapath.RoomClass, 2)})
	r := m.start(m.config(m.write("p.yaml", overloadPolicy)))
	enough := fmt.Errorf("enough")
	var got []api.Sample
	err := r.client.Samples(t.Context(), func(s api.Sample) error {
		if got = append(got, s); len(got) == 3 {
			return enough
		}
		return nil
	})
	if err != enough || got[2].Service != "web" || got[2].Sample.InService != 3 || got[2].Sample.At <= got[1].Sample.At || got[2].Decision.Signal == "" {
		t.Errorf("samples %+v, error %v", got, err)
	}
	begun, ended := make(chan bool, 1000), make(chan error)
	go func() {
		ended <- r.client.Samples(context.Background(), func(api.Sample) error {
			begun <- true
			return nil
		})
	}()
	<-begun
	r.end()
	if err := <-ended; err != nil {
		t.Errorf("after the end of the daemon: %v", err)
	}
}

// TestExplainOverload says of rules for overload whether they are enforced now.
func TestExplainOverload(t *testing.T) {
	overloaded := func(is bool) func(string) *api.AdaptationStatus {
		return func(service string) *api.AdaptationStatus {
			if service != "web" {
				return nil
			}
			level := policy.WhenAlways
			if is {
				level = policy.WhenOverload
			}
			return &api.AdaptationStatus{Auto: true, Limit: 4, Overload: is, Level: level.String()}
		}
	}
	no, yes := false, true
	for name, test := range map[string]struct {
		known    func(string) *api.AdaptationStatus
		from     string
		to       string
		verdict  string // on the SYN
		enforced *bool  // of the connection rule
		request  string // verdict on the request
		class    string
	}{
		"overloaded":              {overloaded(true), "10.0.0.1", "192.0.2.1:80", "drop", &yes, "", "gold"},
		"not overloaded":          {overloaded(false), "10.0.0.1", "192.0.2.1:80", "pass", &no, "pass", "gold"},
		"never overloaded":        {overloaded(true), "10.0.0.1", "192.0.2.1:81", "pass", &no, "pass", "gold"},
		"not known":               {nil, "10.0.0.1", "192.0.2.1:80", "drop", nil, "", "gold"},
		"a request, overloaded":   {overloaded(true), "10.0.1.1", "192.0.2.1:80", "pass", nil, "reject", "bronze"},
		"a request, not":          {overloaded(false), "10.0.1.1", "192.0.2.1:80", "pass", nil, "pass", "bronze"},
		"a request, not known":    {nil, "10.0.1.1", "192.0.2.1:80", "pass", nil, "reject", "bronze"},
		"a request, never so far": {overloaded(true), "10.0.1.1", "192.0.2.1:81", "pass", nil, "pass", "bronze"},
	} {
		x := explainer(t, overloadPolicy)
		x.Adaptation = test.known
		got, err := x.Explain(api.ExplainRequest{From: test.from, To: test.to, URL: "/search"})
		if err != nil {
			t.Fatal(err)
		}
		d := got.Decisions[0]
		request := ""
		if d.Request != nil {
			request = d.Request.Verdict
		}
		if d.Verdict != test.verdict || fmt.Sprint(deref(d.Enforced)) != fmt.Sprint(deref(test.enforced)) || request != test.request || d.Class != test.class {
			t.Errorf("%s: %+v, enforced %s, request %q", name, d, deref(d.Enforced), request)
		}
		if noted := strings.Contains(fmt.Sprint(got.Notes), "rules that ask for it are taken for enforced"); noted != (test.known == nil) {
			t.Errorf("%s: notes %q", name, got.Notes)
		}
	}
}

// TestExplainLimitOutOfForce names the limit of a rule also while it is not enforced.
func TestExplainLimitOutOfForce(t *testing.T) {
	x := explainer(t, overloadPolicy)
	x.Adaptation = func(string) *api.AdaptationStatus { return nil }
	got, err := x.Explain(api.ExplainRequest{From: "10.0.2.1", To: "192.0.2.1:80", URL: "/basket"})
	if err != nil {
		t.Fatal(err)
	}
	d := got.Decisions[0]
	if d.Rule != "slow" || d.Rate != "5/s" || d.Burst != 3 || d.Per != "rule" || d.Bucket != nil || d.Verdict != "pass" {
		t.Errorf("the connection: %+v", d)
	}
	r := d.Request
	if r == nil || r.Rule != "basket" || r.Rate != "2/s" || r.Burst != 1 || r.Per != "source" || r.Over != "drop" || r.Bucket != nil || r.Verdict != "pass" {
		t.Errorf("the request: %+v", r)
	}
}

func deref(b *bool) string {
	if b == nil {
		return "unknown"
	}
	return fmt.Sprint(*b)
}

// explainer explains a policy that is in force nowhere.
func explainer(t *testing.T, text string) Explainer {
	t.Helper()
	p, _, err := policy.Parse("test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	tables, _, err := policy.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	return Explainer{Policy: p, Tables: tables}
}
