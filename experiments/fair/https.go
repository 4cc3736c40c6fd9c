// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab"
)

// Of the pool of one nginx, and the clients of each of its services.
const (
	poolPlaces  = 8
	wrkClients  = 32
	statusEvery = 20 * time.Millisecond
)

// https: http and https of one nginx are one room. Clients keep their connections, and ask again at once.
func (b suite) https(ctx context.Context) (figures []bench.Figure, err error) {
	rig, err := b.Lab("fair-https", 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rig.Close()) }()
	web := bench.Web(rig)
	secure := netip.AddrPortFrom(web.Addr(), 443)
	if _, err := rig.Server.StartNginx(lab.NginxConfig{Listen: []netip.AddrPort{web}, Secure: []netip.AddrPort{secure}, Backlog: 4096, CPUs: b.ServerCPUs}); err != nil {
		return nil, err
	}
	n, err := b.Enforce(ctx, rig.Server, fmt.Sprintf(`version: 1
pools: [{name: nginx, concurrency: %d, between: classes}]
services:
  - {name: web, listen: ["%s"], pool: nginx}
  - {name: secure, listen: ["%s"], protocol: tls, pool: nginx}
`, poolPlaces, web, secure))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.Stop()) }()
	t := bench.NewTable(*runs,
		bench.Figure{What: "http and https of one nginx: requests, of the mean of each alone", Wanted: bench.AtLeast(0.9)},
		bench.Figure{What: "  the fewer of the two, of half of all", Wanted: bench.AtLeast(0.9)},
		bench.Figure{What: "  most in service by the pool, for a moment twice as they enter"},
	)
	for t.Next() {
		var alone []float64
		for _, url := range []string{"http://" + web.String(), "https://" + secure.String()} {
			rates, err := b.wrk(rig, url)
			if err != nil {
				return t.Done(), err
			}
			alone = append(alone, rates...)
		}
		both, err := b.wrk(rig, "http://"+web.String(), "https://"+secure.String())
		if err != nil {
			return t.Done(), err
		}
		most, watched := mostInService(ctx, n) // in a run of its own: to ask takes the server's time
		_, err = b.wrk(rig, "http://"+web.String(), "https://"+secure.String())
		if err = errors.Join(err, watched()); err != nil {
			return t.Done(), err
		}
		b.Progress("  https: alone %s and %s/s, together %s and %s/s", bench.Number(alone[0]), bench.Number(alone[1]), bench.Number(both[0]), bench.Number(both[1]))
		// Half of the requests of each kind take as long as they do alone.
		t.Add((both[0]+both[1])/(2/(1/alone[0]+1/alone[1])), 2*min(both[0], both[1])/(both[0]+both[1]), float64(*most))
	}
	return t.Done(), nil
}

// wrk has wrk ask for all URLs at the same time, and returns the requests/s of each.
func (b suite) wrk(rig *lab.Lab, urls ...string) ([]float64, error) {
	rates, errs := make([]float64, len(urls)), make([]error, len(urls))
	var all sync.WaitGroup
	for i, url := range urls {
		all.Go(func() {
			c := rig.Client.Command("wrk", "-t1", fmt.Sprintf("-c%d", wrkClients), fmt.Sprintf("-d%.0fs", max(1, *seconds)), url+"/")
			c.CPUs = b.ClientCPUs
			rates[i], errs[i] = bench.RateOfWrk(c.CombinedOutput())
		})
	}
	all.Wait()
	return rates, errors.Join(errs...)
}

// mostInService notes how many are in service in the pool, at most, until it is stopped. While a request enters it is
// counted twice: its place is held until its service has told of it.
func mostInService(ctx context.Context, n *bench.Narthex) (most *int, stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	most = new(int)
	end := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			s, err := n.Status(ctx)
			if ctx.Err() != nil {
				break
			}
			if err != nil {
				end <- err
				return
			}
			*most = max(*most, s.Pools[0].InService)
			_ = bench.Sleep(ctx, statusEvery)
		}
		end <- nil
	}()
	return most, func() error {
		cancel()
		return <-end
	}
}
