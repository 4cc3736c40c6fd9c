// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"time"
)

// PathEvents is where the daemon tells of events as they happen.
const PathEvents = "/v1/events"

// PathLive is where the daemon shows how it goes: a live.View per line about once a second, or
// with ?once=1 one that has rates.
const PathLive = "/v1/live"

// Event is a decision. GET /v1/events answers with one per line until the client goes.
type Event struct {
	Time   time.Time `json:"time"`
	Kind   string    `json:"kind"`             // drop, reject, demote, hold, admit, release or missed
	Shadow bool      `json:"shadow,omitempty"` // it would have been so, had the service not been in shadow mode
	// Client is the address and port of the client. If a trusted proxy names the address, the
	// port is the proxy's.
	Client   string  `json:"client,omitempty"`
	Server   string  `json:"server,omitempty"` // address and port that the client has connected to
	Service  string  `json:"service,omitempty"`
	Class    string  `json:"class,omitempty"`
	Rule     string  `json:"rule,omitempty"`
	RuleKind string  `json:"rule_kind,omitempty"` // connection or request
	Reason   string  `json:"reason,omitempty"`    // of a drop, rejection or demotion
	Answer   string  `json:"answer,omitempty"`    // to who is rejected: its status and its name, or reset
	Level    *Level  `json:"level,omitempty"`     // of the rule's bucket, after the decision
	Waited   float64 `json:"waited,omitempty"`    // seconds
	JA4      string  `json:"ja4,omitempty"`       // fingerprint of the client's ClientHello, where a rule asks for it
	// Signal is there if it was for want of room in service, or in overload.
	Signal *EventSignal `json:"signal,omitempty"`
	// Missed counts events that there was no telling of, whatever the filter. Only Kind, missed,
	// and Time stand beside it.
	Missed uint64 `json:"missed,omitempty"`
}

// Level is what is in a bucket.
type Level struct {
	Tokens float64 `json:"tokens"`
	Burst  uint32  `json:"burst"`
}

// EventSignal is what was known of the service when its event was told of.
type EventSignal struct {
	Limit    int    `json:"limit"`    // requests in service at once; 0: unlimited
	SetBy    string `json:"set_by"`   // signal that has set it, as in AdaptationStatus
	Overload bool   `json:"overload"` // rules with `when: overload` are enforced
}

// EventFilter says which events to tell of; what is empty lets all through.
type EventFilter struct {
	From    string // address or prefix of the client
	Rule    string
	Class   string
	Service string
	Reason  string
	Kind    string
	Sample  int // tell of one in so many of those that all else lets through; 0: of all
}

// Query returns the filter as the query of a URL.
func (f EventFilter) Query() url.Values {
	q := url.Values{}
	for key, value := range map[string]string{
		"from": f.From, "rule": f.Rule, "class": f.Class, "service": f.Service, "reason": f.Reason, "kind": f.Kind,
	} {
		if value != "" {
			q.Set(key, value)
		}
	}
	if f.Sample > 1 {
		q.Set("sample", strconv.Itoa(f.Sample))
	}
	return q
}

// ErrEventsEnded is the error of Events when the daemon has told of all there was.
var ErrEventsEnded = errors.New("the daemon has ended")

// Events calls began when the daemon listens, and then tell with each event, until it returns
// an error, the context is done or the daemon ends.
func (c *Client) Events(ctx context.Context, f EventFilter, began func(), tell func(Event) error) error {
	return Follow(ctx, c, PathEvents+"?"+f.Query().Encode(), began, tell)
}
