// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net/http"

	"narthex/internal/policy"
)

// PathDiff is where one asks what another policy would change.
const PathDiff = "/v1/diff"

// DiffRequest is the body of POST /v1/diff.
type DiffRequest struct {
	File string `json:"file"` // absolute; empty: the one in force, as it is now
}

// DiffResult is the answer to it.
type DiffResult struct {
	policy.Difference
	Ended    []Override `json:"ended_overrides"` // limits set by hand that a reload would end
	Waiting  []string   `json:"waiting"`         // what would become of requests that wait now, in sentences
	Warnings []string   `json:"warnings"`        // on the policy
}

// Same reports whether a reload would change nothing.
func (d *DiffResult) Same() bool { return len(d.Changes) == 0 && len(d.Ended) == 0 }

// Diff asks what a policy would change.
func (c *Client) Diff(ctx context.Context, req DiffRequest) (r DiffResult, err error) {
	err = c.do(ctx, http.MethodPost, PathDiff, req, &r)
	return r, err
}
