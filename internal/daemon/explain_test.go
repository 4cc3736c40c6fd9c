// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"narthex/internal/daemon/api"
)

const twoServices = `version: 1
services:
  - {name: web, listen: "*:80"}
  - {name: test, listen: "192.0.2.1:8080", mode: shadow}
classes:
  - {name: gold, priority: 1}
  - {name: bronze, priority: 2}
connections:
  - {name: friend, from: 10.0.0.1, action: pass}
  - {name: foe, from: 10.0.0.2, action: drop}
  - {name: low, from: 10.0.0.3, from_port: 1-1023, class: gold}
  - {name: everyone, rate: 5/s, burst: 3, per: source, class: gold}
`

func TestExplain(t *testing.T) {
	m := newMachine(t, "eth0")
	file := m.write("p.yaml", twoServices)
	r := m.start(m.config(file))
	policed := func(d api.Decision) api.Decision {
		d.Service, d.Rule, d.Action, d.Rate, d.Burst, d.Per, d.Class = "web", "everyone", "police", "5/s", 3, "source", "gold"
		return d
	}
	const assumed = "source port 49152 is assumed, and rules depend on it: name one with --from IP:PORT"
	tests := []struct {
		name  string
		req   api.ExplainRequest
		want  []api.Decision
		notes []string
	}{
		{
			"passed by a rule", api.ExplainRequest{From: "10.0.0.1:5", To: "192.0.2.1:80"},
			[]api.Decision{{Service: "web", Rule: "friend", Action: "pass", Class: "bronze", Verdict: "pass"}}, nil,
		},
		{
			"dropped, and only said so in shadow mode", api.ExplainRequest{From: "10.0.0.2:5"},
			[]api.Decision{
				{Service: "web", Rule: "foe", Action: "drop", Class: "bronze", Verdict: "drop"},
				{Service: "test", Shadow: true, Rule: "foe", Action: "drop", Class: "bronze", Verdict: "would drop"},
			}, nil,
		},
		{
			"by its port", api.ExplainRequest{From: "10.0.0.3:5", To: "127.0.0.1:80"},
			[]api.Decision{{Service: "web", Rule: "low", Action: "classify", Class: "gold", Verdict: "pass"}}, nil,
		},
		{
			"port assumed, empty bucket", api.ExplainRequest{From: "10.0.0.9", To: "[::ffff:192.0.2.1]:80"},
			[]api.Decision{policed(api.Decision{Verdict: "drop", Bucket: &api.BucketStatus{Known: true, Tokens: 0.5, FullIn: 2}})},
			[]string{assumed},
		},
		{
			"a source never seen", api.ExplainRequest{From: "10.0.0.8:5", To: "192.0.2.1:80", URL: "/x"},
			[]api.Decision{policed(api.Decision{Verdict: "pass", Bucket: &api.BucketStatus{}})},
			[]string{"the policy has no request rules: what the request says makes no difference"},
		},
		{
			"to an address that is not local", api.ExplainRequest{From: "10.0.0.8:5", To: "192.0.2.7:80"},
			[]api.Decision{{Verdict: "pass"}}, nil,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := r.client.Explain(t.Context(), tt.req)
			if err != nil {
				t.Fatal(err)
			}
			want := api.ExplainResult{From: tt.req.From, To: tt.req.To, Decisions: tt.want, Notes: tt.notes}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("explanation (-want +got):\n%s", diff)
			}
		})
	}
	r.end()

	got, err := Offline(file, api.ExplainRequest{From: "10.0.0.8:5", To: "203.0.113.1:80"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]api.Decision{policed(api.Decision{Verdict: "by the bucket"})}, got.Decisions); diff != "" {
		t.Errorf("without a daemon (-want +got):\n%s", diff)
	}
	for _, req := range []api.ExplainRequest{{From: "x"}, {From: "fe80::1%eth0"}, {From: "10.0.0.1", To: "80"}} {
		_, err := Offline(file, req)
		var told *api.Error
		if !errors.As(err, &told) || !told.Usage {
			t.Errorf("%+v: error %v, want one of usage", req, err)
		}
	}
}

func TestStatus(t *testing.T) {
	m := newMachine(t, "eth0")
	r := m.start(m.config(m.write("p.yaml", twoServices)))
	got := r.status()
	on := []api.InterfaceStatus{{Name: "eth0", Mode: "native"}}
	three := api.Counts{Matched: 6}
	three.Passed, three.Dropped, three.WouldDrop = 3, 2, 1
	wantServices := []api.ServiceStatus{
		{Name: "web", Listen: []string{"*:80"}, Mode: "enforce", Listening: true, Limit: "unlimited", Interfaces: on, Counts: three},
		{Name: "test", Listen: []string{"192.0.2.1:8080"}, Mode: "shadow", Silent: []string{"192.0.2.1:8080"}, Limit: "unlimited", Interfaces: on, Counts: three},
	}
	if diff := cmp.Diff(wantServices, got.Services); diff != "" {
		t.Errorf("services (-want +got):\n%s", diff)
	}
	last := api.RuleStatus{Name: "everyone", Action: "police", Rate: "5/s", Burst: 3, Per: "source", Class: "gold", Counts: api.Counts{Matched: 44}}
	last.Passed, last.Dropped = 4, 40
	if diff := cmp.Diff(last, got.Rules[3]); diff != "" {
		t.Errorf("last rule (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]api.ClassStatus{{Name: "gold", Priority: 1}, {Name: "bronze", Priority: 2, Default: true}}, got.Classes); diff != "" {
		t.Errorf("classes (-want +got):\n%s", diff)
	}
	if got.Reasons["no_rule"].Passed != 7 || got.Sources != (api.SourcesStatus{Size: 100, Used: 4, Debt: 2}) || got.MapBytes != 4096 || !got.Enforcing {
		t.Errorf("status: %+v", got)
	}
	r.end()
}
