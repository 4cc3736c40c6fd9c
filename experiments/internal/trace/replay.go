// SPDX-License-Identifier: Apache-2.0

package trace

import "narthex/internal/load"

// Arrivals are a day's requests for a client to replay, each for the path that it is given.
func Arrivals(day []Request, path func(Request) string) []load.Arrival {
	arrivals := make([]load.Arrival, 0, len(day))
	for _, r := range day {
		arrivals = append(arrivals, load.Arrival{At: r.At, Path: path(r)})
	}
	return arrivals
}
