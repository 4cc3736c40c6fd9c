// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"time"
)

// PathRefusals is where the daemon tells of refusals that it has kept, the oldest first: an Event
// per line, then the end.
const PathRefusals = "/v1/refusals"

// Refusals calls tell with each event that was kept between two times. A zero time is no bound.
func (c *Client) Refusals(ctx context.Context, f EventFilter, from, to time.Time, tell func(Event) error) error {
	q := f.Query()
	for key, at := range map[string]time.Time{"since": from, "until": to} {
		if !at.IsZero() {
			q.Set(key, at.Format(time.RFC3339Nano))
		}
	}
	err := Follow(ctx, c, PathRefusals+"?"+q.Encode(), func() {}, tell)
	if errors.Is(err, ErrEventsEnded) {
		return nil
	}
	return err
}
