// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"narthex/experiments/internal/bench"
)

// cores are the machines of the model.
var cores = []int{2, 8, 32, 128}

// predictions says what one room does with more cores: by what its lock and the shared counters take of each request
// while two cores want them at a time, and three times that, as where a cache line comes from another socket.
func predictions(shared []bench.Figure) (figures []bench.Figure) {
	by := map[string]float64{}
	for i, s := range subjects {
		by[fmt.Sprintf("%s/%d/%d", s.program, s.threads, s.rooms)] = shared[i].Median()
	}
	// All that they take beyond a run without them counts as time for which nobody else gets on.
	lock, counts := by["bench_room/2/1"]-by["bench_scene/1/1"], by["bench_counts/2/1"]-by["bench_scene/1/1"]
	for _, far := range []float64{1, 3} {
		one := throughput(1, *work*1e3, far*lock, far*counts)
		for _, n := range cores {
			x := throughput(n, *work*1e3, far*lock, far*counts)
			figures = append(figures, bench.Figure{
				What: fmt.Sprintf("%d cores, cache lines × %.0f: of %d times one core", n, far, n), Samples: []float64{x / one / float64(n)},
				Note: fmt.Sprintf("%.2f million requests/s; at most %.2f with any number of cores", x*1e3, 1e3/(far*max(lock, counts))),
			})
		}
	}
	return figures
}

// throughput is how many requests a ns cores do in a closed network: each works for so many ns, and has to have each of
// the stations to itself once. By mean value analysis, which is exact where times are exponential.
func throughput(cores int, work float64, stations ...float64) float64 {
	queue := make([]float64, len(stations))
	var x float64
	for n := 1; n <= cores; n++ {
		sum := work
		for i, s := range stations {
			sum += s * (1 + queue[i])
		}
		x = float64(n) / sum
		for i, s := range stations {
			queue[i] = x * s * (1 + queue[i])
		}
	}
	return x
}
