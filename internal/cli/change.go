// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"time"

	"narthex/internal/api"
)

// printChange says what has changed last, and what may change by itself.
func printChange(b *strings.Builder, s api.Status, now time.Time) {
	if c := s.Policy.Change; c != nil {
		fmt.Fprintf(b, "last change: %s, %s ago\n", lastChange(*c), ageText(now.Sub(c.At)))
	}
	if u := s.Policy.Unconfirmed; u != nil {
		fmt.Fprintf(b, "not confirmed: %s (%s) comes back at %s; `narthex confirm` keeps this one\n",
			u.Previous.File, shortHash(u.Previous.Hash), u.Until.Local().Format(time.TimeOnly))
		if u.Fault != "" {
			fmt.Fprintf(b, "note: it could not be taken back: %s\n", u.Fault)
		}
	}
	switch t := s.Trial; {
	case t == nil:
	case t.Ended != "":
		fmt.Fprintf(b, "trial of %s (%s) has ended: %s; `narthex shadow` shows it\n", t.Candidate.File, shortHash(t.Candidate.Hash), t.Ended)
	default:
		fmt.Fprintf(b, "trial of %s (%s) by %s for %s: %d of %d decided otherwise; `narthex shadow` shows them\n",
			t.Candidate.File, shortHash(t.Candidate.Hash), t.By, ageText(now.Sub(t.Began)), t.Different, t.Seen)
	}
}

// lastChange is what has changed, and by whom.
func lastChange(c api.Change) string {
	what := c.What
	if what == "revert" {
		what = "the policy was taken back"
	}
	switch {
	case c.By != "":
		return what + " by " + c.By
	case c.What == "revert":
		return what + ", as nobody has confirmed it"
	}
	return what
}

// ageText is how long ago something was, in its largest units: 45s, 12m, 3h20m, 5d.
func ageText(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(d, 0)/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < day:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd", d/day)
}
