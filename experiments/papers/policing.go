// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/experiments/internal/evidence"
	"narthex/experiments/internal/peers"
	"narthex/internal/lab"
	"narthex/internal/load"
	"narthex/test/generator"
)

// policingExperiments are those in which somebody asks for more than the server can do and is limited.
var policingExperiments = []experiment{
	{"fig6", (*suite).fig6}, {"tab3", (*suite).tab3}, {"fig12", (*suite).fig12}, {"fig13", (*suite).fig13}, {"flood", (*suite).flood},
}

// What the server is.
const (
	serverWork      = 500 * time.Microsecond // of each request for a file
	serverProcesses = 50
	serverBacklog   = 511 // Apache's own
)

// Names of variants.
const (
	unprotected   = "nothing"
	synPolicing   = "Narthex, SYN policing"
	requestRules  = "Narthex, request rules"
	blockingRules = "Narthex, request rules that block"
	apacheModule  = "Apache mod_qos"
	nginxProxy    = "nginx limit_req"
	haproxyProxy  = "HAProxy stick table"
	nftTables     = "nftables limit"
	ipTables      = "iptables hashlimit"
)

// policed is a server and how it is protected. Both are in force within a variant.
type policed struct {
	*stage
	server peers.Apache // but for where it listens
	greedy *generator.Generator
}

// policed makes a stage for a server.
func (s *suite) policed(purpose string) (*policed, error) {
	st, err := s.stage(purpose)
	if err != nil {
		return nil, err
	}
	return &policed{stage: st, server: peers.Apache{
		Workers: serverProcesses, Backlog: serverBacklog, Work: serverWork, CPUs: st.ServerCPUs,
	}}, nil
}

// generate starts the stateless generator, which sends nothing yet.
func (p *policed) generate(ctx context.Context, from netip.Prefix, request string) (err error) {
	p.greedy, err = generator.Start(ctx, generator.Config{
		Client: p.rig.Client, Server: p.rig.Server, From: from, To: p.web(), Request: request,
		Rate: -1, CPU: p.ClientCPUs[0], Seed: 1,
	})
	return err
}

// close ends it all.
func (p *policed) close() error {
	var err error
	if p.greedy != nil {
		err = p.greedy.Stop()
	}
	return errors.Join(err, p.stage.close())
}

// protection is put in force before the server, or as part of it, until stop.
type protection func(ctx context.Context) (stop func() error, err error)

// variant is the server with a protection.
func (p *policed) variant(name string, start protection, measure func(context.Context, float64) (outcome, error)) variant {
	ours := strings.HasPrefix(name, "Narthex")
	return variant{name: name, ours: ours, start: start, measure: measure}
}

// alone is the server and nothing.
func (p *policed) alone(context.Context) (stop func() error, err error) {
	return p.started(p.serveAt(p.server, p.web()))
}

// serveAt starts the server where it is asked, or where a proxy asks it.
func (p *policed) serveAt(a peers.Apache, at netip.AddrPort) (*lab.Server, error) {
	a.Listen = []netip.AddrPort{at}
	return p.Serve(a.Start(p.rig.Server))
}

// started is how a variant starts that consists of servers, the one behind first.
func (p *policed) started(s *lab.Server, err error) (stop func() error, _ error) {
	if err != nil {
		return nil, err
	}
	return func() error {
		p.Workers = nil // all of them end: a variant has the stage for itself
		// Not by SIGTERM: processes of Apache that are told to end while their Lua works may hang.
		return errors.Join(s.Signal(syscall.SIGKILL), s.Close())
	}, nil
}

// webs is where a proxy listens.
func (p *policed) webs() []netip.AddrPort { return []netip.AddrPort{p.web()} }

// narthexWith is Narthex with a policy before the server.
func (p *policed) narthexWith(policy string) protection {
	return p.before(func(ctx context.Context) (func() error, error) {
		n, err := p.narthex(ctx, policy)
		if err != nil {
			return nil, err
		}
		return n.Stop, nil
	})
}

// firewall is a peer in the kernel.
type firewall interface {
	Apply(*lab.Namespace) (stop func() error, err error)
}

// walled is the server with a firewall before it.
func (p *policed) walled(f firewall) protection {
	return p.before(func(context.Context) (func() error, error) { return f.Apply(p.rig.Server) })
}

