// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"narthex/internal/trial"
)

// The paths of trials: a GET asks for the report, a POST begins one, or ends it.
const (
	PathShadow    = "/v1/shadow"
	PathShadowEnd = "/v1/shadow/end"
)

// ShadowRequest is the body of POST /v1/shadow.
type ShadowRequest struct {
	File string  `json:"file"`          // of the candidate, absolute; empty: the one in force, as it is now
	For  float64 `json:"for,omitempty"` // after how many seconds it ends; 0: it goes on
}

// ShadowStarted is the answer to it.
type ShadowStarted struct {
	ID        string   `json:"id"`
	Live      Previous `json:"live"`
	Candidate Previous `json:"candidate"`
	Replaced  bool     `json:"replaced"` // another trial has ended for it
	Warnings  []string `json:"warnings"` // on the candidate
}

// ShadowEndRequest is the body of POST /v1/shadow/end.
type ShadowEndRequest struct {
	ID string `json:"id,omitempty"` // of the trial to end; empty: whichever there is
}

// ShadowReport is what a trial has found, the answer to GET /v1/shadow, with ?id=ID to that of one
// trial alone, and to POST /v1/shadow/end.
type ShadowReport struct {
	Live      Previous `json:"live"`
	Candidate Previous `json:"candidate"`
	By        string   `json:"by"`              // who began it
	Ended     string   `json:"ended,omitempty"` // why; empty: it runs
	trial.Report
}

// TrialStatus says that a trial runs, or has ended and can be asked for yet.
type TrialStatus struct {
	Candidate Previous  `json:"candidate"`
	Began     time.Time `json:"began_at"`
	By        string    `json:"by"`
	Ended     string    `json:"ended,omitempty"` // why; empty: it runs
	Seen      uint64    `json:"seen"`            // SYNs and requests
	Different uint64    `json:"different"`       // of these, those that the candidate decides otherwise
}

// Shadow begins a trial of a policy beside the one in force.
func (c *Client) Shadow(ctx context.Context, req ShadowRequest) (r ShadowStarted, err error) {
	err = c.do(ctx, http.MethodPost, PathShadow, req, &r)
	return r, err
}

// ShadowReport asks for what a trial has found so far: the one with the ID, or whichever there is if
// that is empty.
func (c *Client) ShadowReport(ctx context.Context, id string) (r ShadowReport, err error) {
	err = c.do(ctx, http.MethodGet, PathShadow+"?"+url.Values{"id": {id}}.Encode(), nil, &r)
	return r, err
}

// EndShadow ends a trial, as ShadowReport chooses it, and returns what it has found.
func (c *Client) EndShadow(ctx context.Context, id string) (r ShadowReport, err error) {
	err = c.do(ctx, http.MethodPost, PathShadowEnd, ShadowEndRequest{ID: id}, &r)
	return r, err
}
