// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"narthex/internal/api"
	"narthex/internal/datapath"
)

const poolPolicy = `version: 1
pools:
  - {name: nginx, concurrency: 8}
  - {name: platform, concurrency: 12, between: shares}
  - {name: bakers, pool: platform, share: 3, between: shares, concurrency: 10}
services:
  - {name: web, listen: "*:80", pool: nginx}
  - {name: secure, listen: "*:443", protocol: tls, pool: nginx}
  - {name: bread, listen: "*:8081", pool: bakers, share: 2}
  - {name: cake, listen: "*:8082", pool: bakers, concurrency: 2}
  - {name: florist, listen: "*:8083", pool: platform}
classes:
  - {name: gold, priority: 1}
  - {name: bronze, priority: 2, max: 7}
connections:
  - {name: partner, from: 10.0.0.3, class: gold}
`

// pooled is the rooms of poolPolicy: of services, then of pools.
func pooled() []datapath.Room {
	room := func(in, waiting int, used time.Duration) datapath.Room {
		return datapath.Room{InService: in, Waiting: waiting, Used: used, Classes: []datapath.RoomClass{
			{}, {InService: in, Waiting: waiting, Served: 10, Service: histogram(time.Second, nil)},
		}}
	}
	return []datapath.Room{
		room(0, 0, 0), room(6, 3, time.Minute), room(8, 40, time.Hour), room(1, 5, 0), room(3, 9, time.Second),
		room(6, 3, time.Minute), room(12, 54, time.Hour), room(9, 45, time.Hour),
	}
}

// Places of a pool are due by shares to who has use for them, and what one has none for to the others.
func TestStatusOfPools(t *testing.T) {
	m := newMachine(t, "eth0")
	m.kernel.SetRooms(pooled()...)
	r := m.start(m.config(m.write("p.yaml", poolPolicy)))
	defer r.end()
	got := r.status()
	due := func(n float64) *float64 { return &n }
	class := func(in, waiting int) []api.PoolClass {
		return []api.PoolClass{{Name: "gold"}, {Name: "bronze", InService: in, Waiting: waiting, Served: 10, Service: 1}}
	}
	want := []api.ServicePool{
		{
			Name: "nginx", Between: "classes", Limit: "8", InService: 6, Waiting: 3, Classes: class(6, 3),
			Members: []api.PoolMember{{Name: "web", Share: 1, Served: 10}, {Name: "secure", Share: 1, InService: 6, Waiting: 3, Served: 10, Used: 60, Wanted: 9}},
		},
		{
			Name: "platform", Between: "shares", Limit: "12", InService: 12, Waiting: 54, Classes: class(12, 54),
			Members: []api.PoolMember{
				{Name: "florist", Share: 1, InService: 3, Waiting: 9, Served: 10, Used: 1, Wanted: 12, Due: due(3)},
				{Name: "bakers", Share: 3, InService: 9, Waiting: 45, Served: 10, Used: 3600, Wanted: 10, Due: due(9)},
			},
		},
		{
			Name: "bakers", Between: "shares", Pool: "platform", Share: 3, Limit: "10", InService: 9, Waiting: 45, Classes: class(9, 45),
			Members: []api.PoolMember{
				{Name: "bread", Share: 2, InService: 8, Waiting: 40, Served: 10, Used: 3600, Wanted: 48, Due: due(7)},
				{Name: "cake", Share: 1, InService: 1, Waiting: 5, Served: 10, Wanted: 2, Due: due(2)},
			},
		},
	}
	if diff := cmp.Diff(want, got.Pools, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if p := got.PoolOf("cake"); p == nil || p.Name != "bakers" || got.PoolOf("platform") != nil {
		t.Errorf("cake is in %+v", p)
	}
}

// Whatever is wanted: nobody is due more than it wants, all places are due while they are wanted, and whose
// wants are not met has at least its share.
func FuzzDues(f *testing.F) {
	f.Add(uint8(10), uint8(3), uint16(20), uint8(1), uint16(2), uint8(7), uint16(0))
	f.Fuzz(func(t *testing.T, places, s1 uint8, w1 uint16, s2 uint8, w2 uint16, s3 uint8, w3 uint16) {
		members := []api.PoolMember{{Share: int(s1) + 1, Wanted: int(w1)}, {Share: int(s2) + 1, Wanted: int(w2)}, {Share: int(s3) + 1, Wanted: int(w3)}}
		n, sum, wanted, shares := float64(places)+1, 0.0, 0.0, 0.0
		due := dues(members, n)
		for i, m := range members {
			sum, wanted, shares = sum+due[i], wanted+float64(m.Wanted), shares+float64(m.Share)
		}
		if math.Abs(sum-min(n, wanted)) > 1e-6 {
			t.Errorf("of %v places, of which %v are wanted, %v are due: %v", n, wanted, sum, due)
		}
		for i, m := range members {
			if d := due[i]; d > float64(m.Wanted) || d < min(float64(m.Wanted), n*float64(m.Share)/shares)-1e-6 {
				t.Errorf("%v are due to %+v of %v", d, m, n)
			}
		}
	})
}

// A request waits where the places of a pool are taken, whoever has them.
func TestExplainKnowsPools(t *testing.T) {
	m := newMachine(t, "eth0")
	r := m.start(m.config(m.write("p.yaml", poolPolicy)))
	defer r.end()
	nginx := func(in, waiting int, full bool) api.PoolDecision {
		return api.PoolDecision{Name: "nginx", Between: "classes", Limit: 8, InService: in, Waiting: waiting, Full: full}
	}
	taken := pooled()
	taken[5].InService, taken[5].Classes[1].InService = 8, 7
	taken[5].Classes[1].Waiting, taken[5].Waiting = 0, 0
	const bronze, gold = "10.0.0.8", "10.0.0.3"
	for _, tt := range []struct {
		name     string
		rooms    []datapath.Room
		from, to string
		waits    bool
		pools    []api.PoolDecision
	}{
		{"others of its class wait in the pool", pooled(), bronze, ":80", true, []api.PoolDecision{nginx(6, 3, false)}},
		{"a more important class goes first", pooled(), gold, ":80", false, []api.PoolDecision{nginx(6, 3, false)}},
		{"the pool is full", taken, gold, ":80", true, []api.PoolDecision{nginx(8, 0, true)}},
		{"two levels", pooled(), gold, ":8082", true, []api.PoolDecision{
			{Name: "bakers", Between: "shares", Share: 1, Shares: 3, Limit: 10, InService: 9, Waiting: 45},
			{Name: "platform", Between: "shares", Share: 3, Shares: 4, Limit: 12, InService: 12, Waiting: 54, Full: true},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m.kernel.SetRooms(tt.rooms...)
			got, err := r.client.Explain(t.Context(), api.ExplainRequest{From: tt.from, To: "192.0.2.1" + tt.to})
			if err != nil {
				t.Fatal(err)
			}
			room := got.Decisions[0].Room
			if diff := cmp.Diff(tt.pools, room.Pools); diff != "" || room.Waits != tt.waits {
				t.Errorf("waits %v; (-want +got):\n%s", room.Waits, diff)
			}
		})
	}
}
