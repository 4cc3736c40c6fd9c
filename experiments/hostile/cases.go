// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/load"
	"narthex/internal/testnet/attack"
	"narthex/internal/testnet/origin"
)

const (
	goldCount = 10
	work      = 2 * time.Millisecond // of each request, so that the server's core is what all wait for

	warmUp    = 500 * time.Millisecond
	calmLimit = 8 * time.Second // max_wait, and then some
	exhausted = 0.97            // of the clients' core or more is taken: it is what all wait for
	saturated = 0.95            // of the server's or more is, so that it is
)

// hostileCase is a kind of attack.
type hostileCase struct {
	name  string
	limit int // of requests in service
	start func(st *stage, ctx context.Context, c attack.Crowd) (*attack.Run, error)
	flags []string // of the daemon
	idle  bool     // attackers ask another service, which has no limit
	// cookie, if it is not empty, are more keys of the rule that tells gold by a cookie, in place of its address.
	cookie string
	least  float64 // of gold with / without; 0: leastGold
}

// leastGold is how much of what they have alone gold clients are to have.
const leastGold = 0.9

// At most two requests are in service where an attacker's would take the server's time: gold
// clients always have one that waits, and go first. Where it would not, there is room for all
// gold clients and some more, so that attackers come in.
const (
	tight = 2
	roomy = 16
)

// Floods are at a rate at which the kernel's own part takes little of the server's core.
const (
	floodRate    = 2000
	forgedRate   = 10_000
	strangerRate = 4000
	droppedRate  = 200
)

var hostileCases = []hostileCase{
	{name: "slow posts, no byte of the body, 10 × the limit", limit: roomy, start: func(_ *stage, ctx context.Context, c attack.Crowd) (*attack.Run, error) {
		c.Clients = 10 * roomy
		return attack.SlowPosts{Crowd: c, Path: "/echo"}.Start(ctx)
	}},
	{name: "slow posts, a byte every 500 ms, 10 × the limit", limit: roomy, start: func(_ *stage, ctx context.Context, c attack.Crowd) (*attack.Run, error) {
		c.Clients = 10 * roomy
		return attack.SlowPosts{Crowd: c, Path: "/echo", Drip: 500 * time.Millisecond}.Start(ctx)
	}},
	{name: "slow posts, tight", limit: tight, start: func(_ *stage, ctx context.Context, c attack.Crowd) (*attack.Run, error) {
		c.Clients = 10 * tight
		return attack.SlowPosts{Crowd: c, Path: "/echo", Drip: 300 * time.Millisecond}.Start(ctx)
	}},
	{name: "heads that never end, 300 clients", limit: tight, start: func(_ *stage, ctx context.Context, c attack.Crowd) (*attack.Run, error) {
		c.Clients = 300
		return attack.SlowHeads{Crowd: c, Every: 100 * time.Millisecond}.Start(ctx)
	}},
	{name: "connections that say nothing, 500", limit: tight, start: func(_ *stage, ctx context.Context, c attack.Crowd) (*attack.Run, error) {
		c.Clients = 500
		return attack.Silent{Crowd: c}.Start(ctx)
	}},
	{name: "hold and reset, 100 clients", limit: tight, start: func(_ *stage, ctx context.Context, c attack.Crowd) (*attack.Run, error) {
		c.Clients = 100
		return attack.Leavers{Crowd: c, After: 100 * time.Millisecond, Way: attack.ByRST}.Start(ctx)
	}},
	{name: "hold and leave in any way, 100 clients", limit: tight, start: func(_ *stage, ctx context.Context, c attack.Crowd) (*attack.Run, error) {
		c.Clients = 100
		return attack.Leavers{Crowd: c, After: 300 * time.Millisecond, Way: attack.AnyWay}.Start(ctx)
	}},
	{name: "heads with two meanings, 50 clients", limit: tight, start: func(_ *stage, ctx context.Context, c attack.Crowd) (*attack.Run, error) {
		c.Clients = 50
		const head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n"
		return attack.Leavers{Crowd: c, Request: head, After: 100 * time.Millisecond, Way: attack.ByFIN}.Start(ctx)
	}},
	{name: "a queue full of bronze, 1,000 clients", limit: tight, start: func(_ *stage, ctx context.Context, c attack.Crowd) (*attack.Run, error) {
		c.Clients = 1000
		return attack.Leavers{Crowd: c, After: 3 * time.Second, Way: attack.ByRST}.Start(ctx)
	}},
	{name: "4,096 clients that send GET / and no more", limit: tight, start: func(_ *stage, ctx context.Context, c attack.Crowd) (*attack.Run, error) {
		c.Clients = 4096
		return attack.SlowHeads{Crowd: c, Begin: "GET /", Every: time.Hour}.Start(ctx)
	}},
	{name: "4,096 of bronze that wait", limit: tight, start: func(_ *stage, ctx context.Context, c attack.Crowd) (*attack.Run, error) {
		c.Clients = 4096
		return attack.Leavers{Crowd: c, After: 10 * time.Second, Way: attack.ByRST}.Start(ctx)
	}},
	{name: "connections idle at an unlimited service, twice as many as can be followed", limit: tight, idle: true, flags: []string{"--slots", "512", "--flows", "1024"},
		start: func(st *stage, ctx context.Context, c attack.Crowd) (*attack.Run, error) {
			c.Clients, c.To = 2048, st.control
			const whole = "GET /forget HTTP/1.1\r\nHost: idle\r\n\r\n"
			return attack.SlowHeads{Crowd: c, Begin: whole, Head: whole + whole, Every: time.Hour}.Start(ctx)
		}},
	{name: fmt.Sprintf("%d connections/s of strangers, gold learned by its cookie", strangerRate), limit: tight, cookie: ", learn: 1h", start: strangers},
	{name: fmt.Sprintf("%d connections/s of strangers, gold told by its cookie and not learned", strangerRate), limit: tight, cookie: " ", least: 0.5, start: strangers},
	{name: fmt.Sprintf("requests of clients without a kernel, %d/s", floodRate), limit: tight, start: func(st *stage, ctx context.Context, _ attack.Crowd) (*attack.Run, error) {
		return st.flood(floodRate, true, "GET / HTTP/1.1\r\nHost: nobody\r\n\r\n").Start(ctx)
	}},
	{name: fmt.Sprintf("the same, of which the server's stack drops the request, %d/s", droppedRate), limit: roomy, start: func(st *stage, ctx context.Context, _ attack.Crowd) (*attack.Run, error) {
		f := st.flood(droppedRate, true, "GET / HTTP/1.1\r\nHost: nobody\r\n\r\n")
		f.Broken = true
		return f.Start(ctx)
	}},
	{name: fmt.Sprintf("idle connects, %d/s", floodRate), limit: tight, start: func(st *stage, ctx context.Context, _ attack.Crowd) (*attack.Run, error) {
		return st.flood(floodRate, true, "").Start(ctx)
	}},
	{name: fmt.Sprintf("SYN flood, %d/s", floodRate), limit: tight, start: func(st *stage, ctx context.Context, _ attack.Crowd) (*attack.Run, error) {
		return st.flood(floodRate, false, "").Start(ctx)
	}},
	{name: fmt.Sprintf("forged data for no connection, %d/s", forgedRate), limit: tight, start: func(st *stage, ctx context.Context, _ attack.Crowd) (*attack.Run, error) {
		return attack.Forgery{
			Link: attack.Over(st.lab), Pace: attack.Pace{Rate: forgedRate}, Kind: attack.ForgeData, Aim: attack.Blind,
			Victims: nobodies(bench.Web(st.lab)),
		}.Start(ctx)
	}},
}

