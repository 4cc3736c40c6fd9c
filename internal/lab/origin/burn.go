// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"math"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// sink keeps the compiler from leaving out the work.
var sink atomic.Uint64

// burn does a fixed amount of work. Work is counted in rounds and not by a clock: with
// most kernels' accounting a thread's CPU time contains the interrupts that came while
// it ran, so a loop that waits for its clock would do less the more packets arrive.
func burn(rounds int) {
	x := uint64(88172645463325252)
	for range rounds { // xorshift64, Marsaglia 2003
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	sink.Store(x)
}

// calibrate returns how many rounds this core does in a nanosecond when nothing disturbs
// it: the best of many short trials.
func calibrate() float64 {
	const trials, rounds = 200, 50_000
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	best := int64(math.MaxInt64)
	for range trials {
		start := threadCPU()
		burn(rounds)
		best = min(best, threadCPU()-start)
	}
	return rounds / float64(max(1, best))
}

// threadCPU returns the CPU time of this thread in nanoseconds.
func threadCPU() int64 {
	var ts unix.Timespec
	// Cannot fail: the clock exists and the pointer is valid.
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
	return ts.Nano()
}
