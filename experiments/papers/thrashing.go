// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"narthex/experiments/internal/thrash"
	"narthex/internal/lab"
)

const (
	thrashMemory  = 384 << 20 // bytes in which some 40 of 150 programs have room
	thrashSources = 64        // addresses of the clients: a client that is blocked is not all of them
)

// Names of variants.
const (
	alone         = "nothing"
	thrashPoliced = "Narthex, SYN policing"
	thrashRuled   = "Narthex, request rule"
	thrashBlocked = "Narthex, request rule with block"
	thrashAuto    = "Narthex, concurrency auto"
)

// thrashRate is the rate of limits: a little less than the server can do, as then (60 of 63).
func thrashRate(able float64) float64 { return float64(int(0.92 * able)) }

// thrashing is a stage whose server thrashes if it is let.
//
// Nothing soaks up the server's idle time there: limits that set themselves go by how busy the
// core is, as the kernel counts it.
type thrashing struct {
	*stage
	path string // that clients ask for

	settle, length time.Duration // thrashing takes its time

	group   *thrash.Group
	start   func() ([]*lab.Server, error) // starts the server, and what is to be before it
	servers []*lab.Server
}

func (s *suite) thrashing() (t *thrashing, err error) {
	st, err := s.stage("fig11")
	if err != nil {
		return nil, err
	}
	t = &thrashing{stage: st, path: lab.CGIPath, settle: 1500 * time.Millisecond, length: 3 * time.Second}
	if s.quick {
		t.settle, t.length = 1200*time.Millisecond, 1300*time.Millisecond
	}
	t.start = func() ([]*lab.Server, error) {
		return only(t.apache(t.web()))
	}
	if err := t.build(); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *thrashing) build() (err error) {
	err, t.Core = t.Core.Close(), nil
	if err != nil {
		return err
	}
	for addr := t.middle[len(t.middle)-1].Next(); len(t.middle) < thrashSources; addr = addr.Next() {
		if err := t.rig.Client.AddAddr(lab.Dev, netip.PrefixFrom(addr, 16)); err != nil {
			return err
		}
		t.middle = append(t.middle, addr)
	}
	t.group, err = thrash.New(t.rig.Server, "papers", thrashMemory)
	return err
}

// apache starts the server.
func (t *thrashing) apache(listen netip.AddrPort) (*lab.Server, error) {
	return t.rig.Server.StartApache(lab.ApacheConfig{
		Listen: []netip.AddrPort{listen}, MPM: lab.Prefork, Workers: thrash.Workers, Backlog: backlog,
		CGI: thrash.Script, CPUs: t.ServerCPUs,
	})
}

// only is a list of one server.
func only(s *lab.Server, err error) ([]*lab.Server, error) {
	if err != nil {
		return nil, err
	}
	return []*lab.Server{s}, nil
}

// variants are what stands before the server, or in it.
func (t *thrashing) variants(able float64) []variant {
	rate := thrashRate(able)
	return []variant{
		{name: alone, start: nobody, measure: t.at},
		t.ours(thrashPoliced, fmt.Sprintf(`version: 1
services:
  - {name: web, listen: "%s", protocol: tcp}
connections:
  - {name: all, rate: %.0f/s, burst: 10}
`, t.web(), rate)),
		t.ours(thrashRuled, t.ruled(rate, "")),
		t.ours(thrashBlocked, t.ruled(rate, ", over: drop, block: 1s")),
		t.ours(thrashAuto, fmt.Sprintf(`version: 1
services:
  - {name: web, listen: "%s", concurrency: auto}
`, t.web())),
	}
}

// ruled is a policy of one request rule, with a rate and what else it says.
func (t *thrashing) ruled(rate float64, further string) string {
	return fmt.Sprintf(`version: 1
services:
  - {name: web, listen: "%s", concurrency: unlimited}
requests:
  - {name: cgi, path: %s, rate: %.0f/s, burst: 10%s}
`, t.web(), t.path, rate, further)
}

// nobody is a variant in which nothing is to be started.
func nobody(context.Context) (stop func() error, err error) {
	return func() error { return nil }, nil
}

// ours is Narthex with a policy.
func (t *thrashing) ours(name, policy string) variant {
	return variant{name: name, ours: true, measure: t.at, start: func(ctx context.Context) (func() error, error) {
		// The server has to be there when Narthex comes, as it is for its users.
		if err := t.restart(); err != nil {
			return nil, err
		}
		n, err := t.narthex(ctx, policy)
		if err != nil {
			return nil, err
		}
		return n.Stop, nil
	}}
}
