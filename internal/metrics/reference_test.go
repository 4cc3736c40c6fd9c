// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"narthex/internal/api"
	"narthex/internal/datapath"
)

// TestReference compares docs/metrics.md with the metrics that there are.
func TestReference(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `(narthex_[a-z_]+)` \\| ([a-z]+) \\|([^|]*)\\| [^|]+ \\|$")
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		if documented[m[1]] != "" {
			t.Errorf("%s is documented twice", m[1])
		}
		documented[m[1]] = m[2] + " by " + strings.NewReplacer("`", "", ",", "").Replace(strings.TrimSpace(m[3]))
	}
	exposed := map[string]string{}
	for _, f := range families {
		exposed[nameOf(f)] = strings.ToLower(f.kind.String()) + " by " + strings.Join(f.labels[1:], " ")
	}
	if diff := cmp.Diff(exposed, documented); diff != "" {
		t.Errorf("docs/metrics.md (-exposed +documented):\n%s", diff)
	}
	for _, m := range regexp.MustCompile("narthex_[a-z_]+").FindAllString(string(text), -1) {
		if exposed[strings.TrimSuffix(m, "_bucket")] == "" && m != families[0].labels[0] {
			t.Errorf("docs/metrics.md speaks of %s, which is no metric", m)
		}
	}
}

func nameOf(f *family) string {
	return regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(f.desc.String())[1]
}

// TestEveryMetricIsExposed finds a metric that is described and never set.
func TestEveryMetricIsExposed(t *testing.T) {
	keep := []api.KeepStatus{{Class: "gold", Share: 1}}
	status := api.Status{
		Policy:  api.PolicyStatus{Change: &api.Change{}},
		Lists:   []api.ListStatus{{Name: "a"}},
		Rules:   []api.RuleStatus{{Name: "a", RateNow: 1}},
		Classes: []api.ClassStatus{{Name: "gold"}}, Requests: []api.RequestRuleStatus{{RuleStatus: api.RuleStatus{RateNow: 1, Limits: []api.LimitStatus{{}}}}},
		Services: []api.ServiceStatus{{
			Name: "web", Interfaces: []api.InterfaceStatus{{Name: "eth0"}},
			RoomStatus: &api.RoomStatus{Classes: []api.RoomClassStatus{{Name: "gold", Max: 1}}},
			Adaptation: &api.AdaptationStatus{Auto: true, Limit: 1, Ceiling: 1, Keep: keep},
		}},
	}
	due := 1.5
	status.Services[0].CPU = &api.CPUStatus{Cgroup: "/web", Seconds: due}
	status.Pools = []api.ServicePool{{Name: "p", Limit: "8", CPU: &due, Members: []api.PoolMember{{Name: "web", Due: &due}}, Classes: []api.PoolClass{{Name: "gold"}}}}
	status.Reasons = map[string]datapath.Counts{"fragment": {}}
	body := scrape(t, status)
	types := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^# TYPE (narthex_[a-z_]+) ([a-z]+)$").FindAllStringSubmatch(body, -1) {
		types[m[1]] = m[2]
	}
	want := map[string]string{}
	for _, f := range families {
		want[nameOf(f)] = strings.ToLower(f.kind.String())
	}
	if diff := cmp.Diff(want, types); diff != "" {
		t.Errorf("metrics (-described +exposed):\n%s", diff)
	}
	if len(types) == 0 {
		t.Error("no metrics")
	}
}

// TestLabelsFollowThePolicy replaces rules again and again, as reloads do.
func TestLabelsFollowThePolicy(t *testing.T) {
	var status api.Status
	handler := Handler(func() (api.Status, error) { return status, nil })
	for round := range 5 {
		status.Rules = make([]api.RuleStatus, 3)
		want := map[string]bool{}
		for i := range status.Rules {
			status.Rules[i].Name = fmt.Sprintf("rule-%d-%d", round, i)
			want[status.Rules[i].Name] = true
		}
		for range 2 {
			_, body := get(t, handler, "GET", "/metrics")
			got := map[string]bool{}
			for _, m := range regexp.MustCompile(`narthex_rule_syns_total\{narthex_instance="",rule="([^"]+)",verdict="passed"\} 0`).FindAllStringSubmatch(body, -1) {
				got[m[1]] = true
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("rules %v (-want +got):\n%s", slices.Collect(maps.Keys(got)), diff)
			}
		}
	}
}
