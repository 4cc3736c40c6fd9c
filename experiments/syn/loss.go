// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"narthex/internal/load"
	"narthex/internal/testnet"
)

// lossRate is the rate of connections during the reloads, each with a request.
const lossRate = 3000

// loss reloads again and again under load. A client waits for its connection no longer
// than it takes until its SYN is repeated, so that one lost SYN is one lost connection.
func (b *bench) loss(ctx context.Context) (figures []figure, err error) {
	lab, err := b.lab("loss", 8)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	if _, err := b.nginx(lab); err != nil {
		return nil, err
	}
	policies, err := twoPolicies(lab)
	if err != nil {
		return nil, err
	}
	n, err := b.start(ctx, lab.Server, policies[0])
	if err != nil {
		return nil, err
	}
	overflowsBefore, err := listenDrops(lab.Server)
	if err != nil {
		return nil, err
	}
	reloads := pick(b, 100, 20)
	took, report, err := b.reloadUnderLoad(ctx, lab, n, policies, reloads)
	if err != nil {
		return nil, err
	}
	overflows, err := listenDrops(lab.Server)
	if err != nil {
		return nil, err
	}
	return judgeLoss(reloads, took, report, overflows-overflowsBefore), nil
}

// reloadUnderLoad returns how long the reloads took in seconds, and what became of the
// connections meanwhile.
func (b *bench) reloadUnderLoad(ctx context.Context, lab *testnet.Lab, n *narthex, policies [2]string, reloads int) ([]float64, *load.Report, error) {
	loading, end := context.WithCancel(ctx)
	defer end()
	client := b.client(lab, 0, web(lab), load.MaxDuration)
	client.Sources, client.Path, client.ConnectTimeout = lab.ClientsV4, testnet.NginxFile, load.OneSYN
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
		d, err := n.swap(ctx, policies[(i+1)%2])
		if err != nil {
			return nil, nil, err
		}
		took = append(took, d.Seconds())
		if (i+1)%20 == 0 {
			b.progress("  %d reloads", i+1)
		}
	}
	// Long enough for the last connections to fail, if they are to.
	if err := sleep(ctx, 2*load.OneSYN); err != nil {
		return nil, nil, err
	}
	end()
	report, err := run.Wait()
	return took, report, err
}

// judgeLoss counts what was lost. It is no figure if the server or the clients could not
// keep up by themselves.
func judgeLoss(reloads int, took []float64, r *load.Report, overflows uint64) []figure {
	// What was under way when the load ended has not been lost.
	lost := r.Begun - r.Outcomes[load.OK] - r.Outcomes[load.Unfinished]
	losses := figure{
		What:   fmt.Sprintf("connections lost during %d reloads", reloads),
		Wanted: always(0, 0),
		Note:   fmt.Sprintf("%s in %.1f s; slowest answer %v", outcomes(r), r.Elapsed.Seconds(), r.Quantile(1)),
	}
	switch {
	case overflows > 0:
		losses.Note = fmt.Sprintf("invalid: the accept queue overflowed %d times; %s", overflows, losses.Note)
	case r.Outcomes[load.Failed]+r.Outcomes[load.Unsent] > 0:
		losses.Note = "invalid: the clients ran out of ports or connections; " + losses.Note
	default:
		losses.Samples = []float64{float64(lost)}
	}
	return []figure{
		losses,
		{What: "connections meanwhile", Unit: "/s", Samples: []float64{float64(r.Begun) / r.Elapsed.Seconds()}, Wanted: atLeast(0.99 * lossRate)},
		{What: "reload under load", Unit: "s", Samples: took},
	}
}

// listenDrops is how many SYNs and connections the namespace's listeners had no room for.
func listenDrops(ns *testnet.Namespace) (sum uint64, err error) {
	err = ns.Do(func() error {
		// Not /proc/net, which is the main thread's.
		text, err := os.ReadFile("/proc/thread-self/net/netstat")
		if err != nil {
			return err
		}
		for _, name := range []string{"ListenOverflows", "ListenDrops", "TCPReqQFullDrop", "TCPReqQFullDoCookies"} {
			v, err := tcpExt(string(text), name)
			if err != nil {
				return err
			}
			sum += v
		}
		return nil
	})
	return sum, err
}

// tcpExt finds a counter in the text of /proc/net/netstat, where a line of names precedes
// one of values.
func tcpExt(text, name string) (uint64, error) {
	var names []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "TcpExt:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		for i := 1; i < min(len(names), len(fields)); i++ {
			if names[i] == name {
				return strconv.ParseUint(fields[i], 10, 64)
			}
		}
	}
	return 0, fmt.Errorf("netstat: no counter %q", name)
}
