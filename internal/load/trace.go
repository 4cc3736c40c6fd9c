// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Arrival is a request of a trace.
type Arrival struct {
	At   time.Duration // since the start of the trace
	Path string
}

// Trace replays requests at their times, one connection for each. Client's Path says nothing.
//
// A request begins when its time has come, whatever became of those before it. While all of the
// client's connections are in use it waits for one, first come first served, and that counts as
// its time: a slow server does not make the trace shorter.
type Trace struct {
	Client
	Arrivals    []Arrival     // in the order of their times
	Length      time.Duration // of the trace, which is stretched or shortened to last for Duration
	Connections int           // of the client at once; 4096 if 0
}

// Start starts the replay. It ends with the context or after Duration; what is under way or waits
// then is unfinished.
func (t Trace) Start(ctx context.Context) (*Run, error) {
	if t.Length <= 0 || t.Connections < 0 {
		return nil, fmt.Errorf("replay a trace: %v long over %d connections; both must be more than nothing", t.Length, t.Connections)
	}
	if !slices.IsSortedFunc(t.Arrivals, func(a, b Arrival) int { return int(a.At - b.At) }) {
		return nil, errors.New("replay a trace: its arrivals are not in the order of their times")
	}
	l, err := newLoop(t.Client, false)
	if err != nil {
		return nil, err
	}
	l.maxOpen = defaultTo(t.Connections, 4096)
	l.replay = &replay{
		arrivals: t.Arrivals,
		scale:    float64(t.Duration) / float64(t.Length),
		requests: map[string][]byte{},
	}
	for _, a := range t.Arrivals {
		if l.replay.requests[a.Path] == nil {
			c := l.client
			c.Path = defaultTo(a.Path, "/")
			l.replay.requests[a.Path] = c.request(false)
		}
	}
	return l.start(ctx), nil
}

// replay is how far a trace has come.
type replay struct {
	arrivals []Arrival
	scale    float64           // of its times
	requests map[string][]byte // by path
	start    time.Time
	arrived  int // requests whose time has come
	begun    int // of these, those that had a connection
}

// time is when a request's time comes.
func (r *replay) time(i int) time.Time {
	return r.start.Add(time.Duration(float64(r.arrivals[i].At) * r.scale))
}

// due returns when the next request's time comes; ok is false if there is none.
func (r *replay) due() (at time.Time, ok bool) {
	if r.arrived == len(r.arrivals) {
		return time.Time{}, false
	}
	return r.time(r.arrived), true
}

// arrive counts the requests whose time has come.
func (l *loop) arrive(now time.Time) {
	for {
		at, ok := l.replay.due()
		if !ok || at.After(now) {
			return
		}
		l.tally.begun()
		l.replay.arrived++
	}
}

// serve begins requests whose time has come, as far as there are connections for them.
func (l *loop) serve(now time.Time) {
	r := l.replay
	for r.begun < r.arrived {
		var c *conn
		switch n := len(l.spare); {
		case n > 0:
			c, l.spare = l.spare[n-1], l.spare[:n-1]
		case len(l.conns) < l.maxOpen:
			c = l.add()
		default:
			return
		}
		c.request = r.requests[r.arrivals[r.begun].Path]
		since := r.time(r.begun)
		r.begun++
		l.launch(c, since, now)
	}
}

// abandonWaiting ends the requests that have had no connection.
func (l *loop) abandonWaiting(now time.Time) {
	for r := l.replay; r.begun < r.arrived; r.begun++ {
		l.tally.ended(&conn{begun: r.time(r.begun)}, now, Unfinished)
	}
}

func defaultTo[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}
