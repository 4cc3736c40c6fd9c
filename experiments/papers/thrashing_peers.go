// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/netip"

	"narthex/experiments/internal/peers"
	"narthex/experiments/internal/thrash"
	"narthex/internal/lab"
)

// thrashAtOnce is how many programs peers let in at once: enough to keep the core busy, and with
// room for all.
const thrashAtOnce = 10

// peers are variants with what people use today. Those that bound how many are served at once
// bound it to what has room, those that bound a rate to the one of SYN policing.
func (t *thrashing) peers(able float64) []variant {
	rate := peers.RateLimit{Rate: int(thrashRate(able)), Burst: thrashAtOnce}
	once := peers.ConcurrencyLimit{Requests: thrashAtOnce}
	web := []netip.AddrPort{t.web()}
	return []variant{
		t.proxied("HAProxy, maxconn", peers.HAProxy{
			Listen: web, Backlog: backlog, CPUs: t.ServerCPUs, Origin: t.behind(), MaxConn: thrashAtOnce,
		}.Start),
		t.proxied("nginx, limit_req", peers.NginxLimit{
			Listen: web, Backlog: backlog, CPUs: t.ServerCPUs, Origin: t.behind(), LimitReq: []peers.RateLimit{rate},
		}.Start),
		t.proxied("nginx, limit_conn", peers.NginxLimit{
			Listen: web, Backlog: backlog, CPUs: t.ServerCPUs, Origin: t.behind(), LimitConn: []peers.ConcurrencyLimit{once},
		}.Start),
		t.with("mod_qos, QS_LocRequestLimit", func() ([]*lab.Server, error) {
			return only(peers.Apache{
				Listen: web, Workers: thrash.Workers, Backlog: backlog, CPUs: t.ServerCPUs, CGI: thrash.Script,
				QoS: &peers.QoS{Concurrency: []peers.ConcurrencyLimit{once}},
			}.Start(t.rig.Server))
		}),
	}
}

// proxied is a proxy before the server. Its programs are not in the group: it does not thrash.
func (t *thrashing) proxied(name string, proxy func(*lab.Namespace) (*lab.Server, error)) variant {
	return t.with(name, func() ([]*lab.Server, error) {
		server, err := t.apache(t.behind())
		if err != nil {
			return nil, err
		}
		front, err := goFirst(proxy(t.rig.Server))
		if err != nil {
			return nil, errors.Join(err, server.Close())
		}
		return []*lab.Server{server, front}, nil
	})
}

// with is a variant with servers of its own.
func (t *thrashing) with(name string, start func() ([]*lab.Server, error)) variant {
	return variant{name: name, measure: t.at, start: func(context.Context) (func() error, error) {
		// What has run so far listens where these are to.
		usual := t.start
		t.start = start
		return func() error {
			t.start = usual
			return t.stop()
		}, t.stop()
	}}
}
