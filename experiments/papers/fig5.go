// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"narthex/experiments/internal/evidence"
	"narthex/experiments/internal/peers"
	"narthex/internal/lab"
)

const fig5Clients = 250

// fig5: SYN policing of many clients for the sake of one.
func (s *suite) fig5(ctx context.Context) (r *evidence.Result, err error) {
	sh, err := s.newShop(ctx, "fig5", fig5Clients, peers.File8K, check{overflows: true, generator: true, machine: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sh.close()) }()
	// 300/s then was more than the server could do besides, by what the preferred client got.
	sh.limitTo(1.1, 250./300, 200./300, 100./300, 25./300)
	variants := append(sh.unlimited(),
		sh.policed("Narthex, SYN policing", sh.fig5Policy),
		sh.filtered("nftables", func(rate float64) (func() error, error) {
			return peers.NFTables{
				Port: sh.web().Port(), From: middleNet, Rate: int(rate), Burst: sh.burst(rate), Device: lab.Dev,
			}.Apply(sh.rig.Server)
		}),
		sh.filtered("iptables hashlimit", func(rate float64) (func() error, error) {
			return peers.IPTables{Port: sh.web().Port(), From: middleNet, Rate: int(rate), Burst: sh.burst(rate)}.Apply(sh.rig.Server)
		}),
		sh.fronted("nginx limit_req", func(rate float64) (*lab.Server, error) {
			return goFirst(peers.NginxLimit{
				Listen: []netip.AddrPort{sh.behind()}, Backlog: backlog, CPUs: sh.ServerCPUs, Origin: sh.web(),
				LimitReq: []peers.RateLimit{sh.fig5Limit(rate)},
			}.Start(sh.rig.Server))
		}),
		sh.fronted("HAProxy stick-table", func(rate float64) (*lab.Server, error) {
			return goFirst(peers.HAProxy{
				Listen: []netip.AddrPort{sh.behind()}, Backlog: backlog, CPUs: sh.ServerCPUs, Origin: sh.web(),
				MaxConn: shopProcesses, Deny: []peers.RateLimit{sh.fig5Limit(rate)},
			}.Start(sh.rig.Server))
		}),
		sh.fronted("Apache mod_qos", func(rate float64) (*lab.Server, error) {
			server := sh.apache(sh.behind())
			server.QoS = &peers.QoS{Deny: []peers.RateLimit{sh.fig5Limit(rate)}}
			return server.Start(sh.rig.Server)
		}),
	)
	got, err := s.sweep(ctx, sh.xs, variants...)
	if err != nil {
		return nil, err
	}
	r = sh.result(got, variants, "others are limited to")
	r.ID, r.Title = "fig5", "SYN policing: throughput of a preferred client against the rate that others are limited to"
	r.Source = "Voigt et al., USENIX ATC 2001, figure 5"
	r.Then = "Without control a preferred client gets 6 KB/s beside 250 Webstone clients. It gets 100 KB/s when these are limited to 300 connections/s, and up to 800 KB/s at 25/s."
	r.Setup = sh.setup(fmt.Sprintf("%d clients in a closed loop ask for the same file from %s", fig5Clients, middleNet))
	r.Notes = append(r.Notes, qosDenies)
	return r, nil
}

// fig5Policy limits the SYNs of the others.
func (sh *shop) fig5Policy(rate float64) string {
	return fmt.Sprintf(`version: 1
services:
  - {name: web, listen: %q, protocol: tcp}
connections:
  - {name: others, from: %s, rate: %.0f/s, burst: %d}
`, sh.web(), middleNet, rate, sh.burst(rate))
}

// fig5Limit limits requests instead, as a proxy and the server can.
func (sh *shop) fig5Limit(rate float64) peers.RateLimit {
	return peers.RateLimit{Class: peers.Class{From: middleNet}, Rate: int(rate), Burst: sh.burst(rate)}
}
