// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"runtime"
	"runtime/debug"
	"sync"
)

const (
	// spareMemory is what answering clients may take beyond the policy in force.
	spareMemory = 8 << 20
	// loadMemory is what reading and compiling a policy may take before the collector works
	// harder; a larger policy still loads.
	loadMemory = 40 << 20
	// trialMemory is what a trial may take beside all that: what it remembers of sources.
	trialMemory = 32 << 20
)

// allowance is how much memory the process may take before the collector works harder. It keeps
// the daemon small: requests for the status of thousands of rules leave garbage, too.
type allowance struct {
	mu     sync.Mutex
	loads  int // policies that are being read
	trials int // that run
}

// memory is that of this process.
var memory allowance

// spend lets reading and compiling a policy take the memory that it needs. What it returns gives
// that back.
func (a *allowance) spend() (save func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.loads++
	a.set()
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.loads--
		a.set()
	}
}

// beginTrial lets a trial take memory until the function is called that it returns.
func (a *allowance) beginTrial() (end func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.trials++
	a.set()
	return sync.OnceFunc(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.trials--
		a.set()
	})
}

// set puts it in force. The caller holds mu.
func (a *allowance) set() {
	if a.loads > 0 {
		debug.SetMemoryLimit(loadMemory + int64(a.trials)*trialMemory)
		return
	}
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	debug.SetMemoryLimit(int64(m.Sys-m.HeapReleased) + spareMemory + int64(a.trials)*trialMemory)
}
