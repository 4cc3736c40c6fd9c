// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"narthex/internal/live"
	"narthex/internal/tui"
)

const (
	// viewEvery is how often the daemon makes a view.
	viewEvery = time.Second
	// againAfter is when to look for a daemon that has gone.
	againAfter = time.Second
	// plainWidth is how wide a view is where there is no terminal.
	plainWidth = 100
)

func topCommand(env Env) *cobra.Command {
	var opts topOptions
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch who is served, who waits, and who is turned away and why",
		Long: `Show the services as they are at this moment, on the whole screen: the limit and what
has set it, the requests in service and waiting, what arrives, is served and rejected per
second and how long it waits, class by class; for what reasons requests and connections
are turned away, by which rules, and which clients; and the last changes of limits.

Press ? for the keys: sorting, filtering, pausing. If the daemon ends, the last view stays,
with a line that says so, until one answers again. Clients are known from events, of which
the kernel tells a part in a flood: their figures are at least so high.

With --once, or where the output is no terminal, it prints one view as text and ends. On a
terminal that cannot be drawn on (TERM=dumb) it prints one after the other. While nobody
watches, the daemon does nothing for it.`,
		Example: `  narthex top
  narthex top --interval 5s
  narthex top --once
  narthex top --json --once | jq '.services[] | {name, rejected_by}'`,
		Args: none,
	}
	t := addTarget(cmd, env)
	flags := cmd.Flags()
	flags.BoolVar(&opts.once, "once", false, "print one view as text and end")
	flags.BoolVar(&opts.asJSON, "json", false, "print JSON, one view per line")
	flags.DurationVar(&opts.interval, "interval", viewEvery, "time between views, of which rates are")
	complete(cmd, "interval", func(string) []string { return []string{"1s", "2s", "5s", "10s"} })
	prepare := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if opts.interval < viewEvery {
			return fmt.Errorf("--interval %s: use %s or more", opts.interval, viewEvery)
		}
		return prepare(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM)
		defer stop()
		err := opts.run(ctx, t)
		if ctx.Err() != nil {
			return nil
		}
		return t.explain(err)
	}
	return cmd
}

type topOptions struct {
	once, asJSON bool
	interval     time.Duration
}

func (o topOptions) run(ctx context.Context, t *target) error {
	show := o.printer(t.env)
	switch {
	case o.once, t.env.Screen == NoScreen && !o.asJSON:
		v, err := o.one(ctx, t)
		if err != nil {
			return err
		}
		return show(v)
	case o.asJSON, t.env.Screen == DumbScreen:
		pace := pacer{every: o.interval}
		return live.Watch(ctx, t.client(), func() {}, func(v live.View) error {
			if !pace.due(&v) {
				return nil
			}
			return show(v)
		})
	}
	return o.draw(ctx, t)
}

// printer returns what prints a view.
func (o topOptions) printer(env Env) func(live.View) error {
	if o.asJSON {
		out := json.NewEncoder(env.Stdout)
		out.SetEscapeHTML(false)
		return func(v live.View) error { return out.Encode(v) }
	}
	return func(v live.View) error {
		_, err := io.WriteString(env.Stdout, tui.Plain(v, widthOf(env.Stdout), env.ASCII)+"\n")
		return err
	}
}

// widthOf returns how many columns a terminal has.
func widthOf(out io.Writer) int {
	if file, ok := out.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return plainWidth
}

// errEnoughViews ends watching.
var errEnoughViews = errors.New("enough views")

// one returns a view whose rates are of the interval.
func (o topOptions) one(ctx context.Context, t *target) (one live.View, err error) {
	if o.interval == viewEvery {
		return live.Once(ctx, t.client())
	}
	pace := pacer{every: o.interval}
	err = live.Watch(ctx, t.client(), func() {}, func(v live.View) error {
		if !pace.due(&v) || pace.views < 2 {
			return nil
		}
		one = v
		return errEnoughViews
	})
	if errors.Is(err, errEnoughViews) {
		err = nil
	}
	return one, err
}

// draw shows views on the whole screen until the user has seen enough. That there is no daemon
// at the start is an error; one that goes is waited for.
func (o topOptions) draw(ctx context.Context, t *target) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	screen := tea.NewProgram(tui.New(tui.Options{Interval: o.interval, ASCII: t.env.ASCII}),
		tea.WithContext(ctx), tea.WithInput(t.env.Stdin), tea.WithOutput(t.env.Stdout), tea.WithoutSignalHandler())
	found, fed := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(fed)
		o.feed(ctx, t, screen, found)
	}()
	if err := <-found; err != nil {
		return err
	}
	_, err := screen.Run()
	cancel()
	<-fed
	if errors.Is(err, context.Canceled) {
		return nil // by a signal
	}
	return err
}

// feed brings views to the screen, and looks for the daemon again when it has gone. It says
// whether it has found one at first.
func (o topOptions) feed(ctx context.Context, t *target, screen *tea.Program, found chan<- error) {
	began := false
	for {
		pace := pacer{every: o.interval, eager: true}
		err := live.Watch(ctx, t.client(), func() {
			if !began {
				began = true
				found <- nil
			}
		}, func(v live.View) error {
			if pace.due(&v) {
				screen.Send(tui.ViewMsg(v))
			}
			return nil
		})
		if !began {
			found <- err
			return
		}
		if ctx.Err() != nil {
			return
		}
		screen.Send(tui.LostMsg{Why: t.explain(err).Error()})
		select {
		case <-ctx.Done():
			return
		case <-time.After(againAfter):
		}
	}
}

// pacer lets a view through once in an interval, and makes its rates be of that.
type pacer struct {
	every time.Duration
	eager bool // until there are rates of the interval, those of the daemon's views will do
	views int  // let through for their time
	last  time.Time
	meter live.Meter
}

// due reports whether a view is to be shown, and sets its rates.
func (p *pacer) due(v *live.View) bool {
	if p.every <= viewEvery {
		p.views++
		return true
	}
	// The daemon's views come about every second: what is nearer to this one is due now.
	if p.views > 0 && v.Time.Sub(p.last) < p.every-viewEvery/2 {
		return p.eager && p.views == 1
	}
	sources := v.Sources
	*v = p.meter.View(v.Time, v.Status)
	v.Sources = sources
	p.last = v.Time
	p.views++
	return true
}
