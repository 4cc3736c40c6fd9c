// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"narthex/internal/daemon/api"
)

var (
	policyInfo  = gauge("policy_info", "The policy in force, by the SHA-256 of its file.", "hash")
	loaded      = gauge("policy_loaded_timestamp_seconds", "When the policy in force was loaded.")
	changed     = gauge("policy_changed_timestamp_seconds", "When a reload, `narthex set` or the like last changed what is in force. Absent: it is not known.")
	unconfirmed = gauge("policy_unconfirmed", "Whether the policy in force is taken back by itself unless somebody confirms it.")
	policyRules = gauge("policy_rules", "Rules of the policy in force, by table.", "table")
	warnings    = gauge("policy_warnings", "Warnings on the policy in force. `narthex check` says which.")
	reloads     = counter("policy_reloads_total", "Reloads since the daemon started, by what became of them.", "result")
	reloaded    = gauge("policy_last_reload_successful", "Whether the last reload was, or there was none since the daemon started.")

	classPriority = gauge("class_priority", "The priority of a class: 1 is the most important.", "class")
)

// policy shows what is in force, and since when.
func (s sink) policy(status api.Status) {
	p := status.Policy
	s.put(policyInfo, 1, p.Hash)
	s.put(loaded, seconds(p.Loaded))
	if p.Change != nil {
		s.put(changed, seconds(p.Change.At))
	}
	s.put(unconfirmed, truth(p.Unconfirmed != nil))
	s.put(policyRules, float64(len(status.Rules)), "connections")
	s.put(policyRules, float64(len(status.Requests)), "requests")
	s.put(warnings, float64(len(status.Warnings)))
	s.put(overrides, float64(len(status.Overrides)))
	s.put(reloads, float64(status.Reloads.Done), "done")
	s.put(reloads, float64(status.Reloads.Failed), "failed")
	s.put(reloaded, truth(status.Reloads.LastFailed == ""))
	for _, c := range status.Classes {
		s.put(classPriority, float64(c.Priority), c.Name)
	}
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
