// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/experiments/internal/peers"
	"narthex/internal/lab"
)

// collapseLimit is how many requests are in service at once where that is bounded.
const collapseLimit = 4

// Names of variants.
const (
	collapseFixed    = "Narthex, concurrency 4"
	collapseAuto     = "Narthex, concurrency auto"
	collapseNFTables = "nftables, limit rate"
	collapseIPTables = "iptables, hashlimit"
)

// droppers are the peers that drop SYNs, as Narthex's SYN policing does, and tell their senders nothing.
var droppers = []string{collapseNFTables, collapseIPTables}

// at is a list of one address and port.
func at(addr netip.Addr, port uint16) []netip.AddrPort {
	return []netip.AddrPort{netip.AddrPortFrom(addr, port)}
}

// variants are what is between the server and its clients. Who is not gold is told by the network:
// limits of a rate let in as much of it as gold leaves, but for a little, of what the server could do
// when it was measured last.
func (c *collapsing) variants() []variant {
	others := peers.Class{From: greedyNet}
	few := peers.ConcurrencyLimit{Class: others, Requests: collapseLimit}
	gold := peers.Priority{Class: peers.Class{From: preferredNet}, Priority: -100}
	rate := func() []peers.RateLimit { return []peers.RateLimit{{Class: others, Rate: c.left(), Burst: c.burst()}} }
	haproxy := peers.HAProxy{
		Listen: []netip.AddrPort{c.web()}, Backlog: backlog, CPUs: c.ServerCPUs, Origin: c.behind(),
		MaxConn: collapseLimit, Priorities: []peers.Priority{gold},
	}
	nginx := peers.NginxLimit{Listen: []netip.AddrPort{c.web()}, Backlog: backlog, CPUs: c.ServerCPUs, Origin: c.behind(), Keepalive: collapseWorkers / 2}
	port := c.web().Port()
	return []variant{
		c.with(alone, c.web(), c.direct(nil), nobody),
		c.bounded(collapseFixed, fmt.Sprint(collapseLimit), collapseSettle),
		c.bounded(collapseAuto, "auto", autoSettle),
		c.synPoliced(),
		c.firewalled(collapseNFTables, func() firewall {
			return peers.NFTables{Port: port, From: greedyNet, Rate: c.left(), Burst: c.burst(), Device: lab.Dev}
		}),
		c.firewalled(collapseIPTables, func() firewall {
			return peers.IPTables{Port: port, From: greedyNet, Rate: c.left(), Burst: c.burst()}
		}),
		c.proxied("HAProxy, maxconn and priority", func() peer { return haproxy }),
		c.proxied("HAProxy, and deny by rate", func() peer {
			denying := haproxy
			denying.Deny = rate()
			return denying
		}),
		c.proxied("nginx, limit_req", func() peer {
			byRate := nginx
			byRate.LimitReq = rate()
			return byRate
		}),
		c.proxied("nginx, limit_conn", func() peer {
			byNumber := nginx
			byNumber.LimitConn = []peers.ConcurrencyLimit{few}
			return byNumber
		}),
		c.with("mod_qos, QS_EventRequestLimit", c.web(), c.direct(&peers.QoS{Concurrency: []peers.ConcurrencyLimit{few}}), nobody),
	}
}

// left is the requests/s that gold leaves, but for a little, and burst is what may come of them at once.
func (c *collapsing) left() int  { return int((0.95 - collapseGold) * c.rate) }
func (c *collapsing) burst() int { return max(1, c.left()/10) }

// direct starts the server without anything before it.
func (c *collapsing) direct(qos *peers.QoS) func() error {
	return func() error { return c.run(c.apache(c.web().Port(), qos)) }
}

// with is a variant with servers that are started anew for each point, of which one at an address is the
// server itself, and what is to be done before and after. What the server does by itself is measured before.
func (c *collapsing) with(name string, server netip.AddrPort, servers func() error, begin func(context.Context) (end func() error, err error)) variant {
	v := variant{name: name, xs: collapsePeers}
	v.measure = func(ctx context.Context, times float64) (outcome, error) { return c.amid(ctx, times, collapseSettle) }
	v.start = func(ctx context.Context) (stop func() error, err error) {
		c.start = servers
		// The server is to be there when Narthex comes, as it is for its users.
		err = c.restart(ctx)
		if err == nil {
			err = c.atRest(ctx, server)
		}
		if err != nil {
			return nil, errors.Join(err, c.stop())
		}
		end, err := begin(ctx)
		if err != nil {
			return nil, errors.Join(err, c.stop())
		}
		return func() error { return errors.Join(end(), c.stop()) }, nil
	}
	return v
}

// proxied is a proxy before the server.
func (c *collapsing) proxied(name string, proxy func() peer) variant {
	return c.with(name, c.behind(), func() error {
		if err := c.run(c.apache(c.behind().Port(), nil)); err != nil {
			return err
		}
		return c.run(goFirst(proxy().Start(c.rig.Server)))
	}, nobody)
}

// firewalled is the server behind a rule of a firewall.
func (c *collapsing) firewalled(name string, wall func() firewall) variant {
	return c.with(name, c.web(), c.direct(nil), func(context.Context) (func() error, error) { return wall().Apply(c.rig.Server) })
}

// ours is Narthex with a policy.
func (c *collapsing) ours(name string, policy func() string) variant {
	v := c.with(name, c.web(), c.direct(nil), func(ctx context.Context) (end func() error, err error) {
		c.daemon, err = c.narthex(ctx, policy())
		return c.withdraw, err
	})
	v.ours, v.xs = true, collapseLoads
	return v
}

// synPoliced is Narthex with a rate for the SYNs of others, and nobody who waits.
func (c *collapsing) synPoliced() variant {
	return c.ours(synPolicing, func() string {
		return fmt.Sprintf("version: 1\nservices: [{name: web, listen: %q, protocol: tcp}]\n"+
			"connections: [{name: others, from: %s, rate: %d/s, burst: %d}]\n", c.web(), greedyNet, c.left(), c.burst())
	})
}

// bounded is Narthex with a limit of how many requests are in service. One that sets itself goes by how
// busy the core is, as the kernel counts it: nothing may soak up its idle time then.
func (c *collapsing) bounded(name, concurrency string, settle time.Duration) variant {
	policy := fmt.Sprintf(`version: 1
services:
  - {name: web, listen: "%s", xdp: off, concurrency: %s, queue: {size: 1024, max_wait: 2s}}
classes:
  - {name: gold, priority: 1}
  - {name: others, priority: 2}
connections:
  - {name: gold, from: %s, class: gold}
`, c.web(), concurrency, preferredNet)
	v := c.ours(name, func() string { return policy })
	v.measure = func(ctx context.Context, times float64) (outcome, error) { return c.amid(ctx, times, settle) }
	if concurrency != "auto" {
		return v
	}
	start := v.start
	v.start = func(ctx context.Context) (stop func() error, err error) {
		if stop, err = start(ctx); err != nil {
			return nil, err
		}
		if err = c.Core.Close(); err != nil {
			return nil, errors.Join(err, stop())
		}
		c.Core = nil
		return stop, nil
	}
	return v
}

// withdraw ends Narthex and has the server's core measured again.
func (c *collapsing) withdraw() error {
	err := c.daemon.Stop()
	if c.daemon = nil; c.Core == nil {
		core, failed := bench.NewCore(c.ServerCPUs[0])
		c.Core, err = core, errors.Join(err, failed)
	}
	return err
}
