// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"narthex/internal/api"
)

// TestAdaptation says what has set a limit, and the last three changes.
func TestAdaptation(t *testing.T) {
	at := time.Date(2026, 11, 22, 11, 10, 3, 0, time.Local)
	kept := []api.KeepStatus{{Class: "gold", Share: 1}, {Class: "bronze", Share: 0.404}}
	for want, s := range map[string]api.ServiceStatus{
		"": {},
		"  set by idle: nothing is known yet, nothing is held, not overloaded\n": {
			Adaptation: &api.AdaptationStatus{Auto: true, Signal: "idle", Floor: 1, Keep: []api.KeepStatus{{Class: "gold", Share: 1}}},
		},
		"  set by cpu: as few as keep its processors busy (4 to 500), overloaded (degree 0.43), 40% of the SYNs of class bronze let in\n": {
			Adaptation: &api.AdaptationStatus{Auto: true, Signal: "cpu", Floor: 4, Ceiling: 500, Overload: true, Degree: 0.43, Keep: kept},
		},
		"  set by floor (at least 4), not overloaded\n": {Adaptation: &api.AdaptationStatus{Auto: true, Signal: "floor", Floor: 4}},
		"  not overloaded, the server is asked to close connections, for workers stay with them\n": {
			Adaptation: &api.AdaptationStatus{Signal: "policy", Floor: 8, Ceiling: 8, Closes: true},
		},
		"  overloaded (degree 1.50)\n": {Adaptation: &api.AdaptationStatus{Signal: "policy", Floor: 8, Ceiling: 8, Overload: true, Degree: 1.5}},
		"  11:10:03  8 → 2: limit 2 after 8\n" +
			"  11:10:02  2: overload begins\n" +
			"  11:10:01  7 → auto by root: set services.web.concurrency\n": {Changes: []api.LimitChange{
			{At: at, Old: "8", New: "2", By: "agent", Reason: "limit 2 after 8"},
			{At: at.Add(-time.Second), Old: "2", New: "2", By: "agent", Reason: "overload begins"},
			{At: at.Add(-2 * time.Second), Old: "7", New: "auto", By: "root", Reason: "set services.web.concurrency"},
			{At: at.Add(-3 * time.Second), Old: "auto", New: "7", By: "root", Reason: "set services.web.concurrency"},
		}},
	} {
		var b strings.Builder
		printAdaptation(&b, s)
		if diff := cmp.Diff(want, b.String()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// TestWhen says of rules when they are enforced.
func TestWhen(t *testing.T) {
	no, yes := false, true
	for want, now := range map[string]*bool{
		" (when: overload)":                        nil,
		" (when: overload, which is now)":          &yes,
		" (when: overload, not now: not enforced)": &no,
	} {
		if got := whenText("overload", now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := whenText("", nil); got != "" {
		t.Errorf("%q of a rule that is always enforced", got)
	}
	for want, r := range map[string]api.RuleStatus{
		"drop in overload":        {Action: "drop", When: "overload"},
		"5/s burst 2 in overload": {Rate: "5/s", Burst: 2, When: "overload"},
		"5/s burst 2":             {Rate: "5/s", Burst: 2},
	} {
		if got := doesText(r); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestRoomThatAdapts says how many have to be in service for a request to wait.
func TestRoomThatAdapts(t *testing.T) {
	for want, r := range map[string]api.RoomDecision{
		"waits while as many are in service as the server works best with":                     {Auto: true},
		"waits while as many are in service as the server works best with, or 3 of class gold": {Auto: true, Max: 3},
		"would wait: 4 of 4 in service, a limit that sets itself, 2 waiting":                   {Auto: true, Live: true, Limit: 4, InService: 4, Waiting: 2, Waits: true},
		"would be served at once: 4 in service, a limit that sets itself, 0 waiting":           {Auto: true, Live: true, InService: 4},
	} {
		if got := roomText(api.Decision{Class: "gold", Room: &r}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
