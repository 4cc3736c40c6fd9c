// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/experiments/internal/evidence"
	"narthex/experiments/internal/peers"
	"narthex/internal/lab"
	"narthex/internal/load"
)

// Figure 6 has the rates that it had then.
const (
	burstLimit   = 50  // greedy connections/s that are accepted
	burstSize    = 65  // that come back to back
	burstOffered = 130 // greedy connections/s: bursts come twice a second
	burstClients = 40  // preferred clients

	// Windows begin midway between two bursts and have eight: as many as their length is worth. A burst
	// more at an edge would be one that the bucket's rate does not account for.
	burstSettle = 1250 * time.Millisecond
	burstLength = 4 * time.Second
)

// burstScript takes about as long as the paper's dynamic page, of which its server did 62 a second.
const burstScript = `#!/usr/bin/perl
use Time::HiRes qw(clock_gettime CLOCK_PROCESS_CPUTIME_ID);
1 while clock_gettime(CLOCK_PROCESS_CPUTIME_ID) < 0.011;
my $body = "narthex\n" x 2048;
print "Content-Type: text/plain\r\nContent-Length: ", length $body, "\r\n\r\n", $body;
`

// What figure 6 is about, for each size of the bucket.
const (
	accepted  = "greedy accepted/s"
	unharmed  = "preferred/s"
	bucketMin = 5.0
	bucketMax = 50.0
)

// fig6 is what the size of a bucket does when greedy clients come in bursts.
func (s *suite) fig6(ctx context.Context) (r *evidence.Result, err error) {
	p, err := s.policed("fig6")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	p.server.CGI = burstScript
	capacity, err := p.capacity(ctx, p.burstPreferred())
	if err != nil {
		return nil, err
	}
	variants := p.buckets()
	got, err := s.sweep(ctx, s.thin(bucketMin, 10, 20, 35, bucketMax), variants...)
	if err != nil {
		return nil, err
	}
	return fig6Result(got, variants, capacity), nil
}

func (p *policed) burstPreferred() load.Closed {
	return load.Closed{Client: p.from(p.preferred, peers.File8K), Clients: burstClients}
}

// buckets are the variants of figure 6: who limits the greedy clients' connections.
func (p *policed) buckets() []variant {
	behind := func(wall func(burst int) firewall) func(context.Context, float64) (outcome, error) {
		return func(ctx context.Context, x float64) (o outcome, err error) {
			stop, err := wall(int(x)).Apply(p.rig.Server)
			if err != nil {
				return o, err
			}
			defer func() { err = errors.Join(err, stop()) }()
			return p.bursts(ctx)
		}
	}
	policy := func(burst float64) string {
		return fmt.Sprintf("version: 1\nservices: [{name: web, listen: \"*:80\", protocol: tcp}]\n"+
			"connections: [{name: greedy, from: %s, rate: %d/s, burst: %.0f}]\n", middleNet, burstLimit, burst)
	}
	var n *bench.Narthex
	return []variant{
		p.variant(synPolicing, p.before(func(ctx context.Context) (func() error, error) {
			var err error
			if n, err = p.narthex(ctx, policy(bucketMin)); err != nil {
				return nil, err
			}
			return n.Stop, nil
		}), func(ctx context.Context, x float64) (outcome, error) {
			if err := p.swap(ctx, n, policy(x)); err != nil {
				return outcome{}, err
			}
			return p.bursts(ctx)
		}),
		p.variant(nftTables, p.alone, behind(func(burst int) firewall {
			return peers.NFTables{Port: 80, From: middleNet, Rate: burstLimit, Burst: burst, Device: lab.Dev}
		})),
		p.variant(ipTables, p.alone, behind(func(burst int) firewall {
			return peers.IPTables{Port: 80, From: middleNet, Rate: burstLimit, Burst: burst}
		})),
	}
}

// swap puts another policy in force.
func (p *policed) swap(ctx context.Context, n *bench.Narthex, policy string) error {
	path, err := bench.WritePolicy(p.rig.Server, policy)
	if err != nil {
		return err
	}
	_, err = n.Swap(ctx, path)
	return err
}

