// SPDX-License-Identifier: Apache-2.0

package draft

import (
	"fmt"
	"strconv"
	"time"

	"narthex/internal/policy"
)

// coarse is the part of a rate that may be lost by rounding to a whole number.
const coarse = 0.05

// Rate returns so many per time as a policy writes it, and a note if that had to be rounded
// down. The error says why it cannot be written.
func Rate(count int, per time.Duration) (text, note string, err error) {
	if count <= 0 || per <= 0 {
		return "", "", fmt.Errorf("a rate of %d lets nothing pass", count)
	}
	second := float64(count) * float64(time.Second) / float64(per)
	minute := second * 60
	was := fmt.Sprintf("%d in %s", count, span(per))
	switch {
	case second > policy.MaxRate:
		return "", "", fmt.Errorf("the most that Narthex counts is %d/s", policy.MaxRate)
	case whole(second):
		return strconv.Itoa(int(second)) + "/s", "", nil
	case whole(minute):
		return strconv.Itoa(int(minute)) + "/m", "", nil
	case second >= 1/coarse:
		return strconv.Itoa(int(second)) + "/s", was + ", rounded down.", nil
	case minute >= 1/coarse:
		return strconv.Itoa(int(minute)) + "/m", was + ", rounded down.", nil
	}
	return "", "", fmt.Errorf("%s is not a whole number per second or minute", was)
}

func whole(f float64) bool { return f >= 1 && f == float64(int(f)) }

// span returns a duration without parts that are zero.
func span(d time.Duration) string {
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if d%u.unit == 0 {
			return strconv.Itoa(int(d/u.unit)) + u.name
		}
	}
	return d.String()
}
