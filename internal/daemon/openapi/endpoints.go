// SPDX-License-Identifier: Apache-2.0

// Package openapi says what the control socket offers, who may have it, and describes it.
package openapi

import (
	_ "embed" // of the description
	"net/http"

	"narthex/internal/api"
	"narthex/internal/live"
)

// Version is that of the API: paths begin with it. What it offers is only ever added to.
const Version = "v1"

// PathDescription is where Description is.
const PathDescription = "/v1/openapi.json"

// Description is the OpenAPI description of the API, which genapi makes of Endpoints.
//
//go:embed openapi.json
var Description []byte

// Access is what a user of the control socket must be allowed.
type Access uint8

// The kinds of access; each includes those before it.
const (
	AccessNone  Access = iota
	AccessRead         // to see everything: root, and the groups of `run --read-group` and `--write-group`
	AccessWrite        // to change limits: root, and the group of `run --write-group`
	AccessRoot         // whatever names files, or ends enforcement
)

// Endpoint is one thing that the control socket offers.
type Endpoint struct {
	Method, Path string
	What         string // in a sentence
	Access       Access
	Query        []Parameter
	Request      any  // a value of the body's type; nil: there is none
	Answer       any  // the same of the answer's
	Stream       bool // the answer is one such value on each line, for as long as the client listens
}

// Parameter is one of a URL's query.
type Parameter struct{ Name, What string }

// Endpoints is everything that the control socket offers.
var Endpoints = []Endpoint{
	{Method: http.MethodGet, Path: PathDescription, What: "This description.", Access: AccessRead},
	{Method: http.MethodGet, Path: api.PathAlive, What: "Answered at once by a daemon that runs, whatever else it does.", Access: AccessRead, Answer: api.Alive{}},
	{Method: http.MethodGet, Path: api.PathStatus, What: "Everything that `narthex status` shows.", Access: AccessRead, Answer: api.Status{}},
	{
		Method: http.MethodGet, Path: api.PathSamples, Access: AccessRead, Answer: api.Sample{}, Stream: true,
		What: "What is seen of each service that is steered, and decided, every 50 ms while anything happens there: what waits, its target, the level of overload.",
	},
	{
		Method: http.MethodGet, Path: api.PathEvents, What: "Decisions about single requests and connections, as `narthex events` shows them.", Access: AccessRead, Answer: api.Event{}, Stream: true,
		Query: []Parameter{{"service", "Of this service alone."}, {"reason", "For this reason alone."}, {"class", "Of this class alone."}, {"rule", "By this rule alone."}, {"from", "From this address or prefix alone."}, {"kind", "Of this kind alone."}, {"sample", "One in so many."}},
	},
	{
		Method: http.MethodGet, Path: api.PathRefusals, What: "Refusals that were kept, the oldest first, as `narthex events --since` shows them.", Access: AccessRead, Answer: api.Event{}, Stream: true,
		Query: []Parameter{{"since", "None before this time, as RFC 3339 has it."}, {"until", "None after this time."}, {"service", "Of this service alone."}, {"reason", "For this reason alone."}, {"class", "Of this class alone."}, {"rule", "By this rule alone."}, {"from", "From this address or prefix alone."}, {"kind", "Of this kind alone."}, {"sample", "One in so many."}},
	},
	{
		Method: http.MethodGet, Path: api.PathLive, What: "Rates by service, class and rule, as `narthex top` shows them, once a second.", Access: AccessRead, Answer: live.View{}, Stream: true,
		Query: []Parameter{{"once", "1: one value, and the end."}},
	},
	{Method: http.MethodPost, Path: api.PathExplain, What: "What would decide a connection or a request.", Access: AccessRead, Request: api.ExplainRequest{}, Answer: api.ExplainResult{}},
	{
		Method: http.MethodGet, Path: api.PathShadow, What: "What the trial of a policy has found.", Access: AccessRead, Answer: api.ShadowReport{},
		Query: []Parameter{{"id", "Of this trial; else of the last."}},
	},
	{
		Method: http.MethodGet, Path: api.PathTable, What: "What is remembered of clients, and the buckets of rules.", Access: AccessRead, Answer: api.Table{},
		Query: []Parameter{{"kind", "blocked, learned or buckets alone."}, {"from", "Of this address or prefix alone."}},
	},
	{Method: http.MethodPost, Path: api.PathTableClear, What: "Forgets what is remembered of clients, or fills buckets.", Access: AccessWrite, Request: api.TableClearRequest{}, Answer: api.TableClearResult{}},
	{Method: http.MethodPost, Path: api.PathTableAdd, What: "Blocks clients, or has them be of a class.", Access: AccessWrite, Request: api.TableAddRequest{}, Answer: api.TableAddResult{}},
	{Method: http.MethodPost, Path: api.PathSet, What: "Changes one limit or several, all or none.", Access: AccessWrite, Request: api.SetRequest{}, Answer: api.SetResult{}},
	{Method: http.MethodPost, Path: api.PathConfirm, What: "Keeps a policy that would be taken back, or takes it back.", Access: AccessWrite, Request: api.ConfirmRequest{}, Answer: api.ConfirmResult{}},
	{Method: http.MethodPost, Path: api.PathShadowEnd, What: "Ends the trial of a policy.", Access: AccessWrite, Request: api.ShadowEndRequest{}, Answer: api.ShadowReport{}},
	{Method: http.MethodPost, Path: api.PathReload, What: "Replaces the policy.", Access: AccessRoot, Request: api.ReloadRequest{}, Answer: api.ReloadResult{}},
	{Method: http.MethodPost, Path: api.PathShadow, What: "Begins the trial of a policy.", Access: AccessRoot, Request: api.ShadowRequest{}, Answer: api.ShadowStarted{}},
	{Method: http.MethodPost, Path: api.PathDiff, What: "What a policy would change.", Access: AccessRoot, Request: api.DiffRequest{}, Answer: api.DiffResult{}},
	{Method: http.MethodPost, Path: api.PathStop, What: "Ends the daemon.", Access: AccessRoot, Request: api.StopRequest{}, Answer: struct{}{}},
}

// AccessTo is what a request needs; what there is not needs nothing but to read.
func AccessTo(method, path string) Access {
	for i := range Endpoints {
		if e := &Endpoints[i]; e.Method == method && e.Path == path {
			return e.Access
		}
	}
	return AccessRead
}

// String returns the word for it in the description.
func (a Access) String() string { return [...]string{"none", "read", "write", "root"}[a] }
