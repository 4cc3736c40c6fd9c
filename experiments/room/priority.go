// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/internal/load"
)

const (
	goldCount   = 10
	bronzeCount = 100
	inService   = 2 // what the gate and HAProxy let in at once
)

// variant is what stands before the server.
type variant int

const (
	nothing variant = iota
	narthex
	haproxy
	haproxyReuse
	variants
)

// contest is gold and bronze clients that together want more than the server has to give.
type contest struct {
	*stage
	keepAlive bool
	room      room
	proxy     [variants]netip.AddrPort // HAProxy, where it takes part
}

// contest starts the server.
func (b suite) contest(purpose string, work time.Duration) (*contest, error) {
	st, err := b.stage(purpose)
	if err != nil {
		return nil, err
	}
	if _, err := st.origin(origin.Config{Work: work}); err != nil {
		return nil, errors.Join(err, st.close())
	}
	return &contest{stage: st, room: room{concurrency: inService}}, nil
}

// with measures both kinds of clients with something before the server.
func (c *contest) with(ctx context.Context, v variant) (s *bench.Sample, err error) {
	gold := load.Closed{Client: c.goldClients(), Clients: goldCount, KeepAlive: c.keepAlive}
	bronze := load.Closed{Client: c.bronzeClients(), Clients: bronzeCount, KeepAlive: c.keepAlive}
	switch v {
	case haproxy, haproxyReuse:
		gold.Target, bronze.Target = c.proxy[v], c.proxy[v]
	case narthex:
		n, err := c.narthex(ctx, c.room)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, n.Stop()) }()
	}
	s, err = c.Once(ctx, warmUp, length(), gold, bronze)
	if err != nil {
		return nil, err
	}
	name := [variants]string{"nothing", "narthex", "haproxy", "haproxy, connections used again"}[v]
	c.Progress("  %s: gold %s/s, median %s ms; bronze %s/s; gold: %s; bronze: %s; cores %.0f %%, %.0f %%", name,
		bench.Number(s.Reports[0].Rate()), bench.Number(bench.Milliseconds(s.Reports[0].Median())), bench.Number(s.Reports[1].Rate()),
		bench.Outcomes(s.Reports[0]), bench.Outcomes(s.Reports[1]), 100*s.ServerBusy, 100*s.ClientBusy)
	return s, nil
}

// round measures some variants.
func (c *contest) round(ctx context.Context, order []variant) (s [variants]*bench.Sample, err error) {
	for _, v := range order {
		if s[v], err = c.with(ctx, v); err != nil {
			return s, err
		}
	}
	return s, nil
}

// priority: gold clients get what the server can do, before bronze ones get anything.
func (b suite) priority(ctx context.Context) ([]bench.Figure, error) {
	return b.overload(ctx, "priority", false)
}

// keepAlive is the same with clients that keep their connections.
func (b suite) keepAlive(ctx context.Context) ([]bench.Figure, error) {
	return b.overload(ctx, "keepalive", true)
}

// overload compares gold clients with what is possible: as many as there are share what the
// server can do, which is what it does for all clients without a gate.
func (b suite) overload(ctx context.Context, purpose string, keepAlive bool) (figures []bench.Figure, err error) {
	c, err := b.contest(purpose, 2*time.Millisecond)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	c.keepAlive = keepAlive
	t := bench.NewTable(*runs,
		bench.Figure{What: "gold requests/s / the server's capacity", Wanted: bench.AtLeast(0.95)},
		bench.Figure{What: "gold median / the ideal, 10 / capacity", Wanted: bench.AtMost(1.1)},
		bench.Figure{What: "all requests/s, with Narthex / without", Wanted: bench.AtLeast(0.97)},
		bench.Figure{What: "gold requests that failed", Wanted: bench.Always(0, 0)},
		bench.Figure{What: "capacity: all requests/s without", Unit: "/s"},
		bench.Figure{What: "gold requests/s without", Unit: "/s"},
		bench.Figure{What: "gold requests/s with", Unit: "/s"},
		bench.Figure{What: "gold median without", Unit: "ms"},
		bench.Figure{What: "gold median with", Unit: "ms"},
	)
	for t.Next() {
		s, err := c.round(ctx, bench.Turned(t, nothing, narthex))
		if err != nil {
			return t.Done(), err
		}
		if t.Refuse(invalid(s[nothing], true), invalid(s[narthex], true)) {
			continue
		}
		without, with := s[nothing].Reports[0], s[narthex].Reports[0]
		capacity := s[nothing].Rate()
		t.Add(with.Rate()/capacity, with.Median().Seconds()*capacity/goldCount, s[narthex].Rate()/capacity, float64(bench.Failed(with)),
			capacity, without.Rate(), with.Rate(), bench.Milliseconds(without.Median()), bench.Milliseconds(with.Median()))
	}
	return t.Done(), nil
}

