// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"encoding/json"
	"io"
	"math"
)

// Summary is the outcome of a demo.
type Summary struct {
	Alone   Phase   `json:"alone"`
	Without Phase   `json:"without_narthex"`
	With    Phase   `json:"with_narthex"`
	Ratio   float64 `json:"ratio,omitempty"`        // of the gold clients' requests/s, with to without; 0 if there were none without
	Median  float64 `json:"median_ratio,omitempty"` // of their median response times, without to with; 0 if there is none
	Held    uint64  `json:"held"`                   // requests that Narthex had wait
}

func summarize(p [phases]Phase, s status) *Summary {
	sum := &Summary{Alone: p[alone], Without: p[without], With: p[with]}
	if before := sum.Without.Gold; before.Rate > 0 {
		sum.Ratio = math.Round(10*sum.With.Gold.Rate/before.Rate) / 10
		if after := sum.With.Gold; after.Rate > 0 {
			sum.Median = math.Round(10*before.Median/after.Median) / 10
		}
	}
	for _, service := range s.Services {
		for _, class := range service.Classes {
			sum.Held += class.Held
		}
	}
	return sum
}

func (s *Summary) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(s)
}
