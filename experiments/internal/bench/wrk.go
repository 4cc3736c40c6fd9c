// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
)

var wrkRate = regexp.MustCompile(`(?m)^Requests/sec:\s+([0-9.]+)$`)

var errNotServed = errors.New("not all requests were answered")

// RateOfWrk reads the requests per second from what wrk has printed. It returns an error if wrk failed, says no
// rate, or tells of requests that were not answered well.
func RateOfWrk(said []byte, err error) (float64, error) {
	m := wrkRate.FindSubmatch(said)
	if err != nil || m == nil || bytes.Contains(said, []byte("Non-2xx")) || bytes.Contains(said, []byte("Socket errors")) {
		return 0, fmt.Errorf("wrk: %w: %s", errors.Join(err, errNotServed), said)
	}
	return strconv.ParseFloat(string(m[1]), 64)
}