// strangers open connections of which nobody knows the class before they ask.
func strangers(st *stage, ctx context.Context, _ attack.Crowd) (*attack.Run, error) {
	return st.flood(strangerRate, true, "GET / HTTP/1.1\r\nHost: nobody\r\n\r\n").Start(ctx)
}

// flood opens connections from addresses that nobody has.
func (st *stage) flood(rate int, complete bool, request string) attack.Flood {
	return attack.Flood{
		Link: attack.Over(st.lab), Pace: attack.Pace{Rate: rate, Seed: 1}, From: nobodyNet, To: bench.Web(st.lab),
		IdleConnects: complete, Request: request,
	}
}

// nobodies are connections that do not exist.
func nobodies(to netip.AddrPort) (all []attack.Victim) {
	addr := bronzeNet.Addr()
	for i := range 64 {
		addr = addr.Next()
		all = append(all, attack.Victim{From: netip.AddrPortFrom(addr, uint16(2000+i)), To: to, Next: 1, Ack: 1})
	}
	return all
}

// cases: each attack on a server of its own.
func (b suite) cases(ctx context.Context) (figures []bench.Figure, err error) {
	for _, c := range hostileCases {
		if !strings.Contains(c.name, *named) {
			continue
		}
		b.Progress(" %s", c.name)
		f, err := b.oneCase(ctx, c)
		figures = append(figures, f...)
		if err != nil {
			return figures, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return figures, nil
}

func (b suite) oneCase(ctx context.Context, c hostileCase) (figures []bench.Figure, err error) {
	st, err := b.stage("case")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	if err := st.origin(origin.Config{Work: work}); err != nil {
		return nil, err
	}
	service := fmt.Sprintf("concurrency: %d, queue: {max_wait: 5s}", c.limit)
	if c.idle {
		service += fmt.Sprintf("}\n  - {name: idle, listen: [\"%s\"], xdp: off, concurrency: unlimited", st.control)
	}
	if c.cookie != "" {
		err = st.enforceCookies(ctx, service, c.cookie)
	} else {
		err = st.enforce(ctx, service, c.flags...)
	}
	if err != nil {
		return nil, err
	}
	t := caseTable(c.name, c.least)
	gold := func(ctx context.Context) (float64, string, error) { return st.gold(ctx) }
	for t.Next() {
		if err := st.compare(ctx, t, gold, c); err != nil {
			return t.Done(), err
		}
	}
	return t.Done(), nil
}

func caseTable(name string, least float64) *bench.Table {
	if least == 0 {
		least = leastGold
	}
	return bench.NewTable(*runs,
		bench.Figure{What: name + ": gold with / without", Wanted: bench.AtLeast(least)},
		bench.Figure{What: "  in service, waiting, gathering and slots taken after it", Wanted: bench.Always(0, 0)},
		bench.Figure{What: "  the next request took", Unit: "ms", Wanted: bench.Always(0, 100)},
		bench.Figure{What: "  until all were zero", Unit: "ms"},
		bench.Figure{What: "  gold requests/s without", Unit: "/s"},
		bench.Figure{What: "  gold requests/s with", Unit: "/s"},
	)
}

// compare measures gold clients without and with an attack, in an order that turns, and looks
// what is left of it.
func (st *stage) compare(ctx context.Context, t *bench.Table, gold func(context.Context) (float64, string, error), c hostileCase) error {
	var rate [2]float64 // without, with
	var after [3]float64
	var invalid string
	for _, with := range bench.Turned(t, 1, 0) {
		why := ""
		var err error
		if with == 0 {
			rate[0], why, err = gold(ctx)
		} else {
			rate[1], after, why, err = st.amid(ctx, gold, c)
		}
		if err != nil {
			return err
		}
		if why != "" {
			invalid = why
		}
	}
	st.Progress("  gold %s/s without, %s/s with: × %s; after it %s left, zero after %s ms, next request %s ms %s", bench.Number(rate[0]),
		bench.Number(rate[1]), bench.Number(rate[1]/rate[0]), bench.Number(after[0]), bench.Number(after[2]), bench.Number(after[1]), invalid)
	if !t.Refuse(invalid) {
		t.Add(rate[1]/rate[0], after[0], after[1], after[2], rate[0], rate[1])
	}
	return nil
}

// amid measures gold clients amid an attack. After it is what is left when it is over, how
// long the next request takes and how long it takes until nothing is left, in milliseconds.
func (st *stage) amid(ctx context.Context, gold func(context.Context) (float64, string, error), c hostileCase) (rate float64, after [3]float64, invalid string, err error) {
	run, err := c.start(st, ctx, attack.Crowd{NS: st.lab.Client, From: st.bronze, To: bench.Web(st.lab), Seed: 1})
	if err != nil {
		return 0, after, "", err
	}
	defer func() { err = errors.Join(err, run.Stop()) }()
	rate, invalid, err = gold(ctx)
	if err != nil {
		return 0, after, "", err
	}
	if err := run.Stop(); err != nil {
		return 0, after, "", err
	}
	did := run.Counts()
	s, took, err := st.until(ctx, calmLimit, state.zero)
	if err != nil {
		return 0, after, "", err
	}
	st.Progress("   %+v; after it: %v", did, s)
	next := bench.Milliseconds(st.next(ctx))
	return rate, [3]float64{s.left(), next, bench.Milliseconds(took)}, invalid, ctx.Err()
}

// gold measures gold clients.
func (st *stage) gold(ctx context.Context) (rate float64, invalid string, err error) {
	client := st.Client(st.lab, st.lab.ClientsV4, load.MaxDuration)
	client.Header = st.header
	c, err := bench.Gather(ctx, load.Closed{Client: client, Clients: goldCount})
	if err != nil {
		return 0, "", err
	}
	defer c.End()
	if err := bench.Sleep(ctx, warmUp); err != nil {
		return 0, "", err
	}
	c.Interval()
	invalid, err = st.watched(ctx)
	r := c.Interval()[0]
	if failed := r.Begun - r.Outcomes[load.OK]; failed > 2*goldCount {
		st.Progress("   gold: %s", bench.Outcomes(r))
	}
	return r.Rate(), invalid, err
}

// watched lets the time of a measurement pass and says why it is not valid, if so: others on the
// machine took the server's core, or it was the clients' core that everything waited for.
func (st *stage) watched(ctx context.Context) (invalid string, err error) {
	u, err := st.Use(ctx, length())
	switch {
	case err != nil:
		return "", err
	case u.ClientBusy > exhausted && u.ServerBusy < saturated:
		return fmt.Sprintf("the server was busy for %.0f %% of the time, its clients for %.0f %%", 100*u.ServerBusy, 100*u.ClientBusy), nil
	case u.Others > *foreign:
		return fmt.Sprintf("others took %.0f %% of the server's core", 100*u.Others), nil
	}
	return "", nil
}

// next asks once, on a connection of its own, and returns how long that takes: all of a client's
// patience if there is no good answer.
func (st *stage) next(ctx context.Context) time.Duration {
	begun := time.Now()
	err := func() error {
		v, err := st.visit(ctx, st.lab.ClientsV4[0])
		if err != nil {
			return err
		}
		defer v.conn.Close()
		if err := v.ask("/"); err != nil {
			return err
		}
		_, err = v.answer()
		return err
	}()
	if err != nil {
		st.Progress("   the next request: %v", err)
		return patience
	}
	return time.Since(begun)
}
