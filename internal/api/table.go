// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net/http"
	"net/url"
)

// Paths of what is remembered of clients.
const (
	PathTable      = "/v1/table"
	PathTableClear = "/v1/table/clear"
	PathTableAdd   = "/v1/table/add"
)

// The kinds of what is remembered.
const (
	TableBlocked = "blocked" // clients whose connections are refused
	TableLearned = "learned" // clients that are learned in a class
	TableBuckets = "buckets" // token buckets of rules
	TableAtOnce  = "at_once" // places of limits of what there is at once
)

// TableKinds are all of them, as they are shown.
var TableKinds = []string{TableBlocked, TableLearned, TableBuckets, TableAtOnce}

// TableCleared are those that can be forgotten.
var TableCleared = TableKinds[:3]

// Table is what is remembered, the answer to GET /v1/table, with ?kind=KIND of that kind, with ?from=ADDRESS or a
// prefix of those clients.
type Table struct {
	Blocked []TableClient `json:"blocked"`
	Learned []TableClient `json:"learned"`
	Buckets []TableBucket `json:"buckets"` // those of single sources where one is asked for; else those of rules
	AtOnce  []TablePlaces `json:"at_once"` // who has places; who has none is not there
}

// Len is how many entries it has.
func (t *Table) Len() int { return len(t.Blocked) + len(t.Learned) + len(t.Buckets) + len(t.AtOnce) }

// TableClient is a client: an IPv4 address, or an IPv6 /64.
type TableClient struct {
	Client string  `json:"client"`
	Class  string  `json:"class,omitempty"` // that it is learned in
	Left   float64 `json:"left_seconds"`
}

// TableBucket is the bucket of a rule, or that of a source under it.
type TableBucket struct {
	Rule   string  `json:"rule"`
	Of     string  `json:"of"`            // connections or requests
	Per    string  `json:"per,omitempty"` // what there is a bucket for each of
	Burst  uint32  `json:"burst"`
	AtOnce uint32  `json:"at_once,omitempty"` // in place of a burst: so many places there are at once, and tokens are those left
	Tokens float64 `json:"tokens"`
	FullIn float64 `json:"full_in_seconds"`
}

// TablePlaces is how many places of a limit are taken.
type TablePlaces struct {
	Rule   string `json:"rule"`
	Of     string `json:"of"`               // connections or requests
	Client string `json:"client,omitempty"` // an address, or the prefix that shares the places; absent: everybody
	Taken  uint32 `json:"taken"`
	AtOnce uint32 `json:"at_once"`
}

// TableClearRequest is the body of POST /v1/table/clear. One of From, Rule and All is needed.
type TableClearRequest struct {
	Kind string   `json:"kind"`
	From []string `json:"from,omitempty"` // addresses and prefixes; of buckets addresses
	Rule string   `json:"rule,omitempty"` // of buckets: that rule's alone
	All  bool     `json:"all,omitempty"`
}

// TableClearResult is the answer to it.
type TableClearResult struct {
	Cleared []string `json:"cleared"` // clients, or the rules of buckets
}

// TableAddRequest is the body of POST /v1/table/add.
type TableAddRequest struct {
	Kind  string   `json:"kind"` // blocked or learned
	From  []string `json:"from"` // addresses; of IPv6 their /64 is meant
	Class string   `json:"class,omitempty"`
	For   float64  `json:"for_seconds"`
}

// TableAddResult is the answer to it.
type TableAddResult struct {
	Added []string `json:"added"` // clients
}

// Table asks what is remembered: of a kind, of clients, or, both empty, of all.
func (c *Client) Table(ctx context.Context, kind, from string) (t Table, err error) {
	query := url.Values{"kind": {kind}, "from": {from}}
	err = c.do(ctx, http.MethodGet, PathTable+"?"+query.Encode(), nil, &t)
	return t, err
}

// TableClear has something forgotten.
func (c *Client) TableClear(ctx context.Context, req TableClearRequest) (r TableClearResult, err error) {
	err = c.do(ctx, http.MethodPost, PathTableClear, req, &r)
	return r, err
}

// TableAdd has clients remembered.
func (c *Client) TableAdd(ctx context.Context, req TableAddRequest) (r TableAddResult, err error) {
	err = c.do(ctx, http.MethodPost, PathTableAdd, req, &r)
	return r, err
}
