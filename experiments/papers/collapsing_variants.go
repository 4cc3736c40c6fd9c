// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"narthex/experiments/internal/bench"
	"narthex/experiments/internal/peers"
	"narthex/internal/testnet"
)

// collapseLimit is how many requests are in service at once where that is bounded.
const collapseLimit = 4

// Names of variants.
const (
	collapseFixed = "Narthex, concurrency 4"
	collapseAuto  = "Narthex, concurrency auto"
)

// at is a list of one address and port.
func at(addr netip.Addr, port uint16) []netip.AddrPort {
	return []netip.AddrPort{netip.AddrPortFrom(addr, port)}
}

// variants are what is between the server and its clients. Who is not gold is told by the network:
// limits of a rate let in as much of it as gold leaves, but for a little.
func (c *collapsing) variants() []variant {
	web, behind := c.web(), c.behind()
	others := peers.Class{From: greedyNet}
	left := int((0.95 - collapseGold) * c.capacity)
	rate := peers.RateLimit{Class: others, Rate: left, Burst: max(1, left/10)}
	few := peers.ConcurrencyLimit{Class: others, Requests: collapseLimit}
	gold := peers.Priority{Class: peers.Class{From: preferredNet}, Priority: -100}
	haproxy := peers.HAProxy{
		Listen: []netip.AddrPort{web}, Backlog: backlog, CPUs: c.ServerCPUs, Origin: behind,
		MaxConn: collapseLimit, Priorities: []peers.Priority{gold},
	}
	denying := haproxy
	denying.Deny = []peers.RateLimit{rate}
	nginx := peers.NginxLimit{Listen: []netip.AddrPort{web}, Backlog: backlog, CPUs: c.ServerCPUs, Origin: behind, Keepalive: collapseWorkers / 2}
	byRate, byNumber := nginx, nginx
	byRate.LimitReq = []peers.RateLimit{rate}
	byNumber.LimitConn = []peers.ConcurrencyLimit{few}
	bare := c.with(alone, c.direct(nil), nobody)
	bare.xs = append([]float64{0}, c.thin(collapseLoads...)...)
	return []variant{
		bare,
		c.ours(collapseFixed, fmt.Sprint(collapseLimit)),
		c.ours(collapseAuto, "auto"),
		c.proxied("HAProxy, maxconn and priority", haproxy.Start),
		c.proxied("HAProxy, and deny by rate", denying.Start),
		c.proxied("nginx, limit_req", byRate.Start),
		c.proxied("nginx, limit_conn", byNumber.Start),
		c.with("mod_qos, QS_EventRequestLimit", c.direct(&peers.QoS{Concurrency: []peers.ConcurrencyLimit{few}}), nobody),
		c.firewalled("nftables, limit rate", peers.NFTables{Port: web.Port(), From: greedyNet, Rate: left, Burst: rate.Burst, Device: testnet.Dev}.Apply),
		c.firewalled("iptables, hashlimit", peers.IPTables{Port: web.Port(), From: greedyNet, Rate: left, Burst: rate.Burst}.Apply),
	}
}

// direct starts the server without anything before it.
func (c *collapsing) direct(qos *peers.QoS) func() error {
	return func() error { return c.run(c.apache(c.web().Port(), qos)) }
}

// with is a variant with servers that are started anew for each point, and what is to be done
// before and after all of them.
func (c *collapsing) with(name string, servers func() error, begin func(context.Context) (end func() error, err error)) variant {
	return variant{name: name, measure: c.amid, start: func(ctx context.Context) (func() error, error) {
		c.start = servers
		// The server is to be there when Narthex comes, as it is for its users.
		if err := errors.Join(c.stop(), c.start()); err != nil {
			return nil, err
		}
		end, err := begin(ctx)
		if err != nil {
			return nil, errors.Join(err, c.stop())
		}
		return func() error { return errors.Join(end(), c.stop()) }, nil
	}}
}

// proxied is a proxy before the server.
func (c *collapsing) proxied(name string, proxy func(*testnet.Namespace) (*testnet.Server, error)) variant {
	return c.with(name, func() error {
		if err := c.run(c.apache(c.behind().Port(), nil)); err != nil {
			return err
		}
		return c.run(goFirst(proxy(c.lab.Server)))
	}, nobody)
}

// firewalled is the server behind a rule of a firewall.
func (c *collapsing) firewalled(name string, apply func(*testnet.Namespace) (func() error, error)) variant {
	return c.with(name, c.direct(nil), func(context.Context) (func() error, error) { return apply(c.lab.Server) })
}

// ours is Narthex with a limit. One that sets itself goes by how busy the core is, as the kernel
// counts it: nothing may soak up its idle time then.
func (c *collapsing) ours(name, concurrency string) variant {
	policy := fmt.Sprintf(`version: 1
services:
  - {name: web, listen: "%s", xdp: off, concurrency: %s, queue: {size: 1024, max_wait: 2s}}
classes:
  - {name: gold, priority: 1}
  - {name: others, priority: 2}
connections:
  - {name: gold, from: %s, class: gold}
`, c.web(), concurrency, preferredNet)
	v := c.with(name, c.direct(nil), func(ctx context.Context) (end func() error, err error) {
		if concurrency == "auto" {
			err := c.Core.Close()
			if c.Core = nil; err != nil {
				return nil, err
			}
		}
		c.daemon, err = c.narthex(ctx, policy)
		return c.withdraw, err
	})
	v.ours, v.xs = true, c.thin(collapseLoads...)
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
