// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"narthex/internal/load"
	"narthex/internal/testnet"
)

// bench is what all parts share.
type bench struct {
	narthex                string             // the program
	home                   *testnet.Namespace // holds what goes with the program; nil if it was not built
	quick                  bool
	serverCPUs, clientCPUs []int
	begun                  time.Time
	daemons                int // started so far
}

func newBench(ctx context.Context, o options) (*bench, error) {
	cpus, err := testnet.CPUs()
	if err != nil {
		return nil, err
	}
	if err := goFirst(); err != nil {
		return nil, err
	}
	b := &bench{
		narthex:    o.narthex,
		quick:      o.quick,
		serverCPUs: cpus[:1],
		clientCPUs: cpus[len(cpus)-1:],
		begun:      time.Now(),
	}
	if b.narthex != "" {
		b.narthex, err = filepath.Abs(b.narthex)
		return b, err
	}
	if err := b.build(ctx); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// goFirst has this process and those that it starts run before others on the machine,
// whose work would be taken for the server's.
func goFirst() error {
	const nice = -10
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		// Threads that start later inherit it.
		if err := unix.Setpriority(unix.PRIO_PROCESS, id, nice); err != nil && err != unix.ESRCH {
			return fmt.Errorf("take a higher priority: %w; run it as root", err)
		}
	}
	return nil
}

// build builds narthex into a folder that goes with the bench, or when the next one
// starts, should this one be killed.
func (b *bench) build(ctx context.Context) (err error) {
	if b.home, err = testnet.New("syn-build"); err != nil {
		return err
	}
	dir, err := b.home.TempDir("syn-build")
	if err != nil {
		return err
	}
	b.narthex = filepath.Join(dir, "narthex")
	b.progress("building narthex")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", b.narthex, "narthex/cmd/narthex")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build narthex: %w: %s; run it within the module, or use -narthex", err, out)
	}
	return nil
}

func (b *bench) close() error {
	if b.home == nil {
		return nil
	}
	return b.home.Close()
}

// progress says on stderr what is going on.
func (b *bench) progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%4.0fs  %s\n", time.Since(b.begun).Seconds(), fmt.Sprintf(format, args...))
}

// pick returns the first value, or in a quick run the second.
func pick[T any](b *bench, normal, quick T) T {
	if b.quick {
		return quick
	}
	return normal
}

// lab makes the namespaces. What the server's end receives is handled on the server's
// core, where a network card would have it; on a veth it would otherwise be handled on
// the core that sends.
func (b *bench) lab(purpose string, clients int) (*testnet.Lab, error) {
	lab, err := testnet.NewLab(purpose, clients)
	if err != nil {
		return nil, err
	}
	if err := lab.Server.SetRPS(testnet.Dev, b.serverCPUs...); err != nil {
		_ = lab.Close() // the first error says what is wrong
		return nil, err
	}
	return lab, nil
}

// nginx starts the web server on its core.
func (b *bench) nginx(lab *testnet.Lab) (*testnet.Server, error) {
	return lab.Server.StartNginx(testnet.NginxConfig{
		Listen:  []netip.AddrPort{web(lab)},
		Backlog: 4096,
		CPUs:    b.serverCPUs,
	})
}

// client is one of the lab's clients, on the clients' core.
func (b *bench) client(lab *testnet.Lab, n int, target netip.AddrPort, duration time.Duration) load.Client {
	return load.Client{
		NS:       lab.Client,
		CPUs:     b.clientCPUs,
		Target:   target,
		Sources:  lab.ClientsV4[n : n+1],
		Duration: duration,
	}
}

// web is the service in the lab.
func web(lab *testnet.Lab) netip.AddrPort { return netip.AddrPortFrom(lab.ServerV4, 80) }

// sleep waits, or returns the context's error.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
