// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strings"
	"testing"

	"narthex/internal/api"
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

// TestExpositionOfPools shows what members want, what is due to them and what they get.
func TestExpositionOfPools(t *testing.T) {
	due := 7.5
	body := scrape(t, api.Status{Pools: []api.ServicePool{
		{
			Name: "tenants", Between: "shares", Limit: "10", Classes: []api.PoolClass{{Name: "gold", InService: 9, Waiting: 44, Served: 12, Service: 1.5, BytesIn: 7, BytesOut: 8}},
			Members: []api.PoolMember{{Name: "bread", Share: 3, InService: 8, Waiting: 40, Used: 3600.5, Wanted: 48, Due: &due}},
		},
		{Name: "nginx", Between: "classes", Limit: "7 (auto)", Adaptation: &api.AdaptationStatus{Auto: true, Limit: 7}, Members: []api.PoolMember{{Name: "web", Share: 1}}},
		{Name: "free", Between: "classes", Limit: "unlimited"},
	}})
	got := ""
	for line := range strings.Lines(samples(body)) {
		if strings.HasPrefix(line, "narthex_pool_") {
			got += strings.Replace(line, `,narthex_instance=""`, "", 1)
		}
	}
	got = strings.NewReplacer(`narthex_instance="",`, "").Replace(got)
	want := `narthex_pool_answer_bytes_total{class="gold",pool="tenants"} 8
narthex_pool_concurrency_limit{pool="nginx"} 7
narthex_pool_concurrency_limit{pool="tenants"} 10
narthex_pool_member_place_seconds_total{member="bread",pool="tenants"} 3600.5
narthex_pool_member_place_seconds_total{member="web",pool="nginx"} 0
narthex_pool_member_places_due{member="bread",pool="tenants"} 7.5
narthex_pool_member_places_wanted{member="bread",pool="tenants"} 48
narthex_pool_member_places_wanted{member="web",pool="nginx"} 0
narthex_pool_member_requests_waiting{member="bread",pool="tenants"} 40
narthex_pool_member_requests_waiting{member="web",pool="nginx"} 0
narthex_pool_member_share{member="bread",pool="tenants"} 3
narthex_pool_request_bytes_total{class="gold",pool="tenants"} 7
narthex_pool_request_service_seconds_total{class="gold",pool="tenants"} 1.5
narthex_pool_requests_in_service{class="gold",pool="tenants"} 9
narthex_pool_requests_served_total{class="gold",pool="tenants"} 12
narthex_pool_requests_waiting{class="gold",pool="tenants"} 44
`
	compare(t, want, got)
}
