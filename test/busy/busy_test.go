// SPDX-License-Identifier: Apache-2.0

package busy_test

import (
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"narthex/internal/lab"
	"narthex/internal/lab/reexec"
	"narthex/test/busy"
	"narthex/test/nettest"
)

func TestMain(m *testing.M) {
	reexec.Main()
	os.Exit(m.Run())
}

// TestCountsWork compares the meter with the CPU time of a thread that works on the
// core: the core was busy at least that long.
func TestCountsWork(t *testing.T) {
	const core = 0
	m, err := busy.Start(core)
	nettest.Check(t, err)
	defer func() { nettest.Check(t, m.Close()) }()

	before := m.Busy()
	var worked time.Duration
	nettest.Check(t, lab.Pinned([]int{core}, func() error {
		start := threadCPU()
		for worked < 200*time.Millisecond {
			worked = threadCPU() - start
		}
		return nil
	}))
	if got := m.Busy() - before; got < worked*99/100 {
		t.Errorf("the core was busy for %v while a thread worked on it for %v", got, worked)
	}
}

// TestCountsIdleness ends once the core has been seen idle for a millisecond. Even a core
// that others keep busy is the helper's for a part of the time.
func TestCountsIdleness(t *testing.T) {
	m, err := busy.Start(0)
	nettest.Check(t, err)
	defer func() { nettest.Check(t, m.Close()) }()
	for start := time.Now(); time.Since(start)-m.Busy() < time.Millisecond; {
		time.Sleep(time.Millisecond)
	}
}

func threadCPU() time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
	return time.Duration(ts.Nano())
}