// bursts measures preferred clients beside greedy ones that come in bursts.
func (p *policed) bursts(ctx context.Context) (o outcome, err error) {
	c, err := bench.Gather(ctx, p.burstPreferred(), load.Open{Client: p.from(p.middle, peers.Dynamic), Rate: burstOffered, Burst: burstSize})
	if err != nil {
		return o, err
	}
	defer c.End()
	s, err := p.Measure(ctx, c, burstSettle, burstLength)
	if err != nil {
		return o, err
	}
	greedy := s.Reports[1]
	return outcome{
		values:  map[string]float64{accepted: float64(greedy.Connected) / greedy.Elapsed.Seconds(), unharmed: s.Reports[0].Rate()},
		invalid: check{overflows: true, generator: true}.invalid(s),
	}, nil
}

func fig6Result(got *swept, variants []variant, capacity float64) *evidence.Result {
	r := &evidence.Result{
		ID: "fig6", Title: "Size of the bucket: greedy connections accepted, and preferred throughput",
		Source: "Voigt et al., USENIX ATC 2001, figure 6",
		Then:   "As the burst grows from 5 to 50 at 50/s, greedy connections accepted rise from 36.6 to 47.7/s and preferred requests fall from 140 to 79/s.",
		Setup: fmt.Sprintf("Apache prefork with %d processes. %d preferred clients in a closed loop ask for 8 KB, which takes %v of the server's core besides what serving takes: %.0f/s alone. "+
			"Greedy clients ask for 16 KB that a CGI program (Perl) makes in 11 ms of CPU time and a little to begin, as the paper's took 16; they open %d connections back to back twice a second, whatever the answers. "+
			"They are limited to %d connections/s; the x axis is the burst. Windows of %v begin %v after the first of them, which takes what the bucket has at first.",
			serverProcesses, burstClients, serverWork, capacity, burstSize, burstLimit, burstLength, burstSettle),
		Repeated: got.repeated, Invalid: got.invalid,
		Notes: []string{"Rates and bursts are the paper's. The burst of greedy clients takes a few milliseconds to open here, in which a bucket hardly fills: " +
			"with a small one fewer pass than then. Who is dropped comes again after 1 s, 3 s and 7 s, as kernels do."},
	}
	greedy := evidence.Plot{Name: "fig6-greedy", Title: "Greedy connections accepted", X: evidence.Axis{Label: "burst size"}, Y: evidence.Axis{Label: "accepted connections/s"}}
	preferred := evidence.Plot{Title: "Preferred requests answered", X: greedy.X, Y: evidence.Axis{Label: "preferred requests/s"}}
	for _, v := range variants {
		greedy.Series = append(greedy.Series, got.series(v, accepted))
		preferred.Series = append(preferred.Series, got.series(v, unharmed))
	}
	r.Plots = []evidence.Plot{preferred, greedy}
	ends := func(what string) []float64 {
		return over(got.at(synPolicing, bucketMax, what), got.at(synPolicing, bucketMin, what))
	}
	r.Claims = []evidence.Claim{
		evidence.AtLeast(evidence.Shape, "greedy connections accepted with a burst of 50 / of 5 (then 1.30)", "", 1.3, ends(accepted)...),
		evidence.AtMost(evidence.Shape, "preferred throughput with a burst of 50 / of 5 (then 0.56)", "", 0.7, ends(unharmed)...),
		evidence.Between(evidence.Shape, "greedy connections accepted with a burst of 50, of the limit (then 0.95)", "", 0.85, 1.1,
			divided(got.at(synPolicing, bucketMax, accepted), burstLimit)...),
		evidence.AtMost(evidence.Shape, "greedy connections accepted with a burst of 5, of the limit (then 0.73)", "", 0.8,
			divided(got.at(synPolicing, bucketMin, accepted), burstLimit)...),
	}
	for _, peer := range variants {
		if !peer.ours {
			r.Ratios = append(r.Ratios, evidence.Ratio{What: "preferred throughput with a burst of 5", Peer: peer.name,
				Samples: over(got.at(synPolicing, bucketMin, unharmed), got.at(peer.name, bucketMin, unharmed))},
				evidence.Ratio{What: "preferred throughput with a burst of 50", Peer: peer.name,
					Samples: over(got.at(synPolicing, bucketMax, unharmed), got.at(peer.name, bucketMax, unharmed))})
		}
	}
	return r
}
