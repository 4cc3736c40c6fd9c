// SPDX-License-Identifier: Apache-2.0

// Package bench is what the experiments share: the command line, the table of figures, the
// program under measurement, and the meter of the server's core. The server has the first
// core, its clients have the last.
package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"narthex/internal/lab"
	"narthex/internal/load"
)

// Bench is what all parts of an experiment share.
type Bench struct {
	Program                string // narthex
	ServerCPUs, ClientCPUs []int

	name    string         // of the experiment
	yield   func() error   // ends the priority over others on the machine
	home    *lab.Namespace // holds what goes with the program; nil if it was not built
	begun   time.Time
	daemons int // started so far
}

// New takes the cores and builds narthex, unless a program is given. Unless it is polite, this
// process goes before others on the machine until Close.
func New(ctx context.Context, name, program string, polite bool) (*Bench, error) {
	cpus, err := lab.CPUs()
	if err != nil {
		return nil, err
	}
	b := &Bench{
		Program:    program,
		ServerCPUs: cpus[:1],
		ClientCPUs: cpus[len(cpus)-1:],
		name:       name,
		begun:      time.Now(),
		yield:      func() error { return nil },
	}
	if !polite {
		if b.yield, err = goFirst(); err != nil {
			return nil, err
		}
	}
	if program != "" {
		if b.Program, err = filepath.Abs(program); err != nil {
			return nil, errors.Join(err, b.Close())
		}
		return b, nil
	}
	if err := b.build(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// build builds narthex into a folder that goes with the bench, or when the next one
// starts, should this one be killed.
func (b *Bench) build(ctx context.Context) (err error) {
	if b.home, err = lab.NewNamespace(b.name + "-build"); err != nil {
		return err
	}
	dir, err := b.home.TempDir(b.name + "-build")
	if err != nil {
		return err
	}
	b.Program = filepath.Join(dir, "narthex")
	b.Progress("building narthex")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", b.Program, "narthex/cmd/narthex")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build narthex: %w: %s; run it within the module, or use -narthex", err, out)
	}
	return nil
}

// Close ends what New has begun.
func (b *Bench) Close() error {
	err := b.yield()
	if b.home != nil {
		err = errors.Join(err, b.home.Close())
	}
	return err
}

// Progress says on stderr what is going on.
func (b *Bench) Progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%4.0fs  %s\n", time.Since(b.begun).Seconds(), fmt.Sprintf(format, args...))
}

// Lab makes the namespaces. What the server's end receives is handled on the server's
// core, where a network card would have it; on a veth it would otherwise be handled on
// the core that sends. That is by RPS, and XDP programs still run on the sender's core.
func (b *Bench) Lab(purpose string, clients int) (*lab.Lab, error) {
	rig, err := lab.New(purpose, clients)
	if err != nil {
		return nil, err
	}
	if err := rig.Server.SetRPS(lab.Dev, b.ServerCPUs...); err != nil {
		_ = rig.Close() // the first error says what is wrong
		return nil, err
	}
	return rig, nil
}

// Nginx starts the web server on its core.
func (b *Bench) Nginx(rig *lab.Lab) (*lab.Server, error) {
	return rig.Server.StartNginx(lab.NginxConfig{
		Listen:  []netip.AddrPort{Web(rig)},
		Backlog: 4096,
		CPUs:    b.ServerCPUs,
	})
}

// Client is clients with the given addresses, on the clients' core.
func (b *Bench) Client(rig *lab.Lab, sources []netip.Addr, duration time.Duration) load.Client {
	return load.Client{
		NS:       rig.Client,
		CPUs:     b.ClientCPUs,
		Target:   Web(rig),
		Sources:  sources,
		Duration: duration,
	}
}

// Addresses gives a namespace the first addresses of a network.
func Addresses(ns *lab.Namespace, network netip.Prefix, number int) (all []netip.Addr, err error) {
	addr := network.Addr()
	for range number {
		addr = addr.Next()
		if err := ns.AddAddr(lab.Dev, netip.PrefixFrom(addr, 16)); err != nil {
			return nil, err
		}
		all = append(all, addr)
	}
	return all, nil
}

// Web is the service in the lab.
func Web(rig *lab.Lab) netip.AddrPort { return netip.AddrPortFrom(rig.ServerV4, 80) }

// Sleep waits, or returns the context's error.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// Milliseconds is a duration as figures have it.
func Milliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }
