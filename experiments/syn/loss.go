// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab"
	"narthex/internal/load"
)

// lossRate is the rate of connections during the reloads, each with a request.
const lossRate = 3000

// loss reloads again and again under load. A client waits for its connection no longer
// than it takes until its SYN is repeated, so that one lost SYN is one lost connection.
func (b suite) loss(ctx context.Context) (figures []bench.Figure, err error) {
	rig, err := b.Lab("loss", 8)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rig.Close()) }()
	if _, err := b.Nginx(rig); err != nil {
		return nil, err
	}
	policies, err := twoPolicies(rig)
	if err != nil {
		return nil, err
	}
	n, err := b.Start(ctx, rig.Server, policies[0])
	if err != nil {
		return nil, err
	}
	overflowsBefore, err := bench.ListenDrops(rig.Server)
	if err != nil {
		return nil, err
	}
	reloads := pick(100, 20)
	took, report, err := b.reloadUnderLoad(ctx, rig, n, policies, reloads)
	if err != nil {
		return nil, err
	}
	overflows, err := bench.ListenDrops(rig.Server)
	if err != nil {
		return nil, err
	}
	return judgeLoss(reloads, took, report, overflows-overflowsBefore), nil
}

// reloadUnderLoad returns how long the reloads took in seconds, and what became of the
// connections meanwhile.
func (b suite) reloadUnderLoad(ctx context.Context, rig *lab.Lab, n *bench.Narthex, policies [2]string, reloads int) ([]float64, *load.Report, error) {
	loading, end := context.WithCancel(ctx)
	defer end()
	client := b.client(rig, 0, load.MaxDuration)
	client.Sources, client.Path, client.ConnectTimeout = rig.ClientsV4, lab.NginxFile, load.OneSYN
	run, err := load.Open{Client: client, Rate: lossRate, MaxOpen: 16384}.Start(loading)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		end()
		<-run.Done()
	}()
	var took []float64
	for i := range reloads {
		d, err := n.Swap(ctx, policies[(i+1)%2])
		if err != nil {
			return nil, nil, err
		}
		took = append(took, d.Seconds())
		if (i+1)%20 == 0 {
			b.Progress("  %d reloads", i+1)
		}
	}
	// Long enough for the last connections to fail, if they are to.
	if err := bench.Sleep(ctx, 2*load.OneSYN); err != nil {
		return nil, nil, err
	}
	end()
	report, err := run.Wait()
	return took, report, err
}

// judgeLoss counts what was lost. It is no figure if the server or the clients could not
// keep up by themselves.
func judgeLoss(reloads int, took []float64, r *load.Report, overflows uint64) []bench.Figure {
	// What was under way when the load ended has not been lost.
	lost := r.Begun - r.Outcomes[load.OK] - r.Outcomes[load.Unfinished]
	losses := bench.Figure{
		What:   fmt.Sprintf("connections lost during %d reloads", reloads),
		Wanted: bench.Always(0, 0),
		Note:   fmt.Sprintf("%s in %.1f s; slowest answer %v", bench.Outcomes(r), r.Elapsed.Seconds(), r.Quantile(1)),
	}
	switch {
	case overflows > 0:
		losses.Note = fmt.Sprintf("invalid: the accept queue overflowed %d times; %s", overflows, losses.Note)
	case r.Outcomes[load.Failed]+r.Outcomes[load.Unsent] > 0:
		losses.Note = "invalid: the clients ran out of ports or connections; " + losses.Note
	default:
		losses.Samples = []float64{float64(lost)}
	}
	return []bench.Figure{
		losses,
		{What: "connections meanwhile", Unit: "/s", Samples: []float64{float64(r.Begun) / r.Elapsed.Seconds()}, Wanted: bench.AtLeast(0.99 * lossRate)},
		{What: "reload under load", Unit: "s", Samples: took},
	}
}