// haproxy: the same as priority with little work per request, so that what the gate itself
// costs counts, beside HAProxy on the server's core, told of the same priorities. The server
// behind it has a connection for each request, as it has without; that is also what HAProxy
// does by default (http-reuse safe) for clients with one request per connection. Told to use
// connections again (http-reuse always) it spares the server their cost.
func (b suite) haproxy(ctx context.Context) (figures []bench.Figure, err error) {
	c, err := b.contest("haproxy", haproxyWork)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	for _, v := range []variant{haproxy, haproxyReuse} {
		if err := c.startProxy(v); err != nil {
			return nil, err
		}
	}
	t := bench.NewTable(*runs,
		bench.Figure{What: "gold requests/s, Narthex / HAProxy", Wanted: bench.AtLeast(1.5)},
		bench.Figure{What: "gold median, Narthex / HAProxy", Wanted: bench.AtMost(0.7)},
		bench.Figure{What: "gold requests/s, Narthex / HAProxy that uses connections again"},
		bench.Figure{What: "gold median, Narthex / HAProxy that uses connections again"},
		bench.Figure{What: "gold requests/s with nothing", Unit: "/s"},
		bench.Figure{What: "gold requests/s with Narthex", Unit: "/s"},
		bench.Figure{What: "gold requests/s with HAProxy", Unit: "/s"},
		bench.Figure{What: "gold requests/s with HAProxy, connections used again", Unit: "/s"},
		bench.Figure{What: "all requests/s with nothing", Unit: "/s"},
		bench.Figure{What: "all requests/s with Narthex", Unit: "/s"},
		bench.Figure{What: "all requests/s with HAProxy", Unit: "/s"},
		bench.Figure{What: "all requests/s with HAProxy, connections used again", Unit: "/s"},
		bench.Figure{What: "gold median with nothing", Unit: "ms"},
		bench.Figure{What: "gold median with Narthex", Unit: "ms"},
		bench.Figure{What: "gold median with HAProxy", Unit: "ms"},
		bench.Figure{What: "gold median with HAProxy, connections used again", Unit: "ms"},
	)
	for t.Next() {
		s, err := c.round(ctx, bench.Turned(t, nothing, narthex, haproxy, haproxyReuse))
		if err != nil {
			return t.Done(), err
		}
		var why []string
		var gold, all, medians []float64
		for _, v := range s {
			why = append(why, invalid(v, true))
			gold, all = append(gold, v.Reports[0].Rate()), append(all, v.Rate())
			medians = append(medians, bench.Milliseconds(v.Reports[0].Median()))
		}
		if t.Refuse(why...) {
			continue
		}
		t.Add(slices.Concat([]float64{
			gold[narthex] / gold[haproxy], medians[narthex] / medians[haproxy],
			gold[narthex] / gold[haproxyReuse], medians[narthex] / medians[haproxyReuse],
		}, gold, all, medians)...)
	}
	return t.Done(), nil
}

// haproxyWork is what a request takes of the server beside HAProxy.
const haproxyWork = 100 * time.Microsecond

// startProxy starts a server with HAProxy before it.
func (c *contest) startProxy(v variant) error {
	behind := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), 8000+uint16(v))
	c.proxy[v] = netip.AddrPortFrom(c.rig.ServerV4, 8080+uint16(v))
	if _, err := c.Serve(origin.Start(c.rig.Server, origin.Config{
		Listen: []netip.AddrPort{behind}, Work: haproxyWork, Backlog: backlog, CPUs: c.ServerCPUs,
		NoKeepAlive: v == haproxy,
	})); err != nil {
		return err
	}
	_, err := c.Serve(c.rig.Server.StartHAProxy(lab.HAProxyConfig{
		Listen: []netip.AddrPort{c.proxy[v]}, Backlog: backlog, CPUs: c.ServerCPUs,
		Origin: behind, MaxConn: inService,
		Priorities: []lab.HAProxyPriority{{From: netip.MustParsePrefix("10.77.1.0/24"), Priority: -100}},
	}))
	return err
}
