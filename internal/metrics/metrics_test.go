// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"narthex/internal/daemon/api"
	"narthex/internal/datapath"
)

func get(t *testing.T, handler http.Handler, method, path string) (code int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w.Code, w.Body.String()
}

// samples returns Narthex's own lines of an exposition.
func samples(body string) string {
	var own []string
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "narthex_") {
			own = append(own, line)
		}
	}
	return strings.Join(own, "")
}

func TestExposition(t *testing.T) {
	counts := func(passed, dropped, would uint64) api.Counts {
		c := datapath.Counts{Passed: passed, Dropped: dropped, WouldDrop: would}
		return api.Counts{Matched: c.Matched(), Counts: c}
	}
	status := api.Status{
		Instance: "a", Version: "1.2", Enforcing: true,
		Policy: api.PolicyStatus{Loaded: time.Unix(1000, 5e8)},
		Services: []api.ServiceStatus{{
			Name: "web", Listening: true, Counts: counts(3, 2, 1),
			Interfaces: []api.InterfaceStatus{{Name: "eth0", Mode: datapath.ModeNative}},
		}},
		Rules:     []api.RuleStatus{{Name: "everyone", Counts: counts(4, 5, 0)}},
		Reasons:   map[string]datapath.Counts{"fragment": {Dropped: 9}},
		Overrides: []api.Override{{Path: "x", Value: "y"}},
		Sources:   api.SourcesStatus{Size: 100, Used: 10, Debt: 1},
		MapBytes:  4096,
	}
	_, body := get(t, Handler(func() (api.Status, error) { return status, nil }), "GET", "/metrics")
	want := `narthex_adopted{instance="a"} 0
narthex_attachment_info{instance="a",interface="eth0",mode="native",service="web"} 1
narthex_build_info{instance="a",version="1.2"} 1
narthex_enforcing{instance="a"} 1
narthex_map_bytes{instance="a"} 4096
narthex_overrides{instance="a"} 1
narthex_policy_loaded_timestamp_seconds{instance="a"} 1000.5
narthex_rule_syns_total{instance="a",rule="everyone",verdict="dropped"} 5
narthex_rule_syns_total{instance="a",rule="everyone",verdict="passed"} 4
narthex_rule_syns_total{instance="a",rule="everyone",verdict="would_drop"} 0
narthex_service_listening{instance="a",service="web"} 1
narthex_sources{instance="a"} 10
narthex_sources_indebted{instance="a"} 1
narthex_sources_limit{instance="a"} 100
narthex_syns_total{instance="a",service="web",verdict="dropped"} 2
narthex_syns_total{instance="a",service="web",verdict="passed"} 3
narthex_syns_total{instance="a",service="web",verdict="would_drop"} 1
narthex_unruled_packets_total{instance="a",reason="fragment",verdict="dropped"} 9
narthex_unruled_packets_total{instance="a",reason="fragment",verdict="passed"} 0
narthex_unruled_packets_total{instance="a",reason="fragment",verdict="would_drop"} 0
`
	if diff := cmp.Diff(want, samples(body)); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	if !strings.Contains(body, "\ngo_goroutines ") {
		t.Error("the metrics of the process are missing")
	}
}

func TestRulesThatMatchedNothingAreLeftOutOfMany(t *testing.T) {
	status := api.Status{Rules: make([]api.RuleStatus, manyRules+1)}
	for i := range status.Rules {
		status.Rules[i].Name = fmt.Sprintf("r%d", i)
	}
	status.Rules[7].Matched = 1
	_, body := get(t, Handler(func() (api.Status, error) { return status, nil }), "GET", "/metrics")
	if n := strings.Count(body, "\nnarthex_rule_syns_total{"); n != 3 || !strings.Contains(body, `rule="r7"`) {
		t.Errorf("%d series of rules, want the 3 of r7", n)
	}
}

func TestHandlerChangesNothing(t *testing.T) {
	handler := Handler(func() (api.Status, error) { return api.Status{}, errors.New("no maps") })
	tests := []struct {
		method, path string
		want         int
	}{
		{"POST", "/metrics", http.StatusMethodNotAllowed},
		{"GET", "/", http.StatusNotFound},
		{"GET", "/v1/status", http.StatusNotFound},
		{"GET", "/metrics", http.StatusInternalServerError},
	}
	for _, tt := range tests {
		if code, _ := get(t, handler, tt.method, tt.path); code != tt.want {
			t.Errorf("%s %s: %d, want %d", tt.method, tt.path, code, tt.want)
		}
	}
}
