// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"encoding/json"
	"io"
	"math"
)

// Summary is the outcome of a demo.
type Summary struct {
	Alone   Phase    `json:"alone"`
	Without Phase    `json:"without_narthex"`
	With    Phase    `json:"with_narthex"`
	Ratio   float64  `json:"ratio,omitempty"` // of the preferred client's requests/s, with to without; 0 if there were none without
	Greedy  *Policed `json:"greedy_syns,omitempty"`
}

// Policed counts the greedy client's SYNs while Narthex ran.
type Policed struct {
	Passed  uint64 `json:"passed"`
	Dropped uint64 `json:"dropped"`
}

func summarize(p [phases]Phase, s status) *Summary {
	sum := &Summary{Alone: p[alone], Without: p[without], With: p[with]}
	if before := sum.Without.Preferred.Rate; before > 0 {
		sum.Ratio = math.Round(10*sum.With.Preferred.Rate/before) / 10
	}
	for _, r := range s.Rules {
		if r.Name == "greedy" {
			sum.Greedy = &Policed{Passed: r.Passed, Dropped: r.Dropped}
		}
	}
	return sum
}

func (s *Summary) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(s)
}
