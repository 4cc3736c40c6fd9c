// SPDX-License-Identifier: Apache-2.0

// Package generator opens connections to a server at a given rate whatever the answers, from
// very many addresses, and keeps nothing about them: one core makes tens of thousands of HTTP
// exchanges a second, or hundreds of thousands of SYNs.
//
// An XDP program on the client's device makes the SYNs, which BPF_PROG_RUN injects, and answers
// what comes back from the server. Other traffic of the device passes it. On a veth it runs on
// the core that sends: what the server sends is answered at the expense of the server's core,
// unless the client's device has a NAPI thread of its own.
package generator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"

	"narthex/internal/lab"
)

// MaxRequest is the longest request, in bytes: it has to fit into the buffer of a SYN-ACK.
const MaxRequest = 220

// Config says what is sent, and over what.
type Config struct {
	// Client and Server are joined by a veth pair whose ends are both called Dev (lab.Dev if
	// empty). The server gets a route to From, through the client's address that it can reach, and
	// has GRO switched on at its end, without which (or an XDP program) a veth takes no frames from
	// XDP. Both stay after the end.
	Client, Server *lab.Namespace
	Dev            string

	From netip.Prefix   // IPv4 addresses that connections come from, each with many ports
	To   netip.AddrPort // IPv4

	// Request is what each connection asks, in one segment; up to MaxRequest bytes. A connection
	// ends with RST: if the request asks the server to close ("Connection: close", or HTTP/1.0
	// without keep-alive), once the server does, so that answers are received to their ends,
	// else as soon as an answer begins. The server keeps no socket in either case. Empty: SYNs
	// alone, whose SYN-ACKs nobody answers.
	Request string

	Rate int    // connections per second; 0: as many as go; below 0: none for now
	CPU  int    // core that it runs on
	Seed uint64 // decides the order of addresses and ports
}

// Generator is one that runs.
type Generator struct {
	*program
	rate   atomic.Int64
	unsent atomic.Uint64
	cancel context.CancelFunc
	sent   chan error // of the sender, once it has ended

	stop    sync.Once
	stopErr error

	mu   sync.Mutex
	last *Counts // after the end
}

// Start begins to send. It ends with the context, with the client's namespace, or with Stop. At
// most one can be on a device at a time.
func Start(ctx context.Context, cfg Config) (*Generator, error) {
	fail := func(err error) (*Generator, error) {
		return nil, fmt.Errorf("start a generator from %s: %w", cfg.From, err)
	}
	if cfg.Dev == "" {
		cfg.Dev = lab.Dev
	}
	if err := cfg.check(); err != nil {
		return fail(err)
	}
	if err := cfg.prepareServer(); err != nil {
		return fail(err)
	}
	p, err := attach(cfg)
	if err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	g := &Generator{program: p, cancel: cancel, sent: make(chan error, 1)}
	g.SetRate(cfg.Rate)
	ready := make(chan error, 1)
	go g.run(ctx, cfg, ready)
	select {
	case err = <-ready:
	case err = <-g.sent: // it could not even begin
	}
	if err != nil {
		cancel()
		return fail(errors.Join(err, p.Close()))
	}
	cfg.Client.OnClose(g.Stop)
	context.AfterFunc(ctx, func() { _ = g.Stop() }) // who calls Stop is told what it says
	return g, nil
}

func (c Config) check() error {
	switch {
	case !c.From.Addr().Is4() || !c.To.Addr().Is4():
		return errors.New("it knows IPv4 alone")
	case len(c.Request) > MaxRequest:
		return fmt.Errorf("a request of %d bytes is too long; it sends up to %d", len(c.Request), MaxRequest)
	}
	return nil
}

// run sends on a thread of its own, in the clients' namespace.
func (g *Generator) run(ctx context.Context, cfg Config, ready chan<- error) {
	runtime.LockOSThread()
	g.sent <- cfg.Client.Do(func() error {
		yield, err := goFirst(cfg.CPU)
		ready <- err
		if err != nil {
			return err
		}
		return errors.Join(g.send(ctx), yield())
	})
	runtime.UnlockOSThread()
}

// SetRate changes the rate: see Config.Rate.
func (g *Generator) SetRate(rate int) { g.rate.Store(int64(rate)) }

// Counts returns what has happened since the start, also after the end.
func (g *Generator) Counts() (Counts, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.last != nil {
		return g.last.Minus(Counts{}), nil
	}
	return g.count()
}

// count reads what the program has counted.
func (g *Generator) count() (Counts, error) {
	c, err := g.program.counts()
	c.Unsent = g.unsent.Load()
	return c, err
}

// Stop ends the generator and takes its program off the device. Connections for which the server
// still sends something are reset before, for a second at most. Stopping twice is no error.
func (g *Generator) Stop() error {
	g.stop.Do(func() { g.stopErr = g.end() })
	return g.stopErr
}

func (g *Generator) end() error {
	g.cancel()
	errs := []error{<-g.sent, g.settle()}
	g.mu.Lock()
	defer g.mu.Unlock()
	last, err := g.count()
	g.last = &last
	return errors.Join(append(errs, err, g.program.Close())...)
}
