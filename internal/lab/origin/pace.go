// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"net/http"
	"strconv"
	"sync/atomic"
)

// pace is how many times as long as configured requests take.
type pace struct {
	worked, slept atomic.Int64 // 0 is once
}

// set takes the pace from the parameters of a request.
func (p *pace) set(r *http.Request) {
	times := func(name string) int64 {
		n, err := strconv.Atoi(r.FormValue(name))
		if err != nil {
			return 1
		}
		return int64(n)
	}
	p.worked.Store(times("work"))
	p.slept.Store(times("sleep"))
}

func (p *pace) work() int  { return int(max(1, p.worked.Load())) }
func (p *pace) sleep() int { return int(max(1, p.slept.Load())) }
