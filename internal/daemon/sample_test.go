// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"narthex/internal/adapt"
	"narthex/internal/datapath"
	"narthex/internal/host"
)

// TestSample takes the difference of two readings.
func TestSample(t *testing.T) {
	class := func(n uint64) datapath.RoomClass {
		c := datapath.RoomClass{Arrived: 10 * n, Admitted: 4 * n, Held: 5 * n, WouldHold: n, Released: 3 * n, Served: 6 * n, Lost: n, BytesOut: 50 * n, Waiting: int(n)}
		for r := range c.Rejected {
			c.Rejected[r] = n << r
		}
		c.Service.Buckets[3], c.Service.Sum = 6*n, time.Duration(n)*time.Millisecond
		return c
	}
	var rejected uint64
	for _, r := range roomRejects {
		rejected += 2 << r
	}
	if len(roomRejects) != 6 {
		t.Fatalf("rejections for want of room: %v", roomRejects)
	}
	s := &steered{
		adaptive: true, sampled: time.Second,
		last: datapath.RoomReading{Room: datapath.Room{Classes: []datapath.RoomClass{class(1), class(1)}}},
		room: datapath.RoomReading{Limit: 9, Room: datapath.Room{InService: 7, Waiting: 6, Classes: []datapath.RoomClass{class(3), class(1)}}},
	}
	unknown := machineSums{idle: host.Unknown, usage: host.Unknown, stalls: host.Stalls{-1, -1, -1}, faults: host.Unknown}
	s.machine = unknown
	want := adapt.Sample{
		At: 1500 * time.Millisecond, Span: 500 * time.Millisecond, Limit: 9,
		Arrived: 20, Entered: 14, Held: 10, Served: 12, Rejected: rejected, Lost: 2, Sent: 100, InService: 7, Waiting: 6, Backlog: 4,
		Classes:  []adapt.ClassSample{{Arrived: 20, Held: 10, Rejected: rejected, Waiting: 3}, {Waiting: 1}},
		Pressure: adapt.Pressure{CPU: -1, Memory: -1, IO: -1},
	}
	want.Service.Buckets[3], want.Service.Sum = 12, 2*time.Millisecond
	if diff := cmp.Diff(want, s.sample(1500*time.Millisecond, unknown, 4)); diff != "" {
		t.Errorf("sample (-want +got):\n%s", diff)
	}
	s.table.Shadow = true
	if got := s.sample(1500*time.Millisecond, unknown, 0); got.Held != 12 {
		t.Errorf("in shadow mode %d were held, want those, too, that would have been: 12", got.Held)
	}
	s.last.Classes[0] = class(5) // counters began anew
	if got := s.sample(1500*time.Millisecond, unknown, 0); got.Arrived != 30 {
		t.Errorf("after counters began anew %d arrived, want 30", got.Arrived)
	}
}

// TestSampleOfTheMachine tells what is not known from nothing.
func TestSampleOfTheMachine(t *testing.T) {
	two := &whereabouts{Place: &host.Place{CPUs: []int{0, 1}}}
	half := &whereabouts{Place: &host.Place{CPUs: []int{0, 1}, Quota: 0.5}}
	sums := func(p *whereabouts, idle, usage, stall time.Duration, faults int64) machineSums {
		return machineSums{place: p, idle: idle, usage: usage, stalls: host.Stalls{host.Memory: stall, host.CPU: host.Unknown, host.IO: host.Unknown}, faults: faults}
	}
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		before, now machineSums
		busy, cores float64
		memory      float64
		faults      float64
	}{
		"half idle":           {sums(two, 500*ms, -1, 0, 5), sums(two, 600*ms, -1, 10*ms, 7), 1, 2, 0.1, 20},
		"all idle, and more":  {sums(two, 500*ms, -1, 0, 5), sums(two, 900*ms, -1, 900*ms, 5), 0, 2, 1, 0},
		"nothing idle":        {sums(two, 500*ms, -1, 0, -1), sums(two, 500*ms, -1, 0, 5), 2, 2, 0, 0},
		"idle not known":      {sums(two, -1, -1, -1, 5), sums(two, 500*ms, -1, 5, -1), 0, 0, -1, 0},
		"elsewhere now":       {sums(two, 500*ms, -1, 0, 5), sums(half, 500*ms, 0, 5, 5), 0, 0, -1, 0},
		"nowhere":             {sums(nil, -1, -1, 0, 5), sums(nil, -1, -1, 50*ms, 5), 0, 0, 0.5, 0},
		"quota used up":       {sums(half, 0, 0, 0, 0), sums(half, 150*ms, 50*ms, 0, 0), 0.5, 0.5, 0, 0},
		"quota, half used":    {sums(half, 0, 0, 0, 0), sums(half, 175*ms, 25*ms, 0, 0), 0.25, 0.5, 0, 0},
		"quota, others busy":  {sums(half, 0, 0, 0, 0), sums(half, 0, 10*ms, 0, 0), 0.5, 0.5, 0, 0},
		"quota, use not told": {sums(half, 0, -1, 0, 0), sums(half, 200*ms, -1, 0, 0), 0, 0.5, 0, 0},
	} {
		s := &steered{machine: test.before}
		out := adapt.Sample{Span: 100 * ms}
		s.addMachine(&out, test.now)
		got := [4]float64{out.Busy, out.Cores, out.Pressure.Memory, out.MajorFaults}
		want := [4]float64{test.busy, test.cores, test.memory, test.faults}
		for i := range got {
			if diff := got[i] - want[i]; diff > 1e-9 || diff < -1e-9 {
				t.Errorf("%s: busy, cores, pressure on memory, faults %v, want %v", name, got, want)
				break
			}
		}
		if out.Pressure.CPU != host.Unknown || out.Pressure.IO != host.Unknown {
			t.Errorf("%s: pressure %+v", name, out.Pressure)
		}
	}
	if got := idleOf([]time.Duration{5, host.Unknown, 7}, []int{0, 2}); got != 12 {
		t.Errorf("idle %v, want 12", got)
	}
	for _, cpus := range [][]int{nil, {1}, {3}} {
		if got := idleOf([]time.Duration{5, host.Unknown, 7}, cpus); got != host.Unknown {
			t.Errorf("CPUs %v: idle %v", cpus, got)
		}
	}
}

