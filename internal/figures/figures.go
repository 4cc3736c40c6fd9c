// SPDX-License-Identifier: Apache-2.0

// Package figures writes numbers so that they fit a column and can be read at a glance.
package figures

import (
	"fmt"
	"math"
	"strconv"
)

// Span returns two digits or more of a time in seconds.
func Span(seconds float64) string {
	const (
		tenths   = 9.95  // where a fraction no longer matters
		thousand = 999.5 // what would be rounded to 1000
		minute   = 59.95
	)
	micros, millis := seconds*1e6, seconds*1e3
	switch {
	case micros < thousand:
		return fmt.Sprintf("%.0fµs", math.Round(micros))
	case millis < tenths:
		return fmt.Sprintf("%.1fms", millis)
	case millis < thousand:
		return fmt.Sprintf("%.0fms", millis)
	case seconds < minute:
		return fmt.Sprintf("%.1fs", seconds)
	}
	return fmt.Sprintf("%.0fs", seconds)
}

// Amount returns a number in at most seven characters: exact, or three digits of a large one.
func Amount(n uint64) string {
	const exact, step, thousand = 10_000_000, 1000, 999.5
	if n < exact {
		return strconv.FormatUint(n, 10)
	}
	scaled, units := float64(n)/step, "kMGTPE"
	for scaled >= thousand {
		scaled, units = scaled/step, units[1:]
	}
	digits := 3 - len(strconv.Itoa(int(math.Round(scaled))))
	return fmt.Sprintf("%.*f%c", digits, scaled, units[0])
}

// Rate returns a number per second in at most five characters: whole, but with a tenth below 10,
// and three digits of a large one.
func Rate(r float64) string {
	const (
		tenths   = 9.95
		exact    = 99_999.5
		step     = 1000
		thousand = 999.5
	)
	switch {
	case r == 0:
		return "0"
	case r < tenths:
		return fmt.Sprintf("%.1f", math.Max(r, 0.1)) // what is not 0 is not shown as 0
	case r < exact:
		return fmt.Sprintf("%.0f", r)
	}
	scaled, units := r/step, "kMGTPE"
	for scaled >= thousand && len(units) > 1 {
		scaled, units = scaled/step, units[1:]
	}
	return fmt.Sprintf("%.0f%c", scaled, units[0])
}

// Age returns how long ago something was, in whole units of the largest that fits.
func Age(seconds float64) string {
	const minute, hour, day = 60, 3600, 86400
	switch {
	case seconds < minute:
		return fmt.Sprintf("%.0fs", math.Floor(max(seconds, 0)))
	case seconds < hour:
		return fmt.Sprintf("%.0fm", math.Floor(seconds/minute))
	case seconds < 2*day:
		return fmt.Sprintf("%.0fh", math.Floor(seconds/hour))
	}
	return fmt.Sprintf("%.0fd", math.Floor(seconds/day))
}
