// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/internal/load"
	"narthex/test/attack"
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
	// serve starts the server: the origin, which works for each request, if it is nil.
	serve   func(st *stage) error
	service string // further keys of the service, behind a comma
	counted bool   // the server counts its requests: there are to be no more at once than the limit
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
	{name: "honest uploads of 30 kB, 20 clients", limit: tight, counted: true, start: talk(attack.Talkers{Says: upload(30_000, 0), Again: true}, 20)},
	{name: "honest uploads of 300 kB in chunks, 20 clients", limit: tight, counted: true, start: talk(attack.Talkers{Says: upload(300_000, 10_000), Again: true}, 20)},
	{name: "nginx, requests that say close and keep-alive, 8 clients", limit: tight, serve: nginx, start: talk(attack.Talkers{
		Says: []string{"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n"}}, 8)},
	{name: "nginx, large files that nobody reads, closing, 8 clients", limit: tight, serve: nginx, start: talk(attack.Talkers{
		Says: []string{"GET " + lab.LargeFile + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"}, Unread: true}, 8)},
	{name: "nginx, large files that nobody reads, kept, 200 clients", limit: tight, serve: nginx, start: talk(attack.Talkers{
		Says: []string{"GET " + lab.LargeFile + " HTTP/1.1\r\nHost: x\r\n\r\n"}, Unread: true}, 200)},
	{name: "requests into the pause of a stream, 40 clients", limit: roomy, start: talk(attack.Talkers{
		Says: []string{"GET /stream?for=ever HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"}, Pause: 300 * time.Millisecond}, 40)},
	{name: "100 Continue into a window of 4 bytes, 40 clients", limit: roomy, counted: true, serve: narrow, start: talk(attack.Talkers{Again: true, Window: 4,
		Says: []string{"POST /sum HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n", "ab"}, Pause: 50 * time.Millisecond}, 40)},
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
			Link: attack.Over(st.rig), Pace: attack.Pace{Rate: forgedRate}, Kind: attack.ForgeData, Aim: attack.Blind,
			Victims: nobodies(bench.Web(st.rig)),
		}.Start(ctx)
	}},
}

// nginx serves small files, and a large one.
func nginx(st *stage) error {
	_, err := st.Serve(st.Nginx(st.rig))
	return err
}

// narrow is the usual server, whose clients say from the beginning that they have little room.
func narrow(st *stage) error {
	return errors.Join(st.rig.Client.Sysctl("ipv4/tcp_rmem", "4096 4096 4096"), st.origin(origin.Config{Work: work}))
}

// talk has clients say something again and again.
func talk(t attack.Talkers, clients int) func(*stage, context.Context, attack.Crowd) (*attack.Run, error) {
	return func(_ *stage, ctx context.Context, c attack.Crowd) (*attack.Run, error) {
		t.Crowd, t.Clients = c, clients
		return t.Start(ctx)
	}
}

// upload is a request with a body of so many bytes, in chunks of so many; 0: as a whole.
func upload(bytes, chunk int) []string {
	const head = "POST /sum HTTP/1.1\r\nHost: honest\r\n"
	if chunk == 0 {
		return []string{fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, bytes, strings.Repeat("x", bytes))}
	}
	one := fmt.Sprintf("%x\r\n%s\r\n", chunk, strings.Repeat("x", chunk))
	return []string{head + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat(one, bytes/chunk) + "0\r\n\r\n"}
}

// strangers open connections of which nobody knows the class before they ask.
func strangers(st *stage, ctx context.Context, _ attack.Crowd) (*attack.Run, error) {
	return st.flood(strangerRate, true, "GET / HTTP/1.1\r\nHost: nobody\r\n\r\n").Start(ctx)
}

