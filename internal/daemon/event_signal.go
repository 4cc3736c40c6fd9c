// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"slices"

	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/policy"
)

// roomReasons are those for which somebody is turned away who could have been served, had there
// been more room in service.
var roomReasons = []string{"queue_full", "displaced", "max_wait", "target", "shed"}

// signalOf says what the limit of an event's service was and what had set it, if that is why it
// happened or tells more of it: somebody waits or is turned away for want of room, or in overload.
func (a *agent) signalOf(e datapath.Event) *api.EventSignal {
	if e.Service == "" || e.Kind == datapath.EventAdmit || e.Kind == datapath.EventRelease {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	signal := api.EventSignal{SetBy: byPolicy, Limit: a.fixed[e.Service]}
	if s := a.find(e.Service); s != nil {
		signal = api.EventSignal{SetBy: byPolicy, Limit: s.inForce.Limit, Overload: s.inForce.Level != policy.WhenAlways}
		if s.adaptive {
			signal.SetBy = s.decision.Signal
		}
	}
	if e.Kind == datapath.EventHold || signal.Overload || slices.Contains(roomReasons, e.Reason) {
		return &signal
	}
	return nil
}
