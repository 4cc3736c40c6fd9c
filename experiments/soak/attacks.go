// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"narthex/test/attack"
)

// hostile is one kind of attack. It returns nil without an error where it makes no sense.
type hostile struct {
	name  string
	start func(ctx context.Context, a *aim) (*attack.Run, error)
}

// aim is what an attack is aimed at.
type aim struct {
	*world
	service *service
	to      netip.AddrPort
	rng     *rand.Rand
}

// How fast floods are. They are to disturb, and not to take the machine: that is for
// experiments/hostile.
const (
	floodRate  = 3000
	lingerRate = 700
	forgedRate = 5000
)

var hostiles = []hostile{
	{"slow posts", func(ctx context.Context, a *aim) (*attack.Run, error) {
		if a.service.protocol != "http" {
			return nil, nil
		}
		// Those to the Apache server keep a process each. Faster than the gate finds silence they
		// would be at work, and keep their places.
		return attack.SlowPosts{
			Crowd: a.crowd(30), Path: "/echo", Length: 1 + a.rng.IntN(100_000),
			Drip: []time.Duration{0, 0, 300 * time.Millisecond, 600 * time.Millisecond}[a.rng.IntN(4)],
		}.Start(ctx)
	}},
	{"slow heads", func(ctx context.Context, a *aim) (*attack.Run, error) {
		return attack.SlowHeads{
			Crowd: a.crowd(60), Begin: []string{"", "G", "GET / HTTP/1.1\r\nHost: a\r\nX: "}[a.rng.IntN(3)],
			Every: time.Duration(1+a.rng.IntN(400)) * time.Millisecond,
		}.Start(ctx)
	}},
	{"silent", func(ctx context.Context, a *aim) (*attack.Run, error) {
		return attack.Silent{Crowd: a.crowd(60)}.Start(ctx)
	}},
	{"leavers", func(ctx context.Context, a *aim) (*attack.Run, error) {
		request := ""
		switch a.service.protocol {
		case "tls":
			request = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" // what a ClientHello begins with
		case "tcp":
			request = "wait 50\n"
		}
		clients := 20
		if a.service.frail { // each that vanishes keeps a process until the server hears of it
			clients = 8
		}
		return attack.Leavers{Crowd: a.crowd(clients), Request: request, After: 300 * time.Millisecond, Way: attack.AnyWay}.Start(ctx)
	}},
	{"SYN flood", func(ctx context.Context, a *aim) (*attack.Run, error) {
		return a.flood(false, "").Start(ctx)
	}},
	{"idle connects", func(ctx context.Context, a *aim) (*attack.Run, error) {
		f := a.flood(true, "")
		if a.service.protocol == "tcp" { // where each gets to the server, which has descriptors for so many
			f.Rate = lingerRate
		}
		return f.Start(ctx)
	}},
	{"requests of nobody", func(ctx context.Context, a *aim) (*attack.Run, error) {
		f := a.flood(true, "GET /f/100 HTTP/1.1\r\nHost: nobody\r\nConnection: close\r\n\r\n")
		f.Rate = 100
		if a.service.name == "apache" { // where each keeps a process for half a minute
			f.Rate = 2
		}
		return f.Start(ctx)
	}},
	{"forged", func(ctx context.Context, a *aim) (*attack.Run, error) {
		victims := a.world.live.some(a.service, 16)
		if len(victims) == 0 {
			return nil, nil
		}
		return attack.Forgery{
			Link: attack.Over(a.rig.Lab), Pace: attack.Pace{Rate: forgedRate, Seed: a.rng.Uint64()},
			Kind: attack.Kind(a.rng.IntN(attack.Kinds)), Aim: aims[a.rng.IntN(len(aims))], Victims: victims,
		}.Start(ctx)
	}},
	{"TLS idlers", func(ctx context.Context, a *aim) (*attack.Run, error) {
		if a.service.protocol != "tls" {
			return nil, nil
		}
		return attack.TLSIdlers{Crowd: a.crowd(60), Every: []time.Duration{0, time.Second}[a.rng.IntN(2)]}.Start(ctx)
	}},
}

// aims leave out the exact number: whoever hits that has guessed right.
var aims = []attack.Aim{attack.Blind, attack.Inside, attack.Outside}

