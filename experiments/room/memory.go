// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"narthex/experiments/internal/bench"
	"narthex/internal/datapath"
)

// memory: what the maps take, beside what the slots account for: each its packet and 64 bytes,
// and 32 MiB for everything else.
func (b suite) memory(ctx context.Context) (figures []bench.Figure, err error) {
	st, err := b.stage("memory")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	for _, c := range []struct {
		what        string
		slots, size int
		flags       []string
	}{
		{"maps by default", datapath.DefaultSlots, datapath.DefaultSlotSize, nil},
		{"maps with --slots 32768 --slot-size 16064", 32768, 16064, []string{"--slots", "32768", "--slot-size", strconv.Itoa(16064)}},
	} {
		mib, err := st.maps(ctx, c.flags)
		if err != nil {
			return figures, fmt.Errorf("%s: %w", c.what, err)
		}
		figures = append(figures, bench.Figure{
			What: c.what, Unit: "MiB", Samples: []float64{mib},
			Wanted: bench.AtMost(float64(c.slots)*float64(c.size+64)/(1<<20) + 32),
		})
	}
	return figures, nil
}

// maps returns what the maps of a waiting room take, in MiB.
func (st *stage) maps(ctx context.Context, flags []string) (mib float64, err error) {
	n, err := st.narthex(ctx, room{concurrency: inService}, flags...)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, n.Stop()) }()
	return bench.MapMemory(n.Instance)
}
