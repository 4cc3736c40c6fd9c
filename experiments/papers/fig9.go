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

const fig9Clients = 100

// fig9: a limit for dynamic requests, for the sake of a client of files.
func (s *suite) fig9(ctx context.Context) (r *evidence.Result, err error) {
	// Each CGI program is a process of its own: what they take is not in the server's account.
	sh, err := s.newShop(ctx, "fig9", fig9Clients, peers.Dynamic, check{overflows: true, generator: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sh.close()) }()
	// The server then did 63 of such requests/s, as figure 11 has it. All of these
	// were not tried then.
	sh.limitTo(1, 40./63, 20./63, 10./63, 2./63)
	limit := func(rate float64) []peers.RateLimit {
		return []peers.RateLimit{{Class: peers.Class{Path: peers.Dynamic}, Rate: int(rate), Burst: sh.burst(rate)}}
	}
	variants := append(sh.unlimited(),
		sh.policed("Narthex, request rule", sh.fig9Policy),
		sh.fronted("nginx limit_req", func(rate float64) (*lab.Server, error) {
			return goFirst(peers.NginxLimit{
				Listen: []netip.AddrPort{sh.behind()}, Backlog: backlog, CPUs: sh.ServerCPUs, Origin: sh.web(), LimitReq: limit(rate),
			}.Start(sh.rig.Server))
		}),
		sh.fronted("HAProxy stick-table", func(rate float64) (*lab.Server, error) {
			return goFirst(peers.HAProxy{
				Listen: []netip.AddrPort{sh.behind()}, Backlog: backlog, CPUs: sh.ServerCPUs, Origin: sh.web(), MaxConn: shopProcesses, Deny: limit(rate),
			}.Start(sh.rig.Server))
		}),
		sh.fronted("Apache mod_qos", func(rate float64) (*lab.Server, error) {
			server := sh.apache(sh.behind())
			server.QoS = &peers.QoS{Deny: limit(rate)}
			return server.Start(sh.rig.Server)
		}),
	)
	got, err := s.sweep(ctx, sh.xs, variants...)
	if err != nil {
		return nil, err
	}
	r = sh.result(got, variants, "dynamic requests are limited to")
	r.ID, r.Title = "fig9", "URL rate control: throughput of a preferred client of files against the rate that dynamic requests are limited to"
	r.Source = "Voigt et al., USENIX ATC 2001, figure 9"
	r.Then = "Without control a preferred client of static files gets less than 1 KB/s beside clients of dynamic content. As these are limited to 40 down to 2 requests/s it gets up to 650 KB/s."
	r.Setup = sh.setup(fmt.Sprintf("%d clients in a closed loop ask for a CGI program (Perl, %d bytes) from %s", fig9Clients, peers.DynamicBytes, middleNet))
	r.Notes = append(r.Notes, qosDenies)
	return r, nil
}

// fig9Policy limits requests for the program.
func (sh *shop) fig9Policy(rate float64) string {
	return fmt.Sprintf(`version: 1
services:
  - {name: web, listen: %q, concurrency: unlimited}
requests:
  - {name: dynamic, path: "%s*", rate: %.0f/s, burst: %d}
`, sh.web(), peers.Dynamic, rate, sh.burst(rate))
}
