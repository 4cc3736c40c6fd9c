// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/policy"
)

func get(t *testing.T, handler http.Handler, method, path string) (code int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w.Code, w.Body.String()
}

// scrape returns the exposition of a status.
func scrape(t *testing.T, status api.Status) string {
	t.Helper()
	code, body := get(t, Handler(func() (api.Status, error) { return status, nil }), "GET", "/metrics")
	if code != http.StatusOK {
		t.Fatalf("status %d: %s", code, body)
	}
	return body
}

// compare compares lines of an exposition.
func compare(t *testing.T, want, got string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
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
		Policy: api.PolicyStatus{
			Hash: "f00d", Loaded: time.Unix(1000, 5e8), Change: &api.Change{At: time.Unix(1001, 0)}, Unconfirmed: &api.Unconfirmed{},
		},
		Classes: []api.ClassStatus{{Name: "gold", Priority: 1}},
		Events:  api.EventsStatus{Listeners: 2, Told: 70, Missed: 8, Behind: 9},
		Reloads: api.ReloadsStatus{Done: 4, Failed: 3, LastFailed: "no such file"},
		Notes:   []string{"one", "two"}, Warnings: []string{"a rule is never asked"},
		Services: []api.ServiceStatus{{
			Name: "web", Mode: "shadow", Protocol: policy.TLS, Listening: true, Counts: counts(3, 2, 1),
			Interfaces: []api.InterfaceStatus{{Name: "eth0", Mode: datapath.ModeNative}},
		}},
		Rules:     []api.RuleStatus{{Name: "everyone", Counts: counts(4, 5, 0)}},
		Requests:  []api.RequestRuleStatus{{RuleStatus: api.RuleStatus{Name: "cgi", Limits: []api.LimitStatus{{Refused: 5}}, Counts: counts(6, 7, 8)}}},
		Reasons:   map[string]datapath.Counts{"fragment": {Dropped: 9}},
		Overrides: []api.Override{{Path: "x", Value: "y"}},
		Sources:   api.SourcesStatus{Size: 100, Used: 10, Debt: 1},
		MapBytes:  4096,
		Lists:     []api.ListStatus{{Name: "blocked", Entries: 5, Modified: time.Unix(900, 0), Reads: 3, Failures: 1, Wrong: "gone", Matches: 6}},

		WaitingRoom: api.PoolStatus{Slots: 64, FreeSlots: 3, SlotSize: 8192, Flows: 128, UsedFlows: 101},
	}
	body := scrape(t, status)
	want := `narthex_adopted{narthex_instance="a"} 0
narthex_attachment_info{interface="eth0",mode="native",narthex_instance="a",service="web"} 1
narthex_build_info{goversion="GO",narthex_instance="a",version="1.2"} 1
narthex_class_priority{class="gold",narthex_instance="a"} 1
narthex_enforcing{narthex_instance="a"} 1
narthex_event_listeners{narthex_instance="a"} 2
narthex_events_missed_total{cause="budget",narthex_instance="a"} 8
narthex_events_missed_total{cause="slow_listener",narthex_instance="a"} 9
narthex_events_total{narthex_instance="a"} 70
narthex_flows{narthex_instance="a"} 128
narthex_flows_used{narthex_instance="a"} 101
narthex_list_entries{list="blocked",narthex_instance="a"} 5
narthex_list_last_read_successful{list="blocked",narthex_instance="a"} 0
narthex_list_matches_total{list="blocked",narthex_instance="a"} 6
narthex_list_modified_timestamp_seconds{list="blocked",narthex_instance="a"} 900
narthex_list_reads_total{list="blocked",narthex_instance="a",result="done"} 3
narthex_list_reads_total{list="blocked",narthex_instance="a",result="failed"} 1
narthex_map_bytes{narthex_instance="a"} 4096
narthex_notes{narthex_instance="a"} 2
narthex_overrides{narthex_instance="a"} 1
narthex_policy_changed_timestamp_seconds{narthex_instance="a"} 1001
narthex_policy_info{hash="f00d",narthex_instance="a"} 1
narthex_policy_last_reload_successful{narthex_instance="a"} 0
narthex_policy_loaded_timestamp_seconds{narthex_instance="a"} 1000.5
narthex_policy_reloads_total{narthex_instance="a",result="done"} 4
narthex_policy_reloads_total{narthex_instance="a",result="failed"} 3
narthex_policy_rules{narthex_instance="a",table="connections"} 1
narthex_policy_rules{narthex_instance="a",table="requests"} 1
narthex_policy_unconfirmed{narthex_instance="a"} 1
narthex_policy_warnings{narthex_instance="a"} 1
narthex_rule_limit_refusals_total{limit="1",narthex_instance="a",rule="cgi",table="requests"} 5
narthex_rule_requests_total{narthex_instance="a",rule="cgi",verdict="dropped"} 7
narthex_rule_requests_total{narthex_instance="a",rule="cgi",verdict="passed"} 6
narthex_rule_requests_total{narthex_instance="a",rule="cgi",verdict="would_drop"} 8
narthex_rule_syns_total{narthex_instance="a",rule="everyone",verdict="dropped"} 5
narthex_rule_syns_total{narthex_instance="a",rule="everyone",verdict="passed"} 4
narthex_rule_syns_total{narthex_instance="a",rule="everyone",verdict="would_drop"} 0
narthex_service_info{mode="shadow",narthex_instance="a",protocol="tls",service="web"} 1
narthex_service_listening{narthex_instance="a",service="web"} 1
narthex_slots{narthex_instance="a"} 64
narthex_slots_free{narthex_instance="a"} 3
narthex_sources{narthex_instance="a"} 10
narthex_sources_indebted{narthex_instance="a"} 1
narthex_sources_limit{narthex_instance="a"} 100
narthex_syns_total{narthex_instance="a",service="web",verdict="dropped"} 2
narthex_syns_total{narthex_instance="a",service="web",verdict="passed"} 3
narthex_syns_total{narthex_instance="a",service="web",verdict="would_drop"} 1
narthex_unruled_packets_total{narthex_instance="a",reason="fragment",verdict="dropped"} 9
narthex_unruled_packets_total{narthex_instance="a",reason="fragment",verdict="passed"} 0
narthex_unruled_packets_total{narthex_instance="a",reason="fragment",verdict="would_drop"} 0
`
	compare(t, strings.Replace(want, "GO", runtime.Version(), 1), samples(body))
	if !strings.Contains(body, "\ngo_goroutines ") {
		t.Error("the metrics of the process are missing")
	}
}

