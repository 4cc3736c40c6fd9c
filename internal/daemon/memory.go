// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"runtime"
	"runtime/debug"
)

// spareMemory is what answering clients may take beyond the policy in force.
const spareMemory = 8 << 20

// loadMemory is what reading and compiling a policy may take before the collector works
// harder; a larger policy still loads.
const loadMemory = 40 << 20

// spend lets reading and compiling a policy take the memory that it needs. What it
// returns gives that back, and keeps the daemon small until the next time: requests for
// the status of thousands of rules leave garbage, too.
func spend() (save func()) {
	debug.SetMemoryLimit(loadMemory)
	return func() {
		debug.FreeOSMemory()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		debug.SetMemoryLimit(int64(m.Sys-m.HeapReleased) + spareMemory)
	}
}
