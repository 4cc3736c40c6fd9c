// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"slices"

	"narthex/internal/datapath"
	"narthex/internal/netif"
)

// shortHash is as much of a policy's hash as one compares by eye.
func shortHash(hash string) string { return hash[:min(len(hash), 12)] }

// logAttachments tells what has changed.
func (e *engine) logAttachments(now []datapath.Attachment) {
	for _, a := range now {
		if slices.Contains(e.attachments, a) {
			continue
		}
		about := []any{"interface", a.Name, "mode", a.Mode}
		if a.Reason != "" {
			about = append(about, "reason", a.Reason)
		}
		e.log.Info("policing", about...)
	}
	for _, a := range e.attachments {
		if !slices.ContainsFunc(now, func(b datapath.Attachment) bool { return a.Index == b.Index }) {
			e.log.Info("let go", "interface", a.Name)
		}
	}
}

// logPlan tells which interfaces are left out or away that were not before.
func (e *engine) logPlan(next netif.Plan) {
	for _, note := range next.Notes {
		if !slices.Contains(e.plan.Notes, note) {
			e.log.Warn(note)
		}
	}
	for _, a := range next.Absent {
		if !slices.ContainsFunc(e.plan.Absent, func(old netif.Absent) bool { return old.Interface == a.Interface }) {
			e.log.Warn("lost an interface, waiting for it to come back", "interface", a.Interface, "service", a.Service)
		}
	}
}

// logSilent tells on which addresses of services no server listens when a policy comes
// into force.
func (e *engine) logSilent() {
	listeners, err := e.net.Listeners()
	if err != nil {
		e.log.Warn("cannot tell whether servers listen", "error", err)
		return
	}
	for _, s := range e.current.tables.Services {
		if silent := silentOf(s, listeners); len(silent) > 0 {
			e.log.Warn("no server listens", "service", s.Name, "on", silent)
		}
	}
}
