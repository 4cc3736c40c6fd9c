// SPDX-License-Identifier: Apache-2.0

package adapt

import "fmt"

const reportChange = 0.1 // share by which a limit must have changed to be told

// reporter says why a limit changed, where the change is worth a line.
type reporter struct {
	limit  int
	level  Level
	closes bool
	told   bool
}

func (r *reporter) step(s *Sample, d *Decision, c *Controller) string {
	var reason string
	switch {
	case d.Closes && !r.closes:
		reason = fmt.Sprintf("the server does nothing while requests are held: its workers stay with connections, and it is asked to close these; limit %s: %s", c.limitBy(d), c.because(s))
	case r.closes && !d.Closes:
		reason = "the server is not asked to close connections any more; limit " + c.limitBy(d)
	case d.Overload && r.level == LevelCalm:
		reason = fmt.Sprintf("overload begins: %d requests wait, %d are in service; limit %s", s.Waiting, s.InService, c.limitBy(d))
	case !d.Overload && r.level > LevelCalm:
		reason = "overload is over: nothing has waited for a while; limit " + c.limitBy(d)
	case d.Level != r.level:
		reason = fmt.Sprintf("overload is at the level %s: %.0f requests/s are turned away, %.0f/s answered; limit %s", d.Level, c.overload.refused, c.overload.served, c.limitBy(d))
	case (d.Overload || c.bound.active || !r.told) && changed(r.limit, d.Limit):
		reason = fmt.Sprintf("limit %s after %s by %s: %s", limitText(d.Limit), limitText(r.limit), d.Signal, c.because(s))
	default:
		return ""
	}
	r.limit, r.level, r.closes, r.told = d.Limit, d.Level, d.Closes, true
	return reason
}

// limitBy says what the limit is, and what has set it where it may change.
func (c *Controller) limitBy(d *Decision) string {
	if c.fixed() || c.config.Unlimited {
		return limitText(d.Limit)
	}
	return limitText(d.Limit) + " by " + d.Signal
}

func changed(from, to int) bool {
	if from == 0 || to == 0 {
		return from != to
	}
	diff := float64(to-from) / float64(from)
	return diff >= reportChange || diff <= -reportChange
}

func limitText(n int) string {
	if n == 0 {
		return "unlimited"
	}
	return fmt.Sprint(n)
}

// because says what the server looked like.
func (c *Controller) because(s *Sample) string {
	text := fmt.Sprintf("%.0f completions/s, %d in service", float64(s.Served)/s.Span.Seconds(), s.InService)
	if s.Cores > 0 {
		text += fmt.Sprintf(", %.0f %% of %.3g cores busy", 100*s.use()/s.Cores, s.Cores)
	}
	return text
}