func TestExpositionOfWaitingRooms(t *testing.T) {
	status := api.Status{Services: []api.ServiceStatus{
		{Name: "shop", Limit: "8", RoomStatus: &api.RoomStatus{InService: 8, Waiting: 92, Gathering: 7, QueueSize: 100, Classes: []api.RoomClassStatus{{
			Name: "gold", Max: 6, InService: 2, Waiting: 90, Arrived: 100, Admitted: 50, Held: 40, WouldHold: 1, Released: 30, Ahead: 5, GaveUp: 3, Served: 84, Lost: 2, Paused: 4, BytesIn: 7, BytesOut: 8,
			Rejected: map[string]uint64{"queue_full": 5},
			Wait: api.Durations{Count: 6, Sum: 1.5, Buckets: []api.Bucket{
				{From: 0, To: 0.000002, Count: 1}, {From: 0.000128, To: 0.000256, Count: 2}, {From: 1.048576, To: 2.097152, Count: 2}, {From: 2147.483648, Count: 1},
			}},
		}}}},
		{Name: "free", Limit: "unlimited", RoomStatus: &api.RoomStatus{}},
		{Name: "auto", Limit: "unlimited (auto)", RoomStatus: &api.RoomStatus{}},
		{Name: "mail", Limit: "unlimited"},
	}}
	body := scrape(t, status)
	var got []string
	for line := range strings.Lines(samples(body)) {
		if regexp.MustCompile("^narthex_(request|concurrency|class_conc)").MatchString(line) {
			line = strings.Replace(line, `{class="gold",narthex_instance="",service="shop"}`, "", 1)
			got = append(got, strings.NewReplacer(`class="gold",narthex_instance="",`, "", `,service="shop"`, "", `service="shop",`, "", "narthex_", "").Replace(line))
		}
	}
	zero := func(name string, bounds ...string) (lines string) {
		for _, le := range bounds {
			lines += name + `_bucket{le="` + le + `"} 0` + "\n"
		}
		return lines + name + "_sum 0\n" + name + "_count 0\n"
	}
	bounds := []string{
		"0.000128", "0.000256", "0.000512", "0.001024", "0.002048", "0.004096", "0.008192", "0.016384", "0.032768", "0.065536",
		"0.131072", "0.262144", "0.524288", "1.048576", "2.097152", "4.194304", "8.388608", "16.777216", "33.554432", "67.108864", "+Inf",
	}
	wait := ""
	for i, le := range bounds {
		n := map[bool]int{true: 3, false: 5}[i < 14]
		switch le {
		case "0.000128":
			n = 1
		case "+Inf":
			n = 6
		}
		wait += fmt.Sprintf("request_wait_seconds_bucket{le=%q} %d\n", le, n)
	}
	want := `class_concurrency_limit 6
concurrency_limit{instance=""} 8
request_bytes_total 7
` + zero("request_service_seconds", bounds...) + wait + `request_wait_seconds_sum 1.5
request_wait_seconds_count 6
requests_admitted_total 50
requests_ahead_total 5
requests_gathering{instance="",service="auto"} 0
requests_gathering{instance="",service="free"} 0
requests_gathering{instance=""} 7
requests_gave_up_total 3
requests_held_total 40
requests_in_service 2
requests_lost_total 2
requests_paused_total 4
requests_rejected_total{reason="blocked"} 0
requests_rejected_total{reason="closed"} 0
requests_rejected_total{reason="complex"} 0
requests_rejected_total{reason="displaced"} 0
requests_rejected_total{reason="dropped"} 0
requests_rejected_total{reason="h2c"} 0
requests_rejected_total{reason="malformed"} 0
requests_rejected_total{reason="max_wait"} 0
requests_rejected_total{reason="no_flow"} 0
requests_rejected_total{reason="no_server"} 0
requests_rejected_total{reason="no_slot"} 0
requests_rejected_total{reason="queue_full"} 5
requests_rejected_total{reason="rule"} 0
requests_rejected_total{reason="target"} 0
requests_rejected_total{reason="too_large"} 0
requests_released_total 30
requests_served_total 84
requests_total 100
requests_waiting 90
requests_waiting_limit{instance="",service="auto"} 0
requests_waiting_limit{instance="",service="free"} 0
requests_waiting_limit{instance=""} 100
requests_would_hold_total 1
`
	compare(t, want, strings.Join(got, ""))
}