// TestCPUsOfHiddenServers are all that the machine has.
func TestCPUsOfHiddenServers(t *testing.T) {
	const ms = time.Millisecond
	b := newBench(t)
	read := func(s *steered, idle ...time.Duration) machineSums {
		b.machine.Idle = idle
		b.reading = nil // another beat
		return b.sums(s)
	}
	hidden := &steered{place: &whereabouts{accept: []acceptQueue{{sockets: 1}}}}
	hidden.machine = read(hidden, 100*ms, host.Unknown, 300*ms)
	now := read(hidden, 150*ms, host.Unknown, 400*ms)
	out := adapt.Sample{Span: 100 * ms}
	hidden.addMachine(&out, now)
	if out.Cores != 2 || out.Busy < 0.49 || out.Busy > 0.51 {
		t.Errorf("busy %g of %g cores, want 0.5 of 2", out.Busy, out.Cores)
	}
	out = adapt.Sample{Span: 100 * ms}
	hidden.addMachine(&out, read(hidden, 200*ms, 10*ms, 500*ms)) // one was switched on
	if out.Cores != 0 {
		t.Errorf("busy %g of %g cores: those before were others", out.Busy, out.Cores)
	}
	seen := &whereabouts{Place: &host.Place{CPUs: []int{2}}, accept: hidden.place.accept}
	for what, s := range map[string]*steered{"seen": {place: seen}, "nobody listens": {place: &whereabouts{}}, "not looked for yet": {}} {
		want := map[bool]time.Duration{true: 500 * ms, false: host.Unknown}[what == "seen"]
		if got := read(s, 200*ms, 10*ms, 500*ms); got.place != s.place || got.idle != want {
			t.Errorf("%s: at %+v, idle %v", what, got.place, got.idle)
		}
	}
}

// TestWork tells what the server's own threads do from what others do on the same processors.
func TestWork(t *testing.T) {
	const ms = time.Millisecond
	place := &whereabouts{Place: &host.Place{CPUs: []int{0, 1}}}
	for _, tt := range []struct {
		name                      string
		idle, ran, waited         time.Duration // in 100 ms
		width                     float64
		wantBusy, cores, wantWork float64
		rested                    float64
	}{
		{"alone", 100 * ms, 90 * ms, 0, 4, 1, 2, 0.9, 1.1},
		{"beside others", 0, 90 * ms, 40 * ms, 4, 2, 2, 1.3, 0.7},
		{"wants more than there is", 0, 150 * ms, 400 * ms, 4, 2, 2, 2, 0},
		{"by one thread", 0, 95 * ms, 5 * ms, 1.2, 0.95, 1, 1, 0},
		{"by other processes", 50 * ms, 20 * ms, 0, 1, 1.5, 2, 0, 1.8},
	} {
		before := machineSums{place: place, idle: 0, usage: host.Unknown, faults: host.Unknown, worked: true}
		now := before
		now.idle, now.work = tt.idle, host.Work{Ran: tt.ran, Waited: tt.waited, Width: tt.width}
		s := &steered{machine: before}
		out := adapt.Sample{Span: 100 * ms}
		s.addMachine(&out, now)
		got, want := [4]float64{out.Busy, out.Cores, out.Wanted, out.Rested}, [4]float64{tt.wantBusy, tt.cores, tt.wantWork, tt.rested}
		for i := range got {
			if diff := got[i] - want[i]; diff > 1e-9 || diff < -1e-9 {
				t.Errorf("%s: busy, cores, wanted, rested %v, want %v", tt.name, got, want)
				break
			}
		}
	}
}

// TestWorkCountedLate has a thread that always runs, of which the kernel counts a part in the next sample.
func TestWorkCountedLate(t *testing.T) {
	const ms = time.Millisecond
	s := &steered{}
	before := machineSums{worked: true}
	for i, ran := range []time.Duration{48, 100, 147, 200, 250, 300, 350} {
		now := machineSums{worked: true, work: host.Work{Ran: ran * ms, Width: 1}}
		out := adapt.Sample{Span: 50 * ms, Cores: 2, Busy: 1}
		s.addWork(&out, now, before)
		if i >= 3 && (out.Busy != 1 || out.Wanted != 1 || out.Cores != 1) {
			t.Errorf("after %v ms: %v of %v cores busy, %v wanted", int(ran), out.Busy, out.Cores, out.Wanted)
		}
		before = now
	}
	now := before
	now.work.Ran += 25 * ms
	out := adapt.Sample{Span: 50 * ms, Cores: 2, Busy: 1}
	s.addWork(&out, now, before)
	if out.Busy > 0.7 {
		t.Errorf("%v of a core busy, want half of one and what was late", out.Busy)
	}
}
