// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"
	"time"
)

func TestMoment(t *testing.T) {
	zone := time.FixedZone("here", 3600)
	now := time.Date(2026, 11, 24, 10, 0, 0, 0, zone)
	for text, want := range map[string]time.Time{
		"2h": now.Add(-2 * time.Hour), "-90s": now.Add(-90 * time.Second),
		"09:30": now.Add(-30 * time.Minute), "23:00:30": time.Date(2026, 11, 23, 23, 0, 30, 0, zone),
		"2026-11-20 14:05": time.Date(2026, 11, 20, 14, 5, 0, 0, zone), "2026-11-20": time.Date(2026, 11, 20, 0, 0, 0, 0, zone),
		"2026-11-24T08:00:00Z": now.Add(-time.Hour),
	} {
		if got, err := moment(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"yesterday", "25:00", ""} {
		if got, err := moment(text, now); err == nil {
			t.Errorf("%q: %v, want an error", text, got)
		}
	}
}
