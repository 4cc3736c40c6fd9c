// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Follow asks for a path that is answered with one JSON value per line. It calls began when
// the daemon answers, and then tell with each value, until it returns an error, the context is
// done or the daemon ends, which is ErrEventsEnded.
func Follow[T any](ctx context.Context, c *Client, path string, began func(), tell func(T) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://narthex"+path, nil)
	if err != nil {
		return err
	}
	patient := *c.http
	patient.Timeout = 0
	resp, done, err := c.send(&patient, req)
	if err != nil {
		return err
	}
	defer done()
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return failure(resp)
	}
	began()
	lines := json.NewDecoder(resp.Body)
	for {
		var v T
		if err := lines.Decode(&v); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return ErrEventsEnded
			}
			return fmt.Errorf("read what the daemon on %q tells: %w", c.socket, cause(resp.Request, err))
		}
		if err := tell(v); err != nil {
			return err
		}
	}
}
