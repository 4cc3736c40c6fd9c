// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab"
	"narthex/internal/load"
)

const (
	strangers = 100_000         // addresses that ask once
	visitors  = 10              // addresses that come back
	pageSize  = 12              // requests of a page, one after the other
	pageEvery = 2 * time.Second // a visitor asks for a page, and has it within that or not
)

// The networks of strangers and of visitors: all of both is the client's.
var crowds = []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9"), netip.MustParsePrefix("10.127.0.0/16")}

// stranger is one of those, with as few in a /24 as can be.
func stranger(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 128 | byte(n>>8&0x7f), byte(n), byte(1 + n>>15)})
}

// visitor is one of the others, each in a /24 of its own.
func visitor(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 127, byte(n), 1}) }

// reader loads pages from an address.
type reader struct {
	rig     *lab.Lab
	address netip.Addr
	times   *pageTimes
}

// pageTimes are of pages that were complete in time; begun are all.
type pageTimes struct {
	begun, complete atomic.Int64
	spent           atomic.Int64 // ns
}

func (p *pageTimes) reset() { p.begun.Store(0); p.complete.Store(0); p.spent.Store(0) }

// dial connects from the reader's address.
func (r reader) dial(ctx context.Context, network, _ string) (c net.Conn, err error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: r.address.AsSlice()}}
	err = r.rig.Client.Do(func() (err error) {
		c, err = d.DialContext(ctx, network, bench.Web(r.rig).String())
		return err
	})
	return c, err
}

// page loads one, on one connection.
func (r reader) page(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pageEvery)
	defer cancel()
	t := &http.Transport{DialContext: r.dial, MaxConnsPerHost: 1}
	defer t.CloseIdleConnections()
	for range pageSize {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/wait?ms=%d", bench.Web(r.rig), takes.Milliseconds()), nil)
		if err != nil {
			return err
		}
		res, err := t.RoundTrip(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, res.Body)
		if err = errors.Join(err, res.Body.Close()); err != nil {
			return err
		}
		if res.StatusCode != http.StatusOK {
			return errors.New(res.Status)
		}
	}
	return nil
}

// read loads pages until ctx is done, each begun at its time.
func (r reader) read(ctx context.Context, first time.Duration) {
	if bench.Sleep(ctx, first) != nil {
		return
	}
	every := time.NewTicker(pageEvery)
	defer every.Stop()
	for {
		begun := time.Now()
		err := r.page(ctx)
		if ctx.Err() != nil {
			return
		}
		r.times.begun.Add(1)
		if err == nil {
			r.times.complete.Add(1)
			r.times.spent.Add(int64(time.Since(begun)))
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// known: visitors who have had a page ask for the next ones while each request beside theirs is of an address that
// asks once, ten times as many as the server can do.
func (b suite) known(ctx context.Context) (figures []bench.Figure, err error) {
	st, err := b.stage("known")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	if err := st.crowd(); err != nil {
		return nil, err
	}
	t := bench.NewTable(*runs,
		bench.Figure{What: "pages of returning visitors beside 100,000 addresses: complete, of those alone, known", Wanted: bench.AtLeast(0.95)},
		bench.Figure{What: "  not known"},
		bench.Figure{What: "  mean time of a complete page, of that alone, known"},
		bench.Figure{What: "  requests of strangers that are served, known / not known"},
	)
	for t.Next() {
		alone, _, err := st.visits(ctx, "known: 10m", 0)
		if err != nil {
			return t.Done(), err
		}
		var share, late, served [2]float64
		for _, i := range bench.Turned(t, 0, 1) {
			with, rate, err := st.visits(ctx, []string{"known: 10m", "fair: {v4: 24, v6: 48}"}[i], 10*few/takes.Seconds())
			if err != nil {
				return t.Done(), err
			}
			share[i], late[i], served[i] = with.share()/alone.share(), with.mean()/alone.mean(), rate
			st.Progress("  variant %d: %d of %d pages, alone %d of %d; strangers %s/s", i, with.complete.Load(), with.begun.Load(), alone.complete.Load(), alone.begun.Load(), bench.Number(rate))
		}
		t.Add(share[0], share[1], late[0], served[0]/served[1])
	}
	return t.Done(), nil
}

func (p *pageTimes) share() float64 { return float64(p.complete.Load()) / float64(p.begun.Load()) }
func (p *pageTimes) mean() float64 {
	return float64(p.spent.Load()) / float64(max(p.complete.Load(), 1))
}

// crowd makes the client's the addresses of strangers and visitors.
func (st *stage) crowd() (err error) {
	for _, network := range crowds {
		err = errors.Join(err,
			st.rig.Client.Command("ip", "route", "add", "local", network.String(), "dev", "lo").Run(),
			st.rig.Server.AddRoute(network, st.rig.ClientsV4[0]))
	}
	return err
}

// visits measures visitors under what the class says, beside so many strangers per second. The share of the clients is
// counted only once all visitors have had their first page and the strangers fill the queue.
func (st *stage) visits(ctx context.Context, class string, rate float64) (times *pageTimes, served float64, err error) {
	n, err := st.Enforce(ctx, st.rig.Server, fmt.Sprintf(`version: 1
services:
  - {name: web, listen: ["%s"], xdp: off, concurrency: %d}
classes:
  - {name: all, priority: 1, %s}
`, bench.Web(st.rig), few, class))
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, n.Stop()) }()
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	times = &pageTimes{}
	for i := range visitors {
		all.Go(func() { reader{st.rig, visitor(i), times}.read(ctx, time.Duration(i)*pageEvery/visitors) })
	}
	if err := bench.Sleep(ctx, pageEvery+pageEvery/2); err != nil {
		return nil, 0, err
	}
	if rate == 0 {
		times.reset()
		return times, 0, bench.Sleep(ctx, length())
	}
	c := load.Open{Client: st.Client(st.rig, nil, load.MaxDuration), Rate: rate, MaxOpen: 20_000}
	for i := range strangers {
		c.Sources = append(c.Sources, stranger(i))
	}
	c.Path = fmt.Sprintf("/wait?ms=%d", takes.Milliseconds())
	crowd, err := bench.Gather(ctx, c)
	if err != nil {
		return nil, 0, err
	}
	defer crowd.End()
	if err := bench.Sleep(ctx, 4*time.Second); err != nil {
		return nil, 0, err
	}
	crowd.Interval()
	times.reset()
	err = bench.Sleep(ctx, length())
	return times, crowd.Interval().Rate(), err
}
