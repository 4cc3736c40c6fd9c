// SPDX-License-Identifier: Apache-2.0

package generator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	tick     = time.Millisecond // at high rates, SYNs go together so often
	patience = 20 * time.Millisecond
	batch    = 64 // frames; the kernel's own default
)

// pacer spreads SYNs over time.
type pacer struct {
	rate  int64
	begun time.Time
	done  float64 // sent or given up, since then
}

// due returns how many SYNs are to be sent now at a rate, and how many are given up because the
// sender was too far behind: an open loop does not make up for more than its patience.
func (p *pacer) due(rate int64, now time.Time) (n, lost uint64) {
	if rate != p.rate || p.begun.IsZero() {
		*p = pacer{rate: rate, begun: now}
	}
	switch {
	case rate < 0:
		return 0, 0
	case rate == 0:
		return 16 * batch, 0
	}
	behind := uint64(max(0, float64(rate)*now.Sub(p.begun).Seconds()-p.done))
	n = min(behind, max(1, uint64(float64(rate)*patience.Seconds())))
	p.done += float64(behind)
	return n, behind - n
}

// pause is for how long to sleep before there may be something to be sent.
func (p *pacer) pause() time.Duration {
	switch {
	case p.rate == 0:
		return 0
	case p.rate < 0:
		return tick
	}
	return min(100*time.Millisecond, max(tick, time.Second/time.Duration(p.rate)))
}

// send sends at the rate of the moment until the context ends. It sleeps in the kernel, which
// costs a fraction of what a timer of the runtime does on a thread that is locked.
func (g *Generator) send(ctx context.Context) error {
	var p pacer
	for ctx.Err() == nil {
		n, lost := p.due(g.rate.Load(), time.Now())
		g.unsent.Add(lost)
		if n > 0 {
			if err := g.program.inject(uint32(n)); err != nil {
				return err
			}
		}
		if d := p.pause(); d > 0 {
			t := unix.NsecToTimespec(d.Nanoseconds())
			if err := unix.Nanosleep(&t, nil); err != nil && !errors.Is(err, unix.EINTR) {
				return fmt.Errorf("sleep: %w", err)
			}
		}
	}
	return nil
}
