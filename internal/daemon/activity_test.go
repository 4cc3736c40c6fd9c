// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/host"
	"narthex/internal/policy"
)

func TestStepsOfALimit(t *testing.T) {
	const unlimited = 0
	var got api.StepsStatus
	limits := []int{unlimited, 8, 6, 6, 7, unlimited, unlimited}
	const calm, over, flood = policy.WhenAlways, policy.WhenOverload, policy.WhenFlooded
	level := []policy.When{calm, over, flood, calm, over, calm, calm}
	for i := range limits[1:] {
		countSteps(&got, datapath.Control{Limit: limits[i], Level: level[i]}, datapath.Control{Limit: limits[i+1], Level: level[i+1]})
	}
	if want := (api.StepsStatus{Raised: 2, Lowered: 2, Overloads: 2}); got != want {
		t.Errorf("steps %+v, want %+v", got, want)
	}
}

// Events of who waits or is turned away for want of room have what has set the limit.
func TestSignalOfEvents(t *testing.T) {
	b := newBench(t)
	b.enforce(`services: [{name: web, listen: "*:80"}, {name: set, listen: "*:81", concurrency: 7}, {name: free, listen: "*:82", concurrency: unlimited}]
classes: [{name: gold, priority: 1}, {name: bronze, priority: 2}]
`)
	event := func(service string, kind datapath.EventKind, reason string) datapath.Event {
		return datapath.Event{Service: service, Kind: kind, Reason: reason}
	}
	b.pass(time.Second, nil)
	for _, tt := range []struct {
		e    datapath.Event
		want *api.EventSignal
	}{
		{event("set", datapath.EventHold, ""), &api.EventSignal{Limit: 7, SetBy: "policy"}},
		{event("set", datapath.EventReject, "max_wait"), &api.EventSignal{Limit: 7, SetBy: "policy"}},
		{event("free", datapath.EventDrop, "shed"), &api.EventSignal{SetBy: "policy"}},
		{event("set", datapath.EventReject, "rule"), nil},
		{event("set", datapath.EventRelease, ""), nil},
		{event("", datapath.EventDrop, "rule"), nil},
		{event("web", datapath.EventHold, ""), &api.EventSignal{Limit: 32, SetBy: "idle"}},
	} {
		if diff := cmp.Diff(tt.want, b.signalOf(tt.e)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", tt.e, diff)
		}
	}
	b.machine.Idle = make([]time.Duration, 2) // which goes on no more
	b.services[0].place = &whereabouts{Place: &host.Place{CPUs: []int{0, 1}}}
	b.pass(10*time.Second, b.flood(0, 100))
	a := b.adaptation("web", b.tables.Classes)
	if !a.Overload || a.Overloads == 0 || a.Lowered == 0 {
		t.Errorf("in a flood: %+v", a)
	}
	want := &api.EventSignal{Limit: a.Limit, SetBy: a.Signal, Overload: true}
	if diff := cmp.Diff(want, b.signalOf(event("web", datapath.EventReject, "rule"))); diff != "" {
		t.Errorf("in a flood (-want +got):\n%s", diff)
	}
}

func TestStatusOfReloadsAndEvents(t *testing.T) {
	m := newMachine(t, "eth0")
	file := m.write("p.yaml", ruledServices)
	r := m.start(m.config(file))
	defer r.end()
	if got := r.status().Reloads; got != (api.ReloadsStatus{}) {
		t.Errorf("before any reload: %+v", got)
	}
	if _, err := r.client.Reload(t.Context(), api.ReloadRequest{File: file + "x"}); err == nil {
		t.Fatal("a file that is not there was loaded")
	}
	if got := r.status().Reloads; got.Failed != 1 || got.Done != 0 || !strings.Contains(got.LastFailed, "p.yamlx") {
		t.Errorf("after a reload that failed: %+v", got)
	}
	if _, err := r.client.Reload(t.Context(), api.ReloadRequest{}); err != nil {
		t.Fatal(err)
	}
	if got := r.status().Reloads; got != (api.ReloadsStatus{Done: 1, Failed: 1}) {
		t.Errorf("after one that did not: %+v", got)
	}

	l := r.follow(api.EventFilter{Sample: 2})
	for range 3 {
		m.kernel.Tell(rejection())
	}
	m.kernel.Tell(datapath.Event{Kind: datapath.EventMissed, Missed: 5})
	told := 0
	for range 3 {
		if e := l.next(); e.Kind != "missed" {
			told++
		}
	}
	if got := r.status().Events; told != 2 || got != (api.EventsStatus{Listeners: 1, Told: 3, Missed: 5}) {
		t.Errorf("%d of 3 events with a sample of 2; status %+v", told, got)
	}
	l.cancel()
	eventually(t, "nobody listens", func() bool { return r.status().Events.Listeners == 0 })
}
