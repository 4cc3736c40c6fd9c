// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"narthex/experiments/internal/bench"
)

const (
	saturatedFor     = 2 * time.Second
	saturatedClients = 32
)

// saturated is overhead with wrk, which asks as fast as the server answers: what is compared is the time
// from one answer to the next. Elsewhere a core that has pauses wakes up for most requests, which costs more
// than the gate does, and hides it.
func (b suite) saturated(ctx context.Context) (figures []bench.Figure, err error) {
	st, o, err := b.inPairs("saturated")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	o.Measure = st.saturate
	for _, keepAlive := range []bool{false, true} {
		wanted := bench.AtMost(1 / 0.94)
		if keepAlive {
			wanted = bench.AtMost(1 / 0.96)
		}
		got, err := o.Figures(ctx, st.Bench, keepAlive, wanted)
		if figures = append(figures, got...); err != nil {
			return figures, err
		}
	}
	return figures, nil
}

// saturate has wrk ask for a time: the microseconds per request, and the share of the core that others took.
func (st *stage) saturate(ctx context.Context, keepAlive bool) (cost, others float64, err error) {
	args := []string{"-t1", fmt.Sprintf("-c%d", saturatedClients), fmt.Sprintf("-d%.0fs", saturatedFor.Seconds())}
	if !keepAlive {
		args = append(args, "-H", "Connection: close")
	}
	var out bytes.Buffer
	cmd := st.rig.Client.Command("wrk", append(args, fmt.Sprintf("http://%s%s", bench.Web(st.rig), longPath))...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	u, err := st.Use(ctx, saturatedFor)
	failed := cmd.Wait() // all that it says is there behind it
	rate, failed := bench.RateOfWrk(out.Bytes(), failed)
	if err = errors.Join(err, failed); err != nil {
		return 0, 0, err
	}
	return 1e6 / rate, u.Others, nil
}