// before is the server with something in the kernel before it.
func (p *policed) before(start protection) protection {
	return func(ctx context.Context) (func() error, error) {
		end, err := p.alone(ctx)
		if err != nil {
			return nil, err
		}
		stop, err := start(ctx)
		if err != nil {
			return nil, errors.Join(err, end())
		}
		return func() error { return errors.Join(stop(), end()) }, nil
	}
}

// proxy is the server behind a proxy on the same core.
func (p *policed) proxy(start func() (*lab.Server, error)) protection {
	return func(context.Context) (func() error, error) {
		end, err := p.started(p.serveAt(p.server, p.behind()))
		if err != nil {
			return nil, err
		}
		stop, err := p.started(p.Serve(goFirst(start())))
		if err != nil {
			return nil, errors.Join(err, end())
		}
		return func() error { return errors.Join(stop(), end()) }, nil
	}
}

// capacity is what the server does for its preferred clients when nobody else asks, in requests/s.
func (p *policed) capacity(ctx context.Context, clients bench.Starter) (rate float64, err error) {
	stop, err := p.alone(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	s, err := p.once(ctx, clients)
	if err != nil {
		return 0, err
	}
	if rate = s.Reports[0].Rate(); rate == 0 {
		return 0, errors.New("the server answers nobody")
	}
	p.Progress("  capacity %.0f/s, %.0f µs of the server's core each", rate, s.Work.Seconds()*1e6/float64(s.Reports[0].Outcomes[load.OK]))
	return rate, nil
}

// offered is what the generator did while something was measured.
type offered struct {
	generator.Counts
	sample *bench.Sample
}

// offer has the generator send at a rate beside clients, and measures. No rate: nothing is sent.
func (p *policed) offer(ctx context.Context, rate float64, settle, length time.Duration, clients ...bench.Starter) (o offered, err error) {
	c, err := bench.Gather(ctx, clients...)
	if err != nil {
		return o, err
	}
	defer c.End()
	defer p.greedy.SetRate(-1)
	if rate > 0 {
		p.greedy.SetRate(int(math.Round(rate)))
	}
	if err := bench.Sleep(ctx, settle); err != nil {
		return o, err
	}
	before, err := p.greedy.Counts()
	if err != nil {
		return o, err
	}
	if o.sample, err = p.Measure(ctx, c, 0, length); err != nil {
		return o, err
	}
	after, err := p.greedy.Counts()
	o.Counts = after.Minus(before)
	return o, err
}

// recovery is what a server gets to have done with what was offered before.
const recovery = time.Second

// offerAfter is offer, right after the same clients have been measured alone: what they keep is of
// that. It says why the measurement alone says nothing, if so.
func (p *policed) offerAfter(ctx context.Context, c check, rate float64, settle time.Duration, clients ...bench.Starter) (alone *bench.Sample, o offered, invalid string, err error) {
	if alone, err = p.Once(ctx, recovery, p.length, clients...); err != nil {
		return nil, o, "", err
	}
	if invalid = c.invalid(alone); alone.Answered() == 0 {
		invalid = joined(invalid, "nobody was answered before")
	}
	o, err = p.offer(ctx, rate, settle, p.length, clients...)
	return alone, o, invalid, err
}

// rate is how many SYNs reached the server's device, per second.
func (o offered) rate() float64 { return float64(o.SYNs-o.Lost) / o.sample.Took.Seconds() }

// short says how much less was offered than asked for, if that is too much.
func (o offered) short(asked float64) string {
	if asked > 0 && o.rate() < 0.95*asked {
		return fmt.Sprintf("%.0f connections/s were offered in place of %.0f", o.rate(), asked)
	}
	return ""
}

// times divides each sample by a number.
func divided(samples []float64, by float64) (all []float64) {
	for _, v := range samples {
		all = append(all, v/by)
	}
	return all
}

// cell has samples.
func cell(samples []float64) evidence.Cell { return evidence.Cell{Samples: samples} }

// rounded is a number of two digits, for a load that has a name.
func rounded(x float64) float64 { return twoDigits(x, math.Round) }

// roundedUp is the same, no less than x.
func roundedUp(x float64) float64 { return twoDigits(x, math.Ceil) }

func twoDigits(x float64, round func(float64) float64) float64 {
	if x <= 0 {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(x))-1)
	return round(x/unit) * unit
}
