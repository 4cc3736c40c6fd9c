// SPDX-License-Identifier: Apache-2.0

// Package busy measures how long a core is busy, whoever works on it: processes,
// interrupts and softirqs.
//
// Most kernels count the CPU time of softirqs in ticks of several milliseconds and
// charge them to whatever process they interrupted (no CONFIG_IRQ_TIME_ACCOUNTING), so
// neither /proc/stat nor the CPU times of processes answer the question. Here a helper
// process spins on the core at the idle priority (SCHED_IDLE), reading the clock. As
// long as two readings are close together the core had nothing else to do; a longer gap
// was work of somebody else. It sees gaps from half a microsecond, also those of a
// hypervisor. Against a core that is always busy it takes 0.3 % (the weight of its
// priority), or 1.5 % where the kernel schedules sessions as groups. A core that it soaks never sleeps, so the cost of waking it is not in the
// figures.
package busy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"narthex/internal/lab"
	"narthex/internal/lab/reexec"
)

const (
	helper = "idle"
	pageFD = 3 // the helper's first extra file
)

// maxGap is how far apart two readings of the clock may be on an idle core.
const maxGap = 500 * time.Nanosecond

// page is the memory that the helper shares with the meter.
type page struct {
	running atomic.Bool
	idle    atomic.Int64 // nanoseconds
}

func init() {
	reexec.Register(helper, func([]byte) error { return soak() })
}

// Meter measures one core.
type Meter struct {
	cmd   *exec.Cmd
	done  chan struct{}
	page  *page
	mem   []byte
	start time.Time
}

// Start begins to measure a core. The program must call reexec.Main first.
func Start(cpu int) (m *Meter, err error) {
	file, err := unix.MemfdCreate("narthex-busy", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("measure core %d: %w", cpu, err)
	}
	shared := os.NewFile(uintptr(file), "narthex-busy")
	defer shared.Close()
	mem, err := mapPage(file)
	if err != nil {
		return nil, fmt.Errorf("measure core %d: %w", cpu, err)
	}
	m = &Meter{mem: mem, page: (*page)(unsafe.Pointer(&mem[0])), done: make(chan struct{})}
	program, env, err := reexec.Command(helper, nil)
	if err != nil {
		return nil, errors.Join(err, unix.Munmap(mem))
	}
	m.cmd = exec.Command(program)
	m.cmd.Env, m.cmd.Stderr = env, os.Stderr
	m.cmd.ExtraFiles = []*os.File{shared}
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGTERM}
	if err := lab.Pinned([]int{cpu}, m.cmd.Start); err != nil {
		return nil, errors.Join(fmt.Errorf("measure core %d: %w", cpu, err), unix.Munmap(mem))
	}
	go func() {
		_ = m.cmd.Wait() // always a signal
		close(m.done)
	}()
	if err := m.await(); err != nil {
		return nil, errors.Join(fmt.Errorf("measure core %d: %w", cpu, err), m.Close())
	}
	m.start = time.Now().Add(-time.Duration(m.page.idle.Load()))
	return m, nil
}

// mapPage gives the file room for a page and maps it.
func mapPage(file int) ([]byte, error) {
	if err := unix.Ftruncate(file, int64(unsafe.Sizeof(page{}))); err != nil {
		return nil, err
	}
	return unix.Mmap(file, 0, int(unsafe.Sizeof(page{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// await waits until the helper spins.
func (m *Meter) await() error {
	timeout := time.After(30 * time.Second)
	for !m.page.running.Load() {
		select {
		case <-m.done:
			return errors.New("the helper has ended")
		case <-timeout:
			return errors.New("the core is too busy to start the helper")
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// Busy returns how long the core has been busy since Start.
func (m *Meter) Busy() time.Duration {
	idle := time.Duration(m.page.idle.Load())
	return max(0, time.Since(m.start)-idle)
}

// Close stops measuring. Busy must not be called any more.
func (m *Meter) Close() error {
	return errors.Join(lab.Terminate(m.cmd.Process, m.done), unix.Munmap(m.mem))
}

// soak counts the time in which the core has nothing to do but this, until it is killed.
func soak() error {
	mem, err := mapPage(pageFD)
	if err != nil {
		return err
	}
	p := (*page)(unsafe.Pointer(&mem[0]))
	runtime.LockOSThread()
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return fmt.Errorf("take the idle priority: %w", err)
	}
	if err := standBack(); err != nil {
		return fmt.Errorf("take the idle priority: %w", err)
	}
	p.running.Store(true)
	last := time.Now()
	for {
		now := time.Now()
		if gap := now.Sub(last); gap <= maxGap {
			p.idle.Add(int64(gap))
		}
		last = now
	}
}

// standBack is for kernels that schedule sessions as groups (CONFIG_SCHED_AUTOGROUP): there
// the idle priority counts within the session alone, so the helper has one of its own, of
// the lowest weight.
func standBack() error {
	err := os.WriteFile("/proc/self/autogroup", []byte("19"), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
