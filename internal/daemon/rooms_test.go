// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/policy"
)

// histogram has counts in buckets.
func histogram(sum time.Duration, counts map[int]uint64) datapath.Histogram {
	h := datapath.Histogram{Sum: sum}
	for i, n := range counts {
		h.Buckets[i] = n
	}
	return h
}

func TestDurations(t *testing.T) {
	last := len(datapath.Histogram{}.Buckets) - 1
	tests := []struct {
		name string
		h    datapath.Histogram
		want api.Durations
	}{
		{"nothing", datapath.Histogram{}, api.Durations{Buckets: []api.Bucket{}}},
		{
			"one in the first bucket", histogram(time.Microsecond, map[int]uint64{0: 1}),
			api.Durations{Count: 1, P50: 1e-6, P99: 1.98e-6, Mean: 1e-6, Sum: 1e-6, Buckets: []api.Bucket{{To: 2e-6, Count: 1}}},
		},
		{
			// 1.024 to 2.048 ms: half of them at the middle, 99 % at 99 hundredths.
			"one bucket", histogram(150*time.Millisecond, map[int]uint64{10: 100}),
			api.Durations{
				Count: 100, P50: 1.536e-3, P99: 2.03776e-3, Mean: 1.5e-3, Sum: 0.15,
				Buckets: []api.Bucket{{From: 1.024e-3, To: 2.048e-3, Count: 100}},
			},
		},
		{
			"the median at an edge", histogram(0, map[int]uint64{1: 50, 20: 50}),
			api.Durations{
				Count: 100, P50: 4e-6, P99: 1.048576 * (1 + 0.98),
				Buckets: []api.Bucket{{From: 2e-6, To: 4e-6, Count: 50}, {From: 1.048576, To: 2.097152, Count: 50}},
			},
		},
		{
			"the last bucket has no end", histogram(time.Hour, map[int]uint64{last: 1}),
			api.Durations{
				Count: 1, P50: 2147.483648, P99: 2147.483648, Mean: 3600, Sum: 3600,
				Buckets: []api.Bucket{{From: 2147.483648, Count: 1}},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(math.Abs(a), 1e-3) })
			if diff := cmp.Diff(tt.want, durations(tt.h), near); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

const roomPolicy = `version: 1
services:
  - {name: shop, listen: "*:80", concurrency: 8, queue: {size: 100}}
  - {name: free, listen: "*:81", concurrency: unlimited}
  - {name: auto, listen: "*:82", mode: shadow}
  - {name: mail, listen: "*:25", protocol: tcp, concurrency: 2}
classes:
  - {name: gold, priority: 1, max: 3}
  - {name: bronze, priority: 2}
connections:
  - {name: friend, from: 10.0.0.1, action: pass}
  - {name: foe, from: 10.0.0.2, action: drop}
  - {name: partner, from: 10.0.0.3, class: gold}
`

// busyRoom is a full waiting room of roomPolicy.
func busyRoom() datapath.Room {
	r := datapath.Room{InService: 8, Waiting: 92, Gathering: 5, Classes: make([]datapath.RoomClass, 2)}
	r.Classes[0] = datapath.RoomClass{InService: 2, Arrived: 10, Admitted: 10, Served: 8}
	r.Classes[1] = datapath.RoomClass{
		InService: 6, Waiting: 92, Arrived: 200, Admitted: 50, Held: 145, WouldHold: 1, Released: 40, GaveUp: 3, Served: 84, Lost: 2, Paused: 9,
		Rejected: [datapath.RejectLen]uint64{0: 5, 1: 4, 2: 6, 7: 1, 8: 2, 9: 3}, Wait: histogram(time.Second, map[int]uint64{10: 40}),
	}
	return r
}

func TestStatusOfWaitingRooms(t *testing.T) {
	m := newMachine(t, "eth0")
	m.kernel.SetRooms(busyRoom(), datapath.Room{InService: 1}, datapath.Room{}, datapath.Room{InService: 2, Waiting: 1})
	m.kernel.SetPool(datapath.PoolUse{Slots: 64, FreeSlots: 3, SlotSize: 8192, Flows: 128, UsedFlows: 101})
	r := m.start(m.config(m.write("p.yaml", roomPolicy)))
	eventually(t, "the third service is steered", func() bool { return r.status().Services[2].Limit != "unlimited (auto)" })
	got := r.status()
	r.end()
	none := api.Durations{Buckets: []api.Bucket{}}
	idle := []api.RoomClassStatus{
		{Name: "gold", Max: 3, Rejected: map[string]uint64{}, Wait: none, Service: none},
		{Name: "bronze", Rejected: map[string]uint64{}, Wait: none, Service: none},
	}
	want := []*api.RoomStatus{
		{
			InService: 8, Waiting: 92, Gathering: 5, QueueSize: 100, Answer: "503",
			Classes: []api.RoomClassStatus{
				{Name: "gold", Max: 3, InService: 2, Arrived: 10, Admitted: 10, Served: 8, Rejected: map[string]uint64{}, Wait: none, Service: none},
				{
					Name: "bronze", InService: 6, Waiting: 92, Arrived: 200, Admitted: 50, Held: 145, WouldHold: 1, Released: 40,
					GaveUp: 3, Served: 84, Lost: 2, Paused: 9,
					Rejected: map[string]uint64{"queue_full": 5, "displaced": 4, "max_wait": 6, "too_large": 1, "malformed": 2, "h2c": 3},
					Wait: api.Durations{
						Count: 40, P50: 0.001536, P99: 0.00203776, Mean: 0.025, Sum: 1,
						Buckets: []api.Bucket{{From: 0.001024, To: 0.002048, Count: 40}},
					},
					Service: none,
				},
			},
		},
		{InService: 1, QueueSize: 4096, Answer: "503", Classes: idle},
		{QueueSize: 4096, Answer: "503", Classes: idle},
		{InService: 2, Waiting: 1, QueueSize: 4096, Answer: "reset", Classes: idle},
	}
	for i, limit := range []string{"^8$", "^unlimited$", `^\d{2,} \(auto\)$`, "^2$"} { // a provisional one goes by the CPUs
		if !regexp.MustCompile(limit).MatchString(got.Services[i].Limit) {
			t.Errorf("limit of %s: %q, want %s", got.Services[i].Name, got.Services[i].Limit, limit)
		}
		if diff := cmp.Diff(want[i], got.Services[i].RoomStatus, cmpopts.EquateApprox(0, 1e-12)); diff != "" {
			t.Errorf("room of %s (-want +got):\n%s", got.Services[i].Name, diff)
		}
	}
	if want := (api.PoolStatus{Slots: 64, FreeSlots: 3, SlotSize: 8192, Flows: 128, UsedFlows: 101}); got.WaitingRoom != want {
		t.Errorf("memory of the waiting rooms: %+v, want %+v", got.WaitingRoom, want)
	}
}

// A service that only has its SYNs policed has no waiting room, until it gets a limit.
func TestServiceWithoutAWaitingRoom(t *testing.T) {
	m := newMachine(t, "eth0")
	r := m.start(m.config(m.write("p.yaml", "version: 1\nservices: [{name: mail, listen: \"*:25\", protocol: tcp}]\n")))
	ask := func() (*api.RoomStatus, *api.RoomDecision) {
		t.Helper()
		got, err := r.client.Explain(t.Context(), api.ExplainRequest{From: "10.0.0.8", To: "192.0.2.1:25"})
		if err != nil {
			t.Fatal(err)
		}
		return r.status().Services[0].RoomStatus, got.Decisions[0].Room
	}
	if room, decision := ask(); room != nil || decision != nil {
		t.Errorf("room %+v, decision %+v; want none", room, decision)
	}
	if _, err := r.client.Set(t.Context(), api.SetRequest{Path: "services.mail.concurrency", Value: "3"}); err != nil {
		t.Fatal(err)
	}
	want := api.RoomDecision{Protocol: policy.TCP, Limit: 3, Live: true}
	if room, decision := ask(); room == nil || !cmp.Equal(decision, &want) {
		t.Errorf("with a limit: room %+v, decision %+v; want %+v", room, decision, want)
	}
	r.end()
}

func TestSetConcurrency(t *testing.T) {
	m := newMachine(t, "eth0")
	r := m.start(m.config(m.write("p.yaml", roomPolicy)))
	for _, tt := range []struct {
		value, want string
		limit       int
	}{{"3", "3", 3}, {"unlimited", "unlimited", 0}} {
		result, err := r.client.Set(t.Context(), api.SetRequest{Path: "services.shop.concurrency", Value: tt.value})
		if err != nil || !result.Changed || result.Buckets != "" {
			t.Errorf("set %s: %+v, %v; want no word on buckets", tt.value, result, err)
		}
		state, _ := m.kernel.State("test")
		if got := r.status().Services[0].Limit; got != tt.want || state.Tables.Services[0].Room.Limit != tt.limit {
			t.Errorf("limit %q in the status, %d in force; want %s", got, state.Tables.Services[0].Room.Limit, tt.want)
		}
	}
	r.end()
}

func TestExplainSaysWhetherARequestWaits(t *testing.T) {
	m := newMachine(t, "eth0")
	r := m.start(m.config(m.write("p.yaml", roomPolicy)))
	full := busyRoom()
	open := datapath.Room{InService: 7, Classes: make([]datapath.RoomClass, 2)}
	goldFull := datapath.Room{InService: 5, Waiting: 1, Classes: []datapath.RoomClass{{InService: 3, Waiting: 1}, {InService: 2}}}
	behind := datapath.Room{InService: 5, Waiting: 4, Classes: []datapath.RoomClass{{InService: 2}, {InService: 3, Waiting: 4}}}
	overfull := busyRoom()
	overfull.Waiting, overfull.Classes[1].Waiting = 95, 95 // with those whose head is not complete 100
	const bronze, gold = "10.0.0.8", "10.0.0.3"
	tests := []struct {
		name string
		room datapath.Room
		from string
		to   string
		want *api.RoomDecision
	}{
		{"room", open, bronze, ":80", &api.RoomDecision{Limit: 8, InService: 7}},
		{"full", full, bronze, ":80", &api.RoomDecision{Limit: 8, InService: 8, ClassInService: 6, Waiting: 92, Waits: true}},
		{"the queue is full", overfull, bronze, ":80", &api.RoomDecision{Limit: 8, InService: 8, ClassInService: 6, Waiting: 95, Waits: true, Full: true}},
		{"one of a lower class makes room", overfull, gold, ":80", &api.RoomDecision{Limit: 8, Max: 3, InService: 8, ClassInService: 2, Waiting: 95, Waits: true}},
		{"the class is full", goldFull, gold, ":80", &api.RoomDecision{Limit: 8, Max: 3, InService: 5, ClassInService: 3, Waiting: 1, Waits: true}},
		{"nobody waits who could be admitted", goldFull, bronze, ":80", &api.RoomDecision{Limit: 8, InService: 5, ClassInService: 2, Waiting: 1}},
		{"behind its own class", behind, bronze, ":80", &api.RoomDecision{Limit: 8, InService: 5, ClassInService: 3, Waiting: 4, Waits: true}},
		{"before a lower class", behind, gold, ":80", &api.RoomDecision{Limit: 8, Max: 3, InService: 5, ClassInService: 2, Waiting: 4}},
		{"goes by every control", full, "10.0.0.1", ":80", nil},
		{"dropped", full, "10.0.0.2", ":80", nil},
		{"a connection", open, bronze, ":25", &api.RoomDecision{Protocol: policy.TCP, Limit: 2, InService: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m.kernel.SetRooms(tt.room, datapath.Room{}, datapath.Room{}, datapath.Room{InService: 1})
			got, err := r.client.Explain(t.Context(), api.ExplainRequest{From: tt.from, To: "192.0.2.1" + tt.to})
			if err != nil {
				t.Fatal(err)
			}
			if tt.want != nil {
				tt.want.Live = true
				if tt.want.Protocol == "" {
					tt.want.Protocol = policy.HTTP
				}
			}
			if diff := cmp.Diff(tt.want, got.Decisions[0].Room); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	r.end()
	file := m.write("q.yaml", roomPolicy)
	got, err := Offline(file, api.ExplainRequest{From: bronze, To: "192.0.2.1:80"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&api.RoomDecision{Protocol: policy.HTTP, Limit: 8}, got.Decisions[0].Room); diff != "" {
		t.Errorf("without a daemon (-want +got):\n%s", diff)
	}
	if got.Decisions[0].Class != "bronze" || !strings.Contains(got.Notes[0], "not known") {
		t.Errorf("without a daemon: %+v", got)
	}
}
