// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"narthex/internal/adapt"
)

// PathSamples is where the samples and decisions of limits that set themselves are streamed,
// one Sample in each line, for as long as the client listens.
const PathSamples = "/v1/samples"

// AdaptationStatus is how a service is steered.
type AdaptationStatus struct {
	Auto     bool         `json:"auto"`     // the limit sets itself; else overload is watched, and whether workers stay with connections
	Limit    int          `json:"limit"`    // requests in service at once; 0: unlimited
	Safe     int          `json:"safe"`     // the same soon after nobody adapts it any more; 0: unlimited
	Floor    int          `json:"floor"`    // what the limit never falls below
	Ceiling  int          `json:"ceiling"`  // what it never rises above; 0: no bound
	Signal   string       `json:"signal"`   // what set the limit: idle, headroom, model, taken, cpu, throughput, memory, harm, floor, ceiling or policy
	Closes   bool         `json:"closes"`   // the server is asked to close each connection behind its answer
	Overload bool         `json:"overload"` // rules with `when: overload` are enforced
	Level    string       `json:"level"`    // of overload: calm, overload, rejecting or flooded; rules that ask for it or one before are enforced
	Degree   float64      `json:"degree"`   // of overload: 0 none, to 1 by how full the queue is, beyond 1 by how many are refused
	Keep     []KeepStatus `json:"keep"`     // most important class first
	StepsStatus
}

// KeepStatus says which share of a class's SYNs is let in, 0 to 1.
type KeepStatus struct {
	Class string  `json:"class"`
	Share float64 `json:"share"`
}

// LimitChange is a change of a service's limit.
type LimitChange struct {
	At       time.Time `json:"at"`
	Old      string    `json:"old"` // a number or unlimited; by a person, as in a policy
	New      string    `json:"new"`
	Signal   string    `json:"signal,omitempty"` // what set it, if it set itself
	Overload bool      `json:"overload"`         // then
	Reason   string    `json:"reason"`           // a sentence
	By       string    `json:"by"`               // agent, a user of the control socket such as root or alice (as root), or SIGHUP
}

// Sample is one step of a limit that sets itself: what was seen, and what was decided.
type Sample struct {
	Service  string         `json:"service"`
	Sample   adapt.Sample   `json:"sample"`
	Decision adapt.Decision `json:"decision"`
}

// Samples calls f with each sample from now on, until ctx is done, the daemon ends, or f
// returns an error, which it returns.
func (c *Client) Samples(ctx context.Context, f func(Sample) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://narthex"+PathSamples, nil)
	if err != nil {
		return err
	}
	endless := *c.http
	endless.Timeout = 0
	resp, err := endless.Do(req)
	if err != nil {
		return c.explain(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return failure(resp)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		var s Sample
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return fmt.Errorf("read the daemon's samples: %w", err)
		}
		if err := f(s); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("read the daemon's samples: %w", err)
	}
	return nil
}
