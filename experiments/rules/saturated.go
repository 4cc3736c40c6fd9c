// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
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

var (
	wrkRate   = regexp.MustCompile(`(?m)^Requests/sec:\s+([0-9.]+)$`)
	wrkErrors = regexp.MustCompile(`(?m)^\s*(Socket errors|Non-2xx).*$`)
)

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
	if err = errors.Join(err, cmd.Wait()); err != nil {
		return 0, 0, fmt.Errorf("%w\n%s", err, &out)
	}
	if wrong := wrkErrors.Find(out.Bytes()); wrong != nil {
		return 0, 0, fmt.Errorf("wrk: %s", bytes.TrimSpace(wrong))
	}
	m := wrkRate.FindSubmatch(out.Bytes())
	if m == nil {
		return 0, 0, fmt.Errorf("wrk says no rate:\n%s", &out)
	}
	rate, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil || rate == 0 {
		return 0, 0, fmt.Errorf("wrk says rate %q", m[1])
	}
	return 1e6 / rate, u.Others, nil
}
