// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/api"
)

// status is the service's.
func (st *stage) status(ctx context.Context) (api.ServiceStatus, error) {
	s, err := st.daemon.Status(ctx)
	if err != nil {
		return api.ServiceStatus{}, err
	}
	if len(s.Services) == 0 || s.Services[0].RoomStatus == nil {
		return api.ServiceStatus{}, errors.New("status: no waiting room")
	}
	return s.Services[0], nil
}

// limitOf is how many requests may be in service, infinite if that is not limited. One that
// sets itself has (auto) behind it.
func limitOf(s api.ServiceStatus) float64 {
	number, _, _ := strings.Cut(s.Limit, " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		return math.Inf(1)
	}
	return float64(n)
}

// moment is the service at one time.
type moment struct {
	At      time.Duration     `json:"at"` // since the watch began
	Service api.ServiceStatus `json:"service"`
}

func (m moment) limit() float64 { return limitOf(m.Service) }

// watch reads the status again and again.
type watch struct {
	begun   time.Time
	moments []moment     // valid after end
	samples []api.Sample // of the controller; only for the trace
	failed  error
	stop    context.CancelFunc
	done    sync.WaitGroup
	file    string // of the trace, without what says of what; none if empty
}

// watch begins to read the status so often. The name is that of the trace's files.
func (st *stage) watch(ctx context.Context, every time.Duration, name string) *watch {
	ctx, stop := context.WithCancel(ctx)
	w := &watch{begun: time.Now(), stop: stop}
	w.done.Go(func() {
		for bench.Sleep(ctx, every) == nil {
			s, err := st.status(ctx)
			if err != nil {
				if ctx.Err() == nil {
					w.failed = err
				}
				return
			}
			w.moments = append(w.moments, moment{time.Since(w.begun), s})
		}
	})
	if *traces == "" {
		return w
	}
	w.file = filepath.Join(*traces, strings.NewReplacer(" ", "-", "=", "-").Replace(name))
	w.done.Go(func() {
		// An error is of the trace alone: it ends early.
		_ = st.daemon.Samples(ctx, func(s api.Sample) error {
			w.samples = append(w.samples, s)
			return nil
		})
	})
	return w
}

// end ends the watch and writes the trace. Ending twice is no error.
func (w *watch) end() error {
	w.stop()
	w.done.Wait()
	if w.failed != nil || w.file == "" {
		return w.failed
	}
	file := w.file
	w.file = ""
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return errors.Join(writeLines(file+".status.jsonl", w.moments), writeLines(file+".samples.jsonl", w.samples))
}

// writeLines writes a line of JSON for each item, if there are any.
func writeLines[T any](path string, items []T) error {
	if len(items) == 0 {
		return nil
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	lines := json.NewEncoder(out)
	for _, item := range items {
		err = errors.Join(err, lines.Encode(item))
	}
	return errors.Join(err, out.Close())
}

// between are the moments of a stretch of time.
func (w *watch) between(from, to time.Duration) (some []moment) {
	for _, m := range w.moments {
		if m.At >= from && m.At < to {
			some = append(some, m)
		}
	}
	return some
}

// medianLimit is NaN without moments.
func medianLimit(moments []moment) float64 {
	if len(moments) == 0 {
		return math.NaN()
	}
	var limits []float64
	for _, m := range moments {
		limits = append(limits, m.limit())
	}
	slices.Sort(limits)
	return limits[len(limits)/2] // not between two: one may be infinite
}

// settled is how long after a moment the limit is for the last time further than a quarter,
// or one, from what it is in the end: the median of the last third of the time until then. In
// an overload, without a limit in the end nothing has settled.
func (w *watch) settled(from, to time.Duration) (after time.Duration, final float64) {
	final = medianLimit(w.between(to-(to-from)/3, to))
	if math.IsInf(final, 1) {
		return to - from, final
	}
	for _, m := range w.between(from, to) {
		if !near(m.limit(), final) {
			after = m.At - from
		}
	}
	return after, final
}

func near(limit, final float64) bool {
	return limit == final || math.Abs(limit-final) <= max(1, final/4)
}

// limitText is a limit as figures have it in notes.
func limitText(v float64) string {
	if math.IsInf(v, 1) {
		return "none"
	}
	return fmt.Sprintf("%.0f", v)
}