func TestClassesWithoutRequestsAreLeftOutOfMany(t *testing.T) {
	room := &api.RoomStatus{Classes: make([]api.RoomClassStatus, 2)}
	room.Classes[0].Name, room.Classes[1].Name = "gold", "bronze"
	status := api.Status{Services: make([]api.ServiceStatus, manyClasses/2)}
	for i := range status.Services {
		status.Services[i].Name, status.Services[i].RoomStatus = fmt.Sprintf("s%d", i), room
	}
	series := func() int {
		body := scrape(t, status)
		return strings.Count(body, "\nnarthex_requests_waiting{")
	}
	if n := series(); n != manyClasses {
		t.Errorf("%d series, want all %d", n, manyClasses)
	}
	busy := *room
	busy.Classes = []api.RoomClassStatus{{Name: "gold"}, {Name: "bronze", Arrived: 1}}
	status.Services = append(status.Services, api.ServiceStatus{Name: "busy", RoomStatus: &busy})
	if n := series(); n != 1 {
		t.Errorf("%d series, want the one of the class that had requests", n)
	}
}

func TestRulesThatMatchedNothingAreLeftOutOfMany(t *testing.T) {
	status := api.Status{Rules: make([]api.RuleStatus, manyRules+1)}
	for i := range status.Rules {
		status.Rules[i].Name = fmt.Sprintf("r%d", i)
	}
	status.Rules[7].Matched = 1
	body := scrape(t, status)
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

// blockedWriter is a client that does not read.
type blockedWriter struct {
	*httptest.ResponseRecorder
	writing chan<- struct{}
	taken   <-chan struct{}
}

func (w blockedWriter) Write(b []byte) (int, error) {
	w.writing <- struct{}{}
	<-w.taken
	return w.ResponseRecorder.Write(b)
}

// TestAnswersInMemoryAreBounded has many ask who do not read the answer.
func TestAnswersInMemoryAreBounded(t *testing.T) {
	h := Handler(func() (api.Status, error) { return api.Status{Instance: "a"}, nil })
	writing, taken := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	for range answersAtOnce {
		all.Go(func() {
			h.ServeHTTP(blockedWriter{httptest.NewRecorder(), writing, taken}, httptest.NewRequest("GET", "/metrics", nil))
		})
		<-writing
	}
	if code, _ := get(t, h, "GET", "/metrics"); code != http.StatusServiceUnavailable {
		t.Errorf("status %d while so many answers are in memory", code)
	}
	close(taken)
	all.Wait()
	if code, _ := get(t, h, "GET", "/metrics"); code != http.StatusOK {
		t.Errorf("status %d when they are taken", code)
	}
}
