// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// compared reads a comparison of a rate: sc_http_req_rate(0,table), sc0_http_req_rate(table)
// or src_http_req_rate(table).
func compared(fetch, arg string, values []string) (*rate, error) {
	r := &rate{}
	first, table, _ := strings.Cut(arg, ",")
	prefix, counter, _ := strings.Cut(fetch, "_")
	switch {
	case prefix == "sc":
		r.track, r.table = first, table
	case len(prefix) == 3 && strings.HasPrefix(prefix, "sc"):
		r.track, r.table = prefix[2:], first
	case prefix == "src":
		r.table = first
	default:
		return nil, fmt.Errorf("%q is not known", fetch)
	}
	r.counter = counter
	if len(values) != 2 || (values[0] != "gt" && values[0] != "ge") {
		return nil, errors.New("a rate is carried over where it is compared by gt or ge")
	}
	n, err := strconv.Atoi(values[1])
	if values[0] == "ge" {
		n--
	}
	if err != nil || n < 1 {
		return nil, fmt.Errorf("a rate of %q is none", values[1])
	}
	r.most = n
	return r, nil
}
