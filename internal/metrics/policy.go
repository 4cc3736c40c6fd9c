// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"narthex/internal/api"
)

var (
	policyInfo   = gauge("policy_info", "The policy in force, by the SHA-256 of its file.", "hash")
	loaded       = gauge("policy_loaded_timestamp_seconds", "When the policy in force was loaded.")
	changed      = gauge("policy_changed_timestamp_seconds", "When a reload, `narthex set` or the like last changed what is in force. Absent: it is not known.")
	unconfirmed  = gauge("policy_unconfirmed", "Whether the policy in force is taken back by itself unless somebody confirms it.")
	policyRules  = gauge("policy_rules", "Rules of the policy in force, by table.", "table")
	warnings     = gauge("policy_warnings", "Warnings on the policy in force. `narthex check` says which.")
	reloads      = counter("policy_reloads_total", "Reloads since the daemon started, by what became of them.", "result")
	listEntries  = gauge("list_entries", "Entries of a list of addresses, as its file had them when it was read last.", "list")
	listModified = gauge("list_modified_timestamp_seconds", "When the file of a list was changed whose content is in force.", "list")
	listReads    = counter("list_reads_total", "How often a list was read, by what became of it.", "list", "result")
	listGood     = gauge("list_last_read_successful", "Whether the file of a list is in force as it is. If not, what was read before stays.", "list")
	listMatches  = counter("list_matches_total", "SYNs and requests from addresses of a list, since the policy is in force.", "list")

	reloaded = gauge("policy_last_reload_successful", "Whether the last reload was, or there was none since the daemon started.")

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
	for _, l := range status.Lists {
		s.put(listEntries, float64(l.Entries), l.Name)
		s.put(listModified, seconds(l.Modified), l.Name)
		s.put(listReads, float64(l.Reads), l.Name, "done")
		s.put(listReads, float64(l.Failures), l.Name, "failed")
		s.put(listGood, truth(l.Wrong == ""), l.Name)
		s.put(listMatches, float64(l.Matches), l.Name)
	}
	for _, c := range status.Classes {
		s.put(classPriority, float64(c.Priority), c.Name)
	}
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
