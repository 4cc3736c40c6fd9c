// SPDX-License-Identifier: Apache-2.0

package draft

import (
	"fmt"
	"math/big"
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
	was := fmt.Sprintf("%d in %s", count, span(per))
	if second := float64(count) / per.Seconds(); second > policy.MaxRate {
		return "", "", fmt.Errorf("the most that Narthex counts is %d/s", policy.MaxRate)
	}
	units := []struct {
		name string
		unit time.Duration
	}{{"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}}
	for _, u := range units {
		if n, exact := times(count, u.unit, per); exact && n > 0 {
			return fmt.Sprint(n, "/", u.name), "", nil
		}
	}
	for _, u := range units {
		if n, _ := times(count, u.unit, per); float64(n) >= 1/coarse {
			return fmt.Sprint(n, "/", u.name), was + ", rounded down.", nil
		}
	}
	return "", "", fmt.Errorf("%s is not a whole number per second, minute or hour", was)
}

// times returns how many so many per time are per another one, rounded down, and whether that is exact.
func times(count int, unit, per time.Duration) (n int64, exact bool) {
	all := new(big.Int).Mul(big.NewInt(int64(count)), big.NewInt(int64(unit)))
	quotient, rest := all.QuoRem(all, big.NewInt(int64(per)), new(big.Int))
	return quotient.Int64(), rest.Sign() == 0
}

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
