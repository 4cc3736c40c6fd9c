// SPDX-License-Identifier: Apache-2.0

// Package evidence holds what experiments find, judges it and writes it down: the report that
// `make experiments` leaves in experiments/report.
//
// An experiment returns a [Result]: what was measured, as plots and tables of samples, and claims
// about it. A claim is a pure function of samples, so that a report can say no.
package evidence

import "time"

// Result is what one experiment has found. It is what the experiment's JSON file holds.
type Result struct {
	ID     string `json:"id"`     // such as fig12
	Title  string `json:"title"`  // a line
	Source string `json:"source"` // where the experiment is from
	Then   string `json:"then"`   // what was found there, in a sentence; empty if it is ours
	Setup  string `json:"setup"`  // server, clients, limits: what a reader needs to do it again

	Plots  []Plot   `json:"plots,omitempty"`
	Tables []Table  `json:"tables,omitempty"`
	Claims []Claim  `json:"claims"`           // what must hold
	Ratios []Ratio  `json:"ratios,omitempty"` // ours against each peer
	Notes  []string `json:"notes,omitempty"`  // on how to read it, and what is not as it was then

	Repeated []string `json:"repeated,omitempty"` // runs that were invalid and were done again, and why
	Invalid  []string `json:"invalid,omitempty"`  // runs that stayed invalid: nothing may follow from the result

	Command string        `json:"command"`
	Runs    int           `json:"runs"`
	Quick   bool          `json:"quick"`
	Took    time.Duration `json:"took_ns"`
}

// Plot is a diagram.
type Plot struct {
	Name   string   `json:"name"` // of its files, unique within the experiment; empty: the experiment's ID
	Title  string   `json:"title"`
	X      Axis     `json:"x"`
	Y      Axis     `json:"y"`
	Series []Series `json:"series"`
}

// Axis is one of a plot's.
type Axis struct {
	Label string   `json:"label"` // with the unit
	Log   bool     `json:"log,omitempty"`
	Ticks []string `json:"ticks,omitempty"` // names of x = 0, 1, 2, … where x is no number
}

// Series is a line of a plot.
type Series struct {
	Name   string  `json:"name"`
	Ours   bool    `json:"ours,omitempty"`
	Points []Point `json:"points"`
}

// Point has a sample of each run. Its line goes through the median, its bar from the least to the most.
type Point struct {
	X       float64   `json:"x"`
	Samples []float64 `json:"samples"`
}

// Table is one of figures.
type Table struct {
	Title   string   `json:"title"`
	Columns []string `json:"columns"` // with units; the first is that of the rows' names
	Rows    []Row    `json:"rows"`
}

// Row of a table.
type Row struct {
	Name  string `json:"name"`
	Ours  bool   `json:"ours,omitempty"`
	Cells []Cell `json:"cells"`
}

// Cell has samples, of which the median and the range are shown, or else a text.
type Cell struct {
	Samples []float64 `json:"samples,omitempty"`
	Text    string    `json:"text,omitempty"`
}

// Kind is what a claim is about.
type Kind string

// The kinds of claims.
const (
	Shape  Kind = "shape"  // what was found then is found here
	Figure Kind = "figure" // a figure that Narthex must reach
)

// Claim is something that must hold. It does not where there are no samples.
type Claim struct {
	Kind    Kind      `json:"kind"`
	What    string    `json:"what"`
	Unit    string    `json:"unit,omitempty"`
	Samples []float64 `json:"samples"` // one of each run; their median is judged
	Least   *float64  `json:"least,omitempty"`
	Most    *float64  `json:"most,omitempty"`
}

// Ratio compares ours with a peer's: the sample of each run is ours / theirs of that run.
type Ratio struct {
	What    string    `json:"what"` // of which figure, at which load
	Peer    string    `json:"peer"`
	Samples []float64 `json:"samples"`
	// Low says that less is better, of a time for example.
	Low bool `json:"low,omitempty"`
}

// AtLeast is a claim that the samples' median is no less.
func AtLeast(kind Kind, what, unit string, least float64, samples ...float64) Claim {
	return Claim{Kind: kind, What: what, Unit: unit, Least: &least, Samples: samples}
}

// AtMost is a claim that the samples' median is no more.
func AtMost(kind Kind, what, unit string, most float64, samples ...float64) Claim {
	return Claim{Kind: kind, What: what, Unit: unit, Most: &most, Samples: samples}
}

// Between is a claim that the samples' median is within a range.
func Between(kind Kind, what, unit string, least, most float64, samples ...float64) Claim {
	return Claim{Kind: kind, What: what, Unit: unit, Least: &least, Most: &most, Samples: samples}
}
