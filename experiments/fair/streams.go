// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"time"

	"narthex/experiments/internal/bench"
)

const (
	streamClients = 128
	streamThink   = 50 * time.Millisecond
	streamLearns  = 20 * time.Second // until the service knows how long its server pauses within answers
)

// streams: clients that keep their connections and think, more than there are places. The end of an answer of a tcp
// service is a silence, that of HTTP is read.
func (b suite) streams(ctx context.Context) (figures []bench.Figure, err error) {
	st, err := b.stage("streams")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	clients, err := st.clients("/wait?ms=20", streamClients, 67)
	if err != nil {
		return nil, err
	}
	clients.Think = streamThink
	t := bench.NewTable(*runs, bench.Figure{What: "128 clients that think, 8 places: requests, tcp / http"})
	for t.Next() {
		rate := map[string]float64{}
		for _, protocol := range bench.Turned(t, "http", "tcp") {
			s, err := st.under(ctx, streamLearns, "concurrency: 8, queue: {max_wait: 20s}, protocol: "+protocol, "none", clients)
			if err != nil {
				return t.Done(), err
			}
			rate[protocol] = s.Reports[0].Rate()
			st.Progress("  streams, %s: %s/s", protocol, bench.Number(rate[protocol]))
		}
		t.Add(rate["tcp"] / rate["http"])
	}
	return t.Done(), nil
}
