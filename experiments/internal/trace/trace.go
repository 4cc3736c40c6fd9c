// SPDX-License-Identifier: Apache-2.0

// Package trace generates what a trace of a shop's web server would hold: a day's requests.
//
// A session is some pages; a page is a file and those that are embedded in it. How many, and what
// time is between them, is drawn from published models of web traffic:
//
//   - files, embedded files and the times between requests as in SURGE: Barford, Crovella: Generating
//     Representative Web Workloads for Network and Server Performance Evaluation, SIGMETRICS 1998;
//   - pages of a session by the law of surfing of Huberman, Pirolli, Pitkow, Lukose: Strong
//     Regularities in World Wide Web Surfing, Science 280, 1998;
//   - sessions come as a Poisson process whose rate changes with the time of day. SURGE has neither:
//     its users never go away. The profile of the day is ours.
package trace

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Day is how long a trace is.
const Day = 24 * time.Hour

// Request is one of a trace.
type Request struct {
	At      time.Duration // since midnight, less than Day
	Session int           // whose it is; they count from 0
	Page    bool          // a page rather than what is embedded in one
	Size    int64         // of the file in bytes
}

// Generate makes a day of as many requests as wanted, in the order of their times. The same seed
// makes the same day.
func Generate(seed uint64, requests int) []Request {
	m := model{rand.New(rand.NewPCG(seed, 0))}
	var day []Request
	for session := 0; len(day) < requests; session++ {
		day = append(day, m.session(session)...)
	}
	// The last session is cut short, so that the rate is what was asked for.
	day = day[:max(0, requests)]
	slices.SortStableFunc(day, func(a, b Request) int { return int(a.At - b.At) })
	return day
}

// session draws the requests of one session.
func (m model) session(number int) (requests []Request) {
	at := m.start()
	add := func(page bool) {
		// What goes on past midnight is taken for what went on from the day before.
		requests = append(requests, Request{At: at % Day, Session: number, Page: page, Size: m.size()})
	}
	for page := range m.pages() {
		if page > 0 {
			at += m.inactive()
		}
		add(true)
		for range m.embedded() {
			at += m.active()
			add(false)
		}
	}
	return requests
}

// swing is by how much the rate of sessions is above its mean at the top of the day, and below it
// at the bottom; quietest is when that is.
const (
	swing    = 0.75
	quietest = 4 * time.Hour
)

// profile is the rate of sessions at a time of day, with a mean of 1.
func profile(at time.Duration) float64 {
	return 1 - swing*math.Cos(2*math.Pi*(at-quietest).Hours()/Day.Hours())
}

// start draws when a session starts. The events of a Poisson process, given how many they are,
// are independent of each other with the rate as their density.
func (m model) start() time.Duration {
	for {
		at := time.Duration(m.Int64N(int64(Day)))
		if m.Float64()*(1+swing) < profile(at) {
			return at
		}
	}
}
