// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/load"
)

// What is let through, and what is offered.
const (
	limitRate    = 10 // per second
	limitBurst   = 2
	limitOffered = 2000 // requests per second
	limitPath    = "/cgi-bin/search"
	openPath     = "/open" // which is not limited
)

var limitRules = fmt.Sprintf("  - {name: cgi, path: \"/cgi-bin/*\", rate: %d/s, burst: %d}\n", limitRate, limitBurst)

// freeRules limit something else.
var freeRules = strings.Replace(limitRules, "/cgi-bin/", "/other/", 1)

// offered is what became of requests that were offered.
type offered struct {
	accepted, rejected, others uint64
	first, last                time.Time // when requests were sent
}

func (o *offered) all() uint64 { return o.accepted + o.rejected + o.others }

// allowed is how many requests the limit lets through in the time.
func (o *offered) allowed() float64 {
	return limitBurst + math.Floor(o.last.Sub(o.first).Seconds()*limitRate)
}

// kinds are where requests come, and with what it is compared what their rejection costs the server.
var kinds = []struct {
	what, control  string
	offer, compare func(*stage, context.Context) (*offered, error)
	wanted         *bench.Bound
}{
	{"new connections", "request that is served", (*stage).offerNew, (*stage).serveNew, bench.AtMost(0.05)},
	{"kept connections", "idle connection that its client resets", (*stage).offerKept, (*stage).resetKept, nil},
}

// limit: a URL that is asked for 200 times as often as it may.
func (b suite) limit(ctx context.Context) (figures []bench.Figure, err error) {
	for _, k := range kinds {
		got := []bench.Figure{
			{What: k.what + ": accepted, more than the rate allows", Wanted: bench.Always(-1, 1)},
			{What: k.what + ": neither accepted nor 429", Wanted: bench.Always(0, 0)},
			{What: k.what + ": CPU time of the server per 429 / per " + k.control, Wanted: k.wanted},
			{What: k.what + ": CPU time of the server per 429", Unit: "µs"},
			{What: k.what + ": CPU time of the server per " + k.control, Unit: "µs"},
			{What: k.what + ": accepted"},
			{What: k.what + ": offered", Unit: "/s", Wanted: bench.AtLeast(0.95 * limitOffered)},
		}
		if k.wanted == nil {
			got[2].Note = "the server has the connection, and closes it; the kernel counts interrupts meanwhile as its time"
		}
		for range *runs {
			o, cost, err := b.limitOnce(ctx, limitRules, k.offer)
			if err != nil {
				return append(figures, got...), fmt.Errorf("%s: %w", k.what, err)
			}
			c, control, err := b.limitOnce(ctx, freeRules, k.compare)
			if err != nil {
				return append(figures, got...), fmt.Errorf("%s: %w", k.control, err)
			}
			perRefusal, perOther := cost.Seconds()*1e6/float64(o.rejected), control.Seconds()*1e6/float64(c.all())
			b.Progress("  %s: %d accepted (%.0f allowed), %d rejected, %d others", k.what, o.accepted, o.allowed(), o.rejected, o.others)
			for i, v := range []float64{
				float64(o.accepted) - o.allowed(), float64(o.others), perRefusal / perOther, perRefusal, perOther,
				float64(o.accepted), float64(o.all()) / o.last.Sub(o.first).Seconds(),
			} {
				got[i].Samples = append(got[i].Samples, v)
			}
		}
		figures = append(figures, got...)
	}
	return figures, nil
}

// limitOnce offers requests to a server, and returns the CPU time that this took the server. Each
// run has a server and a bucket of its own.
func (b suite) limitOnce(ctx context.Context, rules string, offer func(*stage, context.Context) (*offered, error)) (o *offered, cost time.Duration, err error) {
	st, err := b.stage("limit")
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	if _, err := st.Serve(st.nginx(limitPath, openPath)); err != nil {
		return nil, 0, err
	}
	n, err := st.narthex(ctx, rules)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, n.Stop()) }()
	var before time.Duration
	st.begin = func() (err error) {
		before, err = st.served()
		return err
	}
	if o, err = offer(st, ctx); err != nil {
		return nil, 0, err
	}
	after, err := st.served()
	return o, after - before, err
}

// offerNew asks on a connection of its own each time.
func (st *stage) offerNew(ctx context.Context) (*offered, error) { return st.ask(ctx, limitPath) }

// serveNew asks so for what is not limited.
func (st *stage) serveNew(ctx context.Context) (*offered, error) { return st.ask(ctx, openPath) }

func (st *stage) ask(ctx context.Context, path string) (*offered, error) {
	client := st.Client(st.rig, st.rig.ClientsV4, time.Duration(*seconds*float64(time.Second)))
	client.Path, client.Record = path, true
	if err := st.begin(); err != nil {
		return nil, err
	}
	run, err := load.Open{Client: client, Rate: limitOffered}.Start(ctx)
	if err != nil {
		return nil, err
	}
	r, err := run.Wait()
	if err != nil {
		return nil, err
	}
	o := &offered{accepted: r.Outcomes[load.OK], rejected: r.Statuses[http.StatusTooManyRequests]}
	o.others = r.Begun - o.all() - r.Outcomes[load.Unfinished]
	begun := time.Now()
	for _, e := range r.Events {
		if at := begun.Add(e.Connected); e.Connected > 0 && (o.first.IsZero() || at.Before(o.first)) {
			o.first = at
		} else if e.Connected > 0 && at.After(o.last) {
			o.last = at
		}
	}
	return o, nil
}
