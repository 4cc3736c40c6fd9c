// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"math"
	"runtime"
	"runtime/debug"
)

// spareMemory is what answering clients may take beyond the policy in force.
const spareMemory = 8 << 20

// spend lets reading and compiling a policy take the memory that it needs. What it
// returns gives that back, and keeps the daemon small until the next time: requests for
// the status of thousands of rules leave garbage, too.
func spend() (save func()) {
	debug.SetMemoryLimit(math.MaxInt64)
	return func() {
		debug.FreeOSMemory()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		debug.SetMemoryLimit(int64(m.Sys-m.HeapReleased) + spareMemory)
	}
}
