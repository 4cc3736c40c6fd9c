// SPDX-License-Identifier: Apache-2.0

// Package load makes HTTP clients for tests, benchmarks and the demo. A closed loop is a
// number of clients each of which asks, waits for the answer and asks again; an open loop
// opens connections at a given rate whatever the answers. The experiments call them
// Webstone and sclient, as their models did. A trace is replayed: its requests have their times.
//
// All clients of a run live on one thread around one epoll, which is in a network
// namespace and may be pinned to cores: well above 10,000 connections/s on one core. Load
// goes to loopback or into a namespace that package lab made, and ends by itself.
package load

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"narthex/internal/lab"
)

// MaxDuration bounds a run.
const MaxDuration = 10 * time.Minute

// OneSYN is a ConnectTimeout with which a client gives up before the kernel sends its
// SYN a second time, one second after the first: what is connected then was admitted at
// the first SYN.
const OneSYN = 500 * time.Millisecond

// Client is what all kinds of clients have in common.
type Client struct {
	NS      *lab.Namespace // nil: where the process is; then Target must be a loopback address
	CPUs    []int          // cores that the clients run on; any if empty
	Target  netip.AddrPort
	Sources []netip.Addr // addresses that connections come from, in turn; the kernel's choice if empty

	Path   string // "/" if empty
	Header string // further lines of the request, each ending in \r\n

	Duration       time.Duration // of the run, at most MaxDuration
	ConnectTimeout time.Duration // from the first SYN; ten seconds if 0. Meanwhile the kernel repeats the SYN after 1 s, 3 s, 7 s
	Timeout        time.Duration // from the request to the last byte of the answer; ten seconds if 0
	Record         bool          // keep an Event for each request
}

// Closed is a closed loop.
type Closed struct {
	Client
	Clients   int
	KeepAlive bool          // use a connection again after an answer
	Think     time.Duration // from an answer to the next request
}

// Open is an open loop.
type Open struct {
	Client
	Rate        float64 // connections per second
	Burst       int     // connections opened back to back, Rate/Burst times a second; 1 if 0
	ConnectOnly bool    // close without a request once connected
	MaxOpen     int     // connections open at once, beyond which none is opened; 4096 if 0
}

// Start starts the clients. They end with the context or after Duration.
func (c Closed) Start(ctx context.Context) (*Run, error) {
	if c.Clients <= 0 {
		return nil, fmt.Errorf("start clients: %d is not a number of clients; ask for at least one", c.Clients)
	}
	l, err := newLoop(c.Client, c.KeepAlive)
	if err != nil {
		return nil, err
	}
	l.keepAlive, l.clients = c.KeepAlive, c.Clients
	l.thinking.after = c.Think
	return l.start(ctx), nil
}

// Start starts opening connections. It ends with the context or after Duration.
func (o Open) Start(ctx context.Context) (*Run, error) {
	if o.Rate <= 0 || o.Burst < 0 {
		return nil, fmt.Errorf("start connections: %v connections/s in bursts of %d is no rate", o.Rate, o.Burst)
	}
	l, err := newLoop(o.Client, false)
	if err != nil {
		return nil, err
	}
	l.burst = max(1, o.Burst)
	l.every = time.Duration(float64(l.burst) / o.Rate * float64(time.Second))
	l.connectOnly = o.ConnectOnly
	l.maxOpen = o.MaxOpen
	if l.maxOpen == 0 {
		l.maxOpen = 4096
	}
	return l.start(ctx), nil
}

// check refuses what could harm others, and fills in defaults.
func (c *Client) check() error {
	switch {
	case !c.Target.IsValid() || c.Target.Port() == 0:
		return errors.New("start clients: no target address and port")
	case c.NS == nil && !c.Target.Addr().IsLoopback():
		return fmt.Errorf("start clients: %s is not a loopback address; load goes to one or into a namespace", c.Target)
	case c.Duration <= 0 || c.Duration > MaxDuration:
		return fmt.Errorf("start clients: cannot run for %v, only for up to %v", c.Duration, MaxDuration)
	}
	for _, s := range c.Sources {
		if s.Is4() != c.Target.Addr().Is4() {
			return fmt.Errorf("start clients: %s cannot reach %s: IPv4 and IPv6", s, c.Target)
		}
	}
	if c.Path == "" {
		c.Path = "/"
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = 10 * time.Second
	}
	return nil
}

// request returns the bytes of a request.
func (c *Client) request(keepAlive bool) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "GET %s HTTP/1.1\r\nHost: %s\r\n%s", c.Path, c.Target, c.Header)
	if !keepAlive {
		b.WriteString("Connection: close\r\n")
	}
	b.WriteString("\r\n")
	return []byte(b.String())
}
