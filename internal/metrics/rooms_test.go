// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strings"
	"testing"

	"narthex/internal/daemon/api"
)

// TestExpositionOfLimits shows live limits and what has set them.
func TestExpositionOfLimits(t *testing.T) {
	room := &api.RoomStatus{}
	keep := []api.KeepStatus{{Class: "gold", Share: 1}, {Class: "bronze", Share: 0.25}}
	status := api.Status{Services: []api.ServiceStatus{
		{Name: "auto", Limit: "12 (auto)", RoomStatus: room, Adaptation: &api.AdaptationStatus{
			Auto: true, Limit: 12, Floor: 2, Ceiling: 40, Signal: "cpu", Overload: true, Level: "rejecting", Degree: 0.5, Keep: keep,
			StepsStatus: api.StepsStatus{Raised: 5, Lowered: 4, Overloads: 3},
		}},
		{Name: "calm", Limit: "unlimited (auto)", RoomStatus: room, Adaptation: &api.AdaptationStatus{Auto: true, Floor: 1, Signal: "idle"}},
		{Name: "set", Limit: "7", RoomStatus: room, Adaptation: &api.AdaptationStatus{Limit: 7, Floor: 7, Ceiling: 7, Signal: "policy"}},
		{Name: "plain", Limit: "8", RoomStatus: room},
	}}
	body := scrape(t, status)
	got := ""
	for line := range strings.Lines(samples(body)) {
		for _, name := range []string{"concurrency_", "service_overload", "syns_kept"} {
			if strings.HasPrefix(line, "narthex_"+name) {
				got += strings.Replace(line, `narthex_instance="",`, "", 1)
			}
		}
	}
	want := `narthex_concurrency_limit{service="auto"} 12
narthex_concurrency_limit{service="plain"} 8
narthex_concurrency_limit{service="set"} 7
narthex_concurrency_limit_changes_total{direction="lowered",service="auto"} 4
narthex_concurrency_limit_changes_total{direction="lowered",service="calm"} 0
narthex_concurrency_limit_changes_total{direction="raised",service="auto"} 5
narthex_concurrency_limit_changes_total{direction="raised",service="calm"} 0
narthex_concurrency_limit_max{service="auto"} 40
narthex_concurrency_limit_min{service="auto"} 2
narthex_concurrency_limit_min{service="calm"} 1
narthex_concurrency_signal_info{service="auto",signal="cpu"} 1
narthex_concurrency_signal_info{service="calm",signal="idle"} 1
narthex_service_overload{service="auto"} 1
narthex_service_overload{service="calm"} 0
narthex_service_overload{service="set"} 0
narthex_service_overload_degree{service="auto"} 0.5
narthex_service_overload_degree{service="calm"} 0
narthex_service_overload_degree{service="set"} 0
narthex_service_overload_level{service="auto"} 2
narthex_service_overload_level{service="calm"} 0
narthex_service_overload_level{service="set"} 0
narthex_service_overloads_total{service="auto"} 3
narthex_service_overloads_total{service="calm"} 0
narthex_service_overloads_total{service="set"} 0
narthex_syns_kept_ratio{class="bronze",service="auto"} 0.25
narthex_syns_kept_ratio{class="gold",service="auto"} 1
`
	compare(t, want, got)
}
