// SPDX-License-Identifier: Apache-2.0

package api

// EventsStatus says how the telling of events goes. Counters are since the daemon started.
type EventsStatus struct {
	Listeners int    `json:"listeners"` // how many listen now
	Told      uint64 `json:"told"`      // events that the programs have told of
	Missed    uint64 `json:"missed"`    // events that they could not tell of, while somebody listened
	Behind    uint64 `json:"behind"`    // of those told, events that a listener missed because it read too slowly
}

// ReloadsStatus counts what became of reloads since the daemon started.
type ReloadsStatus struct {
	Done       uint64 `json:"done"`
	Failed     uint64 `json:"failed"`
	LastFailed string `json:"last_failed,omitempty"` // why the last one failed; absent if it did not
}

// StepsStatus counts what has become of a limit that sets itself, since the daemon started.
type StepsStatus struct {
	Raised    uint64 `json:"raised"`
	Lowered   uint64 `json:"lowered"`
	Overloads uint64 `json:"overloads"` // times that overload began
}
