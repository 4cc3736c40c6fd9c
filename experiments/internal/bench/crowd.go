// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"time"

	"narthex/internal/load"
)

// Starter is any kind of load.
type Starter interface {
	Start(context.Context) (*load.Run, error)
}

// Crowd is clients at work.
type Crowd struct {
	ctx    context.Context // those that Add starts end with it
	cancel context.CancelFunc
	runs   []*load.Run
}

// Gather starts clients that end with End. If that fails, all of them have ended.
func Gather(ctx context.Context, clients ...Starter) (*Crowd, error) {
	ctx, cancel := context.WithCancel(ctx)
	c := &Crowd{ctx: ctx, cancel: cancel}
	if err := c.Add(clients...); err != nil {
		return nil, err
	}
	return c, nil
}

// Add starts more clients. If that fails, all end.
func (c *Crowd) Add(clients ...Starter) error {
	for _, s := range clients {
		r, err := s.Start(c.ctx)
		if err != nil {
			c.End()
			return err
		}
		c.Join(r)
	}
	return nil
}

// Join adds clients that have started, and which End waits for but does not end.
func (c *Crowd) Join(r *load.Run) { c.runs = append(c.runs, r) }

// End ends all clients.
func (c *Crowd) End() {
	c.cancel()
	for _, r := range c.runs {
		<-r.Done()
	}
}

// Interval reports what the clients did since the last call, in the order in which they came.
func (c *Crowd) Interval() (all Reports) {
	for _, r := range c.runs {
		all = append(all, r.Interval())
	}
	return all
}

// Reports are those of several clients.
type Reports []*load.Report

// Answered is how many requests of all clients were OK.
func (all Reports) Answered() (n uint64) {
	for _, r := range all {
		n += r.Outcomes[load.OK]
	}
	return n
}

// Rate is how many requests of all clients were OK per second.
func (all Reports) Rate() (sum float64) {
	for _, r := range all {
		sum += r.Rate()
	}
	return sum
}

// RanOut says of each client that ran out of ports or connections how often it did.
func (all Reports) RanOut() (why []string) {
	for _, r := range all {
		if n := r.Outcomes[load.Failed] + r.Outcomes[load.Unsent]; n > 0 {
			why = append(why, fmt.Sprintf("clients ran out of ports or connections %d times", n))
		}
	}
	return why
}

// Failed is how many requests have come to a bad end.
func Failed(r *load.Report) (n uint64) {
	for o, count := range r.Outcomes {
		if o := load.Outcome(o); o != load.OK && o != load.Unfinished {
			n += count
		}
	}
	return n
}

// Quantile is a response time in milliseconds that the given share of requests did not exceed. Those
// that failed count as the longest.
func Quantile(r *load.Report, share float64, longest time.Duration) float64 {
	ok := float64(r.Outcomes[load.OK])
	share *= (ok + float64(Failed(r))) / max(1, ok)
	if ok == 0 || share > 1 {
		return Milliseconds(longest)
	}
	return Milliseconds(r.Quantile(share))
}

// Outcomes lists how requests ended.
func Outcomes(r *load.Report) string {
	s := fmt.Sprintf("%d begun", r.Begun)
	for o, n := range r.Outcomes {
		if n > 0 {
			s += fmt.Sprintf(", %d %s", n, load.Outcome(o))
		}
	}
	return s
}
