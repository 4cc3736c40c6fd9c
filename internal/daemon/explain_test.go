// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"narthex/internal/api"
	"narthex/internal/policy"
)

const twoServices = `version: 1
services:
  - {name: web, listen: "*:80", concurrency: unlimited}
  - {name: test, listen: "192.0.2.1:8080", mode: shadow, concurrency: unlimited}
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
	m := newMachine(t, "eth0", "tun0")
	file := m.write("p.yaml", twoServices)
	r := m.start(m.config(file))
	yes, no := true, false
	policed := func(d api.Decision) api.Decision {
		d.Service, d.Rule, d.Action, d.Rate, d.Burst, d.Per, d.Class = "web", "everyone", "police", "5/s", 3, "source", "gold"
		d.Interface, d.Policed = "eth0", &yes
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
			[]api.Decision{{Service: "web", Interface: "eth0", Policed: &yes, Rule: "friend", Action: "pass", Class: "bronze", Verdict: "pass"}}, nil,
		},
		{
			"dropped, and only said so in shadow mode", api.ExplainRequest{From: "10.0.0.2"},
			[]api.Decision{
				{Service: "web", Interface: "eth0", Policed: &yes, Rule: "foe", Action: "drop", Class: "bronze", Verdict: "drop"},
				{Service: "test", Shadow: true, Interface: "eth0", Policed: &yes, Rule: "foe", Action: "drop", Class: "bronze", Verdict: "would drop"},
			}, nil,
		},
		{
			"by its port", api.ExplainRequest{From: "10.0.0.3:5", To: "127.0.0.1:80"},
			[]api.Decision{{Service: "web", Interface: "eth0", Policed: &yes, Rule: "low", Action: "classify", Class: "gold", Verdict: "pass"}}, nil,
		},
		{
			"port assumed", api.ExplainRequest{From: "10.0.0.3", To: "192.0.2.1:80"},
			[]api.Decision{policed(api.Decision{Verdict: "pass", Bucket: &api.BucketStatus{Tokens: 3}})},
			[]string{assumed},
		},
		{
			"port assumed to no effect, empty bucket", api.ExplainRequest{From: "10.0.0.9", To: "[::ffff:192.0.2.1]:80"},
			[]api.Decision{policed(api.Decision{Verdict: "drop", Bucket: &api.BucketStatus{Known: true, Tokens: 0.5, FullIn: 2}})}, nil,
		},
		{
			"a source never seen", api.ExplainRequest{From: "10.0.0.8:5", To: "192.0.2.1:80", URL: "/x"},
			[]api.Decision{policed(api.Decision{Verdict: "pass", Bucket: &api.BucketStatus{Tokens: 3}})},
			[]string{"the policy has no request rules: what the request says makes no difference"},
		},
		{
			"a source never seen that inherits a debt", api.ExplainRequest{From: "10.0.0.10:5", To: "192.0.2.1:80"},
			[]api.Decision{policed(api.Decision{Verdict: "drop", Bucket: &api.BucketStatus{Tokens: -1, FullIn: 3}})}, nil,
		},
		{
			"to an address that is not local", api.ExplainRequest{From: "10.0.0.8:5", To: "192.0.2.7:80"},
			[]api.Decision{{Interface: "eth0", Reason: "192.0.2.7 is not an address of this machine, and forwarded traffic is left alone", Verdict: "pass"}}, nil,
		},
		{
			"to a port of no service", api.ExplainRequest{From: "10.0.0.8:5", To: "192.0.2.1:81"},
			[]api.Decision{{Interface: "eth0", Reason: "no service listens there", Verdict: "pass"}}, nil,
		},
		{
			"from the machine itself", api.ExplainRequest{From: "127.0.0.1:5", To: "127.0.0.1:80"},
			[]api.Decision{{Service: "web", Interface: "lo", Policed: &no, Reason: "not policed: it arrives on lo, which service web does not name", Class: "bronze", Verdict: "pass"}}, nil,
		},
		{
			"by a tunnel", api.ExplainRequest{From: "10.1.0.1:5", To: "192.0.2.1:80"},
			[]api.Decision{{Service: "web", Interface: "tun0", Policed: &no, Reason: "not policed: it arrives on tun0, which has no Ethernet header", Class: "bronze", Verdict: "pass"}}, nil,
		},
		{
			"by no interface", api.ExplainRequest{From: "203.0.113.1:5", To: "192.0.2.1:81"},
			[]api.Decision{{Reason: "no service listens there", Verdict: "pass"}},
			[]string{"there is no route to 203.0.113.1: by which interface it would come is not known"},
		},
		{
			"services of its family alone", api.ExplainRequest{From: "2001:db8::1"},
			[]api.Decision{policed(api.Decision{Verdict: "pass", Bucket: &api.BucketStatus{Tokens: 3}})}, nil,
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
	want := api.ExplainResult{From: "10.0.0.8:5", To: "203.0.113.1:80",
		Decisions: []api.Decision{policed(api.Decision{Verdict: "by the bucket"})},
		Notes:     []string{"interfaces and local addresses are not known without a daemon: the destination is taken for local, and policed where the connection arrives"},
	}
	want.Decisions[0].Interface, want.Decisions[0].Policed = "", nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("without a daemon (-want +got):\n%s", diff)
	}
}

// A specific listen is policed also while its address is not the machine's.
func TestExplainOfAListenThatIsNotLocal(t *testing.T) {
	m := newMachine(t, "eth0")
	r := m.start(m.config(m.write("p.yaml", strings.ReplaceAll(twoServices, "192.0.2.1:8080", "192.0.2.9:8080"))))
	got, err := r.client.Explain(t.Context(), api.ExplainRequest{From: "10.0.0.1", To: "192.0.2.9:8080"})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"192.0.2.9 is not an address of this machine"}; got.Decisions[0].Rule != "friend" || !slices.Equal(got.Notes, want) {
		t.Errorf("%+v, want the notes %q", got, want)
	}
	r.end()
}

func TestQuestionsThatAreRefused(t *testing.T) {
	for _, req := range []api.ExplainRequest{
		{From: "x"}, {From: "fe80::1%eth0"}, {From: "[fe80::1%eth0]:5"}, {From: "10.0.0.1:0"},
		{From: "0.0.0.0"}, {From: "::"}, {From: "224.0.0.1"}, {From: "ff02::1"}, {From: "255.255.255.255:5"},
		{From: "10.0.0.1", To: "80"}, {From: "10.0.0.1", To: "10.0.0.2:0"}, {From: "10.0.0.1", To: "[fe80::1%eth0]:80"},
		{From: "10.0.0.1", To: "[2001:db8::1]:80"}, {From: "2001:db8::1", To: "10.0.0.1:80"},
		{From: "10.0.0.1", URL: "::"}, {From: "10.0.0.1", URL: "path"}, {From: "10.0.0.1", URL: "ftp://a/b"}, {From: "10.0.0.1", URL: "http:///b"},
		{From: "10.0.0.1", Method: "GET IT"}, {From: "10.0.0.1", Headers: []string{"Accept: x", "nonsense"}},
		{From: "10.0.0.1", Headers: []string{"a b: c"}}, {From: "10.0.0.1", Headers: []string{"a: b\nc: d"}},
	} {
		err := CheckExplain(req)
		var told *api.Error
		if !errors.As(err, &told) || !told.Usage {
			t.Errorf("%+v: error %v, want one of usage", req, err)
		}
	}
	for _, req := range []api.ExplainRequest{
		{From: "10.0.0.1", To: "[::ffff:10.0.0.1]:80", URL: "http://example.org/x?y", Method: "GET", Headers: []string{"Accept: text/html", "X-Empty:"}},
		{From: "[2001:db8::1]:5", To: "[2001:db8::1]:80", URL: "/x"},
	} {
		if err := CheckExplain(req); err != nil {
			t.Errorf("%+v: %v", req, err)
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
	none := api.Durations{Buckets: []api.Bucket{}}
	idle := &api.RoomStatus{QueueSize: 4096, Answer: "503", Classes: []api.RoomClassStatus{
		{Name: "gold", Rejected: map[string]uint64{}, Wait: none, Service: none},
		{Name: "bronze", Rejected: map[string]uint64{}, Wait: none, Service: none},
	}}
	wantServices := []api.ServiceStatus{
		{Name: "web", Listen: []string{"*:80"}, Protocol: policy.HTTP, Mode: "enforce", Listening: true, Limit: "unlimited", Changes: []api.LimitChange{}, Interfaces: on, Counts: three, RoomStatus: idle},
		{Name: "test", Listen: []string{"192.0.2.1:8080"}, Protocol: policy.HTTP, Mode: "shadow", Silent: []string{"192.0.2.1:8080"}, Limit: "unlimited", Changes: []api.LimitChange{}, Interfaces: on, Counts: three, RoomStatus: idle},
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
