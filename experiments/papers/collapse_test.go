// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"narthex/experiments/internal/bench"
	"narthex/internal/load"
	"narthex/test/generator"
)

// TestCollapseOutcome has a run be judged by what the server did by itself just before.
func TestCollapseOutcome(t *testing.T) {
	gold := &load.Report{Elapsed: time.Second, Begun: 500, Times: hdrhistogram.New(1, time.Minute.Microseconds(), 3)}
	gold.Outcomes[load.OK] = 500
	for range 500 {
		if err := gold.Times.RecordValue(14_000); err != nil { // µs
			t.Fatal(err)
		}
	}
	c := &collapsing{
		stage: &stage{suite: &suite{Bench: &bench.Bench{}}, Meters: bench.Meters{Core: &bench.Core{}}},
		rest:  rest{rate: 1000, work: 0.001, tail: 10},
	}
	s := &bench.Sample{Reports: bench.Reports{gold}, Use: bench.Use{Took: time.Second, Work: 960 * time.Millisecond, Received: time.Millisecond}}
	others := generator.Counts{SYNs: 9_500, Answers: map[int]uint64{http.StatusOK: 400, http.StatusServiceUnavailable: 9_000}}
	o := c.outcome(s, others, 4)
	if o.invalid != "" {
		t.Errorf("invalid: %s", o.invalid)
	}
	for what, want := range map[string]float64{
		goldShare: 100, totalRate: 900, totalShare: 90,
		rejection:   1e6 * (0.96 - 0.9) / 9_100, // of 10,000 that were begun 900 were served
		beyondAlone: 1,                          // 4 ms, which is 4 × 1 ms
	} {
		if got := o.values[what]; got < 0.998*want || got > 1.002*want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	others.Lost = 100
	if o := c.outcome(s, others, 4); o.invalid == "" {
		t.Error("a generator that lost SYNs is no reason for the run to be invalid")
	}
}
