// SPDX-License-Identifier: Apache-2.0

// Package demo shows a newcomer what Narthex does: a web server, a few gold and many bronze
// clients in network namespaces of their own, first without Narthex, then with it.
package demo

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// Options says how the demo runs.
type Options struct {
	Executable string // of narthex; this program if empty
	JSON       bool   // write the summary alone, as JSON
}

// policyText is the policy that the demo enforces; it names addresses of stage.go.
//
//go:embed policy.yaml
var policyText string

// script says how long the phases take.
type script struct {
	alone  time.Duration // the gold clients alone
	settle time.Duration // after a change, until figures count
	crowd  time.Duration // all clients, each without and with Narthex
	tick   time.Duration // between two refreshments of the screen
}

// A demo takes 23 s and what it takes to start.
var usual = script{alone: 3 * time.Second, settle: 2 * time.Second, crowd: 7 * time.Second, tick: 500 * time.Millisecond}

// Run shows the demo on w, as a table that changes if w is a terminal and as lines
// otherwise. It needs root, takes less than 30 s and leaves nothing behind, also when the
// context ends or SIGINT, SIGTERM or SIGHUP comes; that is an error. The program must call
// reexec.Main first.
func Run(ctx context.Context, w io.Writer, opts Options) error {
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	// As long as somebody takes SIGPIPE, a write to a closed pipe is an error and not the
	// end of the process, which would leave things behind.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, unix.SIGPIPE)
	defer signal.Stop(pipe)
	return run(ctx, w, opts, usual)
}

func run(ctx context.Context, w io.Writer, opts Options, s script) (err error) {
	if opts.Executable == "" {
		if opts.Executable, err = os.Executable(); err != nil {
			return fmt.Errorf("start demo: %w", err)
		}
	}
	st, err := newStage(opts.Executable)
	if err != nil {
		return fmt.Errorf("start demo: %w", err)
	}
	defer func() { err = errors.Join(err, st.close()) }()

	out := newScreen(w)
	if opts.JSON {
		out = newScreen(io.Discard)
	}
	out.intro()
	sum, err := play(ctx, st, out, s)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("demo stopped: %w", context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("run demo: %w", err)
	case opts.JSON:
		return sum.writeJSON(w)
	}
	out.summary(sum)
	return out.err
}

// play goes through the phases.
func play(ctx context.Context, st *stage, out *screen, s script) (*Summary, error) {
	gold, err := st.startGold(ctx)
	if err != nil {
		return nil, err
	}
	show := &show{out: out, gold: gold, tick: s.tick}
	if err := show.phase(ctx, alone, s.settle/2, s.alone); err != nil {
		return nil, err
	}
	if show.bronze, err = st.startBronze(ctx); err != nil {
		return nil, err
	}
	if err := show.phase(ctx, without, s.settle, s.crowd); err != nil {
		return nil, err
	}
	out.caption("Narthex starts; the server goes on as it is.")
	if err := st.narthex.start(ctx); err != nil {
		return nil, err
	}
	if err := show.phase(ctx, with, s.settle, s.crowd); err != nil {
		return nil, err
	}
	status, err := st.narthex.status(ctx)
	if err != nil {
		return nil, err
	}
	return summarize(show.phases, status), nil
}