// flood opens connections from addresses that nobody has.
func (st *stage) flood(rate int, complete bool, request string) attack.Flood {
	return attack.Flood{
		Link: attack.Over(st.rig), Pace: attack.Pace{Rate: rate, Seed: 1}, From: nobodyNet, To: bench.Web(st.rig),
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
	if c.serve == nil {
		c.serve = func(st *stage) error { return st.origin(origin.Config{Work: work}) }
	}
	if err := c.serve(st); err != nil {
		return nil, err
	}
	service := fmt.Sprintf("concurrency: %d, queue: {max_wait: 5s}%s", c.limit, c.service)
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
	t := caseTable(c)
	for t.Next() {
		if err := st.compare(ctx, t, st.gold, c); err != nil {
			return t.Done(), err
		}
	}
	return t.Done(), nil
}

func caseTable(c hostileCase) *bench.Table {
	least, most := c.least, float64(c.limit)
	if least == 0 {
		least = leastGold
	}
	return bench.NewTable(*runs,
		bench.Figure{What: c.name + ": gold with / without", Wanted: bench.AtLeast(least)},
		bench.Figure{What: "  in service, waiting, gathering and slots taken after it", Wanted: bench.Always(0, 0)},
		bench.Figure{What: "  the next request took", Unit: "ms", Wanted: bench.Always(0, 100)},
		bench.Figure{What: "  until all were zero", Unit: "ms"},
		bench.Figure{What: "  gold requests/s without", Unit: "/s"},
		bench.Figure{What: "  gold requests/s with", Unit: "/s"},
		bench.Figure{What: "  the longest that a gold client waited", Unit: "ms", Wanted: bench.Always(0, 1000)},
		bench.Figure{What: "  most requests at once at the server, where it counts them", Wanted: bench.Always(0, most)},
	)
}

// compare measures gold clients without and with an attack, in an order that turns, and looks
// what is left of it.
func (st *stage) compare(ctx context.Context, t *bench.Table, gold measure, c hostileCase) error {
	var had [2]having // without, with
	var after [3]float64
	var most float64
	for _, with := range bench.Turned(t, 1, 0) {
		var err error
		if with == 0 {
			had[0], err = gold(ctx)
		} else {
			had[1], after, err = st.amid(ctx, gold, c)
		}
		if err != nil {
			return err
		}
	}
	if c.counted {
		body, err := st.tell(ctx, "/most")
		if err := errors.Join(err, json.Unmarshal(body, &most)); err != nil {
			return err
		}
	}
	rate, invalid := [2]float64{had[0].rate, had[1].rate}, had[0].invalid+had[1].invalid
	st.Progress("  gold %s/s without, %s/s with: × %s, longest %s ms, most at once %s; after it %s left, zero after %s ms, next request %s ms %s", bench.Number(rate[0]),
		bench.Number(rate[1]), bench.Number(rate[1]/rate[0]), bench.Number(had[1].longest), bench.Number(most), bench.Number(after[0]), bench.Number(after[2]), bench.Number(after[1]), invalid)
	if !t.Refuse(invalid) {
		t.Add(rate[1]/rate[0], after[0], after[1], after[2], rate[0], rate[1], had[1].longest, most)
	}
	return nil
}

// amid measures gold clients amid an attack. After it is what is left when it is over, how
// long the next request takes and how long it takes until nothing is left, in milliseconds.
func (st *stage) amid(ctx context.Context, gold measure, c hostileCase) (had having, after [3]float64, err error) {
	run, err := c.start(st, ctx, attack.Crowd{NS: st.rig.Client, From: st.bronze, To: bench.Web(st.rig), Seed: 1})
	if err != nil {
		return had, after, err
	}
	defer func() { err = errors.Join(err, run.Stop()) }()
	had, err = gold(ctx)
	if err != nil {
		return had, after, err
	}
	if err := run.Stop(); err != nil {
		return had, after, err
	}
	did := run.Counts()
	s, took, err := st.until(ctx, calmLimit, state.zero)
	if err != nil {
		return had, after, err
	}
	st.Progress("   %+v; after it: %v", did, s)
	next := bench.Milliseconds(st.next(ctx))
	return had, [3]float64{s.left(), next, bench.Milliseconds(took)}, ctx.Err()
}

// having is what gold clients have had.
type having struct {
	rate    float64 // of answers, 1/s
	longest float64 // that one of them took, ms
	invalid string  // why it is no figure; empty: it is
}

type measure func(context.Context) (having, error)

// gold measures gold clients.
func (st *stage) gold(ctx context.Context) (had having, err error) {
	client := st.Client(st.rig, st.rig.ClientsV4, load.MaxDuration)
	client.Header = st.header
	c, err := bench.Gather(ctx, load.Closed{Client: client, Clients: goldCount})
	if err != nil {
		return had, err
	}
	defer c.End()
	if err := bench.Sleep(ctx, warmUp); err != nil {
		return had, err
	}
	c.Interval()
	had.invalid, err = st.watched(ctx)
	r := c.Interval()[0]
	if failed := r.Begun - r.Outcomes[load.OK]; failed > 2*goldCount {
		st.Progress("   gold: %s", bench.Outcomes(r))
	}
	had.rate, had.longest = r.Rate(), bench.Milliseconds(r.Quantile(1))
	return had, err
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
		v, err := st.visit(ctx, st.rig.ClientsV4[0])
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