// crowd are attackers with kernels.
func (a *aim) crowd(clients int) attack.Crowd {
	c := attack.Crowd{NS: a.rig.Client, To: a.to, Clients: clients, Seed: a.rng.Uint64()}
	last := classes[len(classes)-1]
	for i := range byte(addressesEach) {
		if a.to.Addr().Is4() {
			c.From = append(c.From, last.v4(i))
		} else {
			c.From = append(c.From, last.v6(i))
		}
	}
	return c
}

// flood opens connections from addresses that nobody has.
func (a *aim) flood(complete bool, request string) attack.Flood {
	from := netip.MustParsePrefix("198.18.0.0/15")
	if a.to.Addr().Is6() {
		from = netip.MustParsePrefix("2001:db8:18::/48")
	}
	return attack.Flood{
		Link: attack.Over(a.rig.Lab), Pace: attack.Pace{Rate: floodRate, Seed: a.rng.Uint64()},
		From: from, To: a.to, IdleConnects: complete, Request: request,
	}
}

// attack makes one attack after the other until the context ends.
func (w *world) attack(ctx context.Context, rng *rand.Rand) error {
	for sleep(ctx, time.Duration(rng.Int64N(int64(2*time.Second)))) == nil {
		h, s := w.hostiles[rng.IntN(len(w.hostiles))], w.rig.services[rng.IntN(len(w.rig.services))]
		a := &aim{world: w, service: s, to: w.rig.at(s, rng.IntN(2) == 0), rng: rng}
		length := time.Second + time.Duration(rng.Int64N(int64(6*time.Second)))
		run, err := h.start(ctx, a)
		if now := time.Now(); err != nil && w.ledger.isExcused(nil, now, now, false) {
			continue // over a link that is down, or has only just come up
		}
		if err != nil {
			return fmt.Errorf("%s: %w", h.name, err)
		}
		if run == nil {
			continue
		}
		end := w.begin(h.name + " on " + s.name)
		_ = sleep(ctx, length)
		err = run.Stop()
		end()
		w.attacks.add(h.name)
		if err != nil {
			return fmt.Errorf("%s: %w", h.name, err)
		}
	}
	return nil
}

// oddHeads are what two readers could read in two ways, or not at all.
var oddHeads = []string{
	"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
	"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET / HTTP/1.1\nHost: a\n\n",
	"GET / HTTP/3.7\r\nHost: a\r\n\r\n",
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
	"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
	"\x16\x03\x01\x00\x05hello",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nabc",
	"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcdefgh\r\n0\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 30_000) + "\r\n\r\n",
	strings.Repeat("x", 20_000),
	"\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
}

// odd is a visit of an attacker who sends such a head, and a proper request behind it.
func (w *world) odd(ctx context.Context, rng *rand.Rand) error {
	for sleep(ctx, time.Duration(rng.Int64N(int64(100*time.Millisecond)))) == nil {
		s := w.rig.services[rng.IntN(len(w.rig.services))]
		last := classes[len(classes)-1]
		text := oddHeads[rng.IntN(len(oddHeads))] + "GET /f/100 HTTP/1.1\r\nHost: a\r\n\r\n"
		conn, err := attack.Dial(ctx, w.rig.Client, last.v4(byte(rng.IntN(addressesEach))), w.rig.at(s, false))
		if err != nil {
			continue // they are not those whose connections must come about
		}
		_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
		for len(text) > 0 && err == nil {
			n := min(len(text), 1+rng.IntN(2000))
			_, err = io.WriteString(conn, text[:n])
			text = text[n:]
		}
		_, _ = io.Copy(io.Discard, bufio.NewReader(conn))
		conn.Close()
		w.attacks.add("odd heads")
	}
	return nil
}

// live are the visits under way whose connections may be forged upon: those that send no body,
// for what is within a body nobody can tell from it.
type live struct {
	mu  sync.Mutex
	all []*visit
}

var forgeable = []string{"browser", "one-shot", "worker", "download", "half-closer"}

func (l *live) add(v *visit) (remove func()) {
	if !slices.Contains(forgeable, v.kind) {
		return func() {}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, v)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = slices.DeleteFunc(l.all, func(o *visit) bool { return o == v })
	}
}

// some are connections to a service, as they are at the moment.
func (l *live) some(s *service, most int) (victims []attack.Victim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, v := range l.all {
		if v.service == s && len(victims) < most {
			victims = append(victims, v.victim())
		}
	}
	return victims
}
