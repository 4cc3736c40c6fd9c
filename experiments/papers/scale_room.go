// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/internal/load"
)

// Others wait while gold requests, of which one at a time is let in, are held and released. What
// is to be measured is a hold and a release, and not what the kernels do meanwhile about
// connections that do not answer:
//
//   - The clients would send their held requests again and again. On the route that they use
//     they wait for long before they do.
//   - The server's kernel sends the SYN-ACK of each waiting connection again after 1 s, 3 s and
//     7 s. Measured is between the last two.
//   - A kernel gives connections up once there are more than half the backlog of them.
const (
	waitBacklog = 200_000
	waitOpen    = 2800 * time.Millisecond // time for all to connect
	waitQuiet   = 3300 * time.Millisecond // then until no SYN-ACK is sent again, 3 s after the last SYN
	waitLength  = 800 * time.Millisecond  // before the first one is, 7 s after the first SYN
	waitGold    = 8
)

// scaleWaiting: requests that wait.
func (s *suite) scaleWaiting(ctx context.Context) (g *growth, err error) {
	st, err := s.stage("scale")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	if err := st.prepareWaiting(); err != nil {
		return nil, err
	}
	g = &growth{name: "waiting", title: "Requests that wait", axis: "waiting requests", xs: scaleWaiting}
	g.variants = []variant{{name: "Narthex", ours: true, xs: scaleWaiting, start: nobody, measure: st.amidWaiting}}
	return s.grow(ctx, g)
}

func (st *stage) prepareWaiting() error {
	if err := st.rig.Server.Sysctl("core/somaxconn", fmt.Sprint(waitBacklog)); err != nil {
		return err
	}
	if err := st.rig.Server.Sysctl("ipv4/tcp_max_syn_backlog", fmt.Sprint(waitBacklog)); err != nil {
		return err
	}
	cmd := st.rig.Client.Command("ip", "route", "add", st.rig.ServerV4.String(), "dev", lab.Dev, "rto_min", "30s")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("have clients wait before they send again: %w: %s", err, out)
	}
	_, err := st.Serve(origin.Start(st.rig.Server, origin.Config{Listen: at(st.rig.ServerV4, st.web().Port()), CPUs: st.ServerCPUs, Backlog: waitBacklog}))
	return err
}

// amidWaiting measures gold clients while so many other requests wait: one of those occupies the
// server, and no more may.
func (st *stage) amidWaiting(ctx context.Context, waiting float64) (o outcome, err error) {
	n, err := st.narthex(ctx, fmt.Sprintf(`version: 1
services:
  - {name: web, listen: "%s", xdp: off, concurrency: 2, queue: {size: 60000, max_wait: 1m}}
classes:
  - {name: gold, priority: 1}
  - {name: others, priority: 2, max: 1}
connections:
  - {name: gold, from: %s, class: gold}
`, st.web(), preferredNet), "--slots", "65536", "--flows", "131072")
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, n.Stop()) }()
	programs, err := bench.OpenPrograms(n.Instance)
	if err != nil {
		return o, err
	}
	defer programs.Close()
	blocker := st.from(st.middle, "/wait?for=nobody")
	blocker.Timeout = time.Minute
	blocked, err := bench.Gather(ctx, load.Closed{Client: blocker, Clients: 1})
	if err != nil {
		return o, err
	}
	defer blocked.End()
	c, err := bench.Gather(ctx, load.Closed{Client: st.from(st.preferred, "/"), Clients: waitGold})
	if err != nil {
		return o, err
	}
	defer c.End()
	if err := bench.Sleep(ctx, 100*time.Millisecond); err != nil {
		return o, err
	}
	end, err := st.Wait(st.rig, st.middle, int(waiting), waitOpen)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, end()) }()
	o, err = st.perRequest(ctx, c, programs, waitOpen+waitQuiet, waitLength)
	if err != nil {
		return o, err
	}
	status, err := n.Status(ctx)
	if err != nil {
		return o, err
	}
	if got := status.Services[0].Waiting; o.invalid == "" && float64(got) < 0.95*waiting {
		o.invalid = fmt.Sprintf("%d of %.0f wait", got, waiting)
	}
	return o, nil
}

// scaleClasses: classes, in all of which somebody waits.
func (s *suite) scaleClasses(ctx context.Context) (g *growth, err error) {
	st, err := s.stage("scale")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	if _, err := st.Serve(origin.Start(st.rig.Server, origin.Config{
		Listen: at(st.rig.ServerV4, st.web().Port()), CPUs: st.ServerCPUs, Backlog: backlog,
	})); err != nil {
		return nil, err
	}
	sources := append(st.preferred[:addressesEach:addressesEach], st.middle...)
	policy := func(x float64) string {
		var b strings.Builder
		fmt.Fprintf(&b, "version: 1\nservices:\n  - {name: web, listen: \"%s\", xdp: off, concurrency: 2}\nclasses:\n", st.web())
		for i := range int(x) {
			// With a share for each, all are served.
			fmt.Fprintf(&b, "  - {name: c%d, priority: %d, reserve: %d%%}\n", i, i+1, 100/int(x))
		}
		fmt.Fprint(&b, "connections:\n")
		for i, source := range sources {
			fmt.Fprintf(&b, "  - {name: r%d, from: %s, class: c%d}\n", i, source, i%int(x))
		}
		return b.String()
	}
	g = &growth{name: "classes", title: "Classes", axis: "classes", xs: scaleClasses}
	g.variants = []variant{st.programs("Narthex", scaleClasses, policy, load.Closed{Client: st.from(sources, "/"), Clients: 2 * len(sources)})}
	return s.grow(ctx, g)
}
