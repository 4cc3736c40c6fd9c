// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab"
)

// Packets of the clients that are lost.
var losses = []float64{0.001, 0.01, 0.05}

// lossClients are few enough that nobody waits.
const lossClients = 3

// loss: uploads over a line that loses packets on the way to the server.
func (b suite) loss(ctx context.Context) (figures []bench.Figure, err error) {
	for _, share := range losses {
		for _, chunked := range []bool{false, true} {
			if !strings.Contains(lossCase(share, chunked), *named) {
				continue
			}
			f, err := b.lossy(ctx, share, chunked)
			figures = append(figures, f...)
			if err != nil {
				return figures, err
			}
		}
	}
	return figures, nil
}

// lossCase is its name.
func lossCase(share float64, chunked bool) string {
	return fmt.Sprintf("%.1f %% lost, %s", 100*share, lossyUploads(chunked))
}

func lossyUploads(chunked bool) bodiesCase {
	return bodiesCase{upload{100_000, chunked, true}, lossClients, "100"}
}

func (b suite) lossy(ctx context.Context, share float64, chunked bool) (figures []bench.Figure, err error) {
	st, err := b.stage("loss")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.rig.Close()) }()
	// Segments are lost one by one, and not as many at once as the kernel makes one packet of.
	for _, o := range []lab.Offload{lab.TSO, lab.GSO} {
		if err := st.rig.Client.SetOffload(lab.Dev, o, false); err != nil {
			return nil, err
		}
	}
	// What a lost packet costs is up to the sender. Most systems have CUBIC, whatever this machine has.
	if err := st.rig.Client.Sysctl("ipv4/tcp_congestion_control", "cubic"); err != nil {
		return nil, err
	}
	if err := st.rig.Server.LosePackets(lab.Dev, share); err != nil {
		return nil, err
	}
	b.Progress(" %s", lossCase(share, chunked))
	figures, err = st.bodies(ctx, lossyUploads(chunked))
	for i := range figures[:min(1, len(figures))] {
		figures[i].What = lossCase(share, chunked) + ": with / without"
		figures[i].Wanted = bench.AtLeast(0.97)
	}
	return figures, err
}
