// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"time"
)

// momentText is how times are given.
const momentText = "a time such as 2h (ago), 14:05, \"2026-11-24 14:05\" or 2026-11-24T14:05:00Z"

// moment reads a time, of the local clock unless it says another: the last one that was, if it is
// of the day alone.
func moment(text string, now time.Time) (time.Time, error) {
	if ago, err := time.ParseDuration(strings.TrimPrefix(text, "-")); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	for _, form := range []string{time.DateTime, "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(form, text, now.Location()); err == nil {
			return at, nil
		}
	}
	for _, form := range []string{time.TimeOnly, "15:04"} {
		if at, err := time.Parse(form, text); err == nil {
			today := time.Date(now.Year(), now.Month(), now.Day(), at.Hour(), at.Minute(), at.Second(), 0, now.Location())
			if today.After(now) {
				today = today.AddDate(0, 0, -1)
			}
			return today, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time: use %s", text, momentText)
}
