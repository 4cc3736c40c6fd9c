// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"sync"

	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/policy"
)

// reloads counts what became of them.
type reloads struct {
	mu     sync.Mutex
	counts api.ReloadsStatus
}

// note counts one that has ended.
func (r *reloads) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.counts.Failed++
		r.counts.LastFailed = err.Error()
		return
	}
	r.counts.Done++
	r.counts.LastFailed = ""
}

func (r *reloads) status() api.ReloadsStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts
}

// status says how the telling of events goes.
func (h *eventHub) status() api.EventsStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	return api.EventsStatus{Listeners: len(h.clients()), Told: h.told, Missed: h.missed, Behind: h.behind.Load()}
}

// countSteps counts what a control changes that is put in force after another.
func countSteps(n *api.StepsStatus, was, now datapath.Control) {
	higher := func(a, b int) bool { return b != 0 && (a == 0 || a > b) } // 0 is unlimited
	switch {
	case higher(now.Limit, was.Limit):
		n.Raised++
	case higher(was.Limit, now.Limit):
		n.Lowered++
	}
	if now.Level != policy.WhenAlways && was.Level == policy.WhenAlways {
		n.Overloads++
	}
}
