// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net/http"
	"time"
)

// PathConfirm is where a policy is confirmed, or taken back.
const PathConfirm = "/v1/confirm"

// Change is the last change of what is in force.
type Change struct {
	At   time.Time `json:"at"`
	What string    `json:"what"`         // start, reload, SIGHUP, set PATH, confirm or revert
	By   string    `json:"by,omitempty"` // user, as in LimitChange; absent: nobody, or it is not known
}

// Unconfirmed says of a policy in force that it is taken back by itself.
type Unconfirmed struct {
	Until    time.Time `json:"until"`
	Previous Previous  `json:"previous"`
	Fault    string    `json:"fault,omitempty"` // why it could not be taken back yet; it is tried again
}

// Previous is the policy that comes back.
type Previous struct {
	File string `json:"file"`
	Hash string `json:"hash"`
}

// ConfirmRequest is the body of POST /v1/confirm.
type ConfirmRequest struct {
	Revert bool `json:"revert"` // take the policy back
}

// ConfirmResult is the answer to it.
type ConfirmResult struct {
	Policy   PolicyStatus `json:"policy"`
	Ended    []Override   `json:"ended_overrides"`
	Restored []Override   `json:"restored_overrides"`
	Notes    []string     `json:"notes"`
}

// Confirm keeps a policy that would be taken back by itself, or takes it back at once.
func (c *Client) Confirm(ctx context.Context, req ConfirmRequest) (r ConfirmResult, err error) {
	err = c.do(ctx, http.MethodPost, PathConfirm, req, &r)
	return r, err
}
