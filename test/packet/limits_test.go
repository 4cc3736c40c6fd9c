// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"narthex/test/nettest"
)

// What one limit refuses spends nothing of the others, and counts there.
func TestLimitsTogether(t *testing.T) {
	s := share(t, bucketPolicy("rate: 1/h, burst: 7, limits: [{rate: 1/h, burst: 9}, {rate: 1/h, burst: 2, per: source}, {rate: 1/h, burst: 4, per: {v4: 24}}]"))
	h := &s.hooks[0]
	for _, c := range []struct {
		from         string
		want         int
		all, network float64
	}{
		{"203.0.113.1", 2, 7, 2},
		{"203.0.113.2", 2, 5, 0},
		{"203.0.113.3", 0, 5, 0},
		{"198.51.100.1", 2, 3, 2},
		{"198.51.100.2", 1, 2, 1}, // the rate has no more
		{"192.0.2.1", 0, 2, 4},
	} {
		if got := passes(t, h, c.from, 5); got != c.want {
			t.Errorf("%d SYNs of %s passed, want %d", got, c.from, c.want)
		}
		for limit, want := range map[int]float64{0: c.all, 2: c.network} {
			b, err := s.Bucket(0, limit, netip.MustParseAddr(c.from))
			if err != nil || b.Tokens < want-0.01 || b.Tokens > want+0.01 {
				t.Errorf("after %s limit %d has %.2f tokens, %v, want %.0f", c.from, limit, b.Tokens, err, want)
			}
		}
	}
	stats, err := s.Stats()
	nettest.Check(t, err)
	if got, want := stats.RuleLimits[0], []uint64{0, 9, 5}; !slices.Equal(got, want) || stats.Rules[0].Dropped != 23 {
		t.Errorf("limits have refused %v, the rule %d, want %v, 23", got, stats.Rules[0].Dropped, want)
	}
}

// accepted is a SYN that passed: decided on between two times.
type accepted struct{ before, after int64 }

func clock(t testing.TB) int64 {
	var ts unix.Timespec
	nettest.Check(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts))
	return ts.Nano()
}

// onEachCPU runs a function on every CPU at once, with the number of the run.
func onEachCPU(t *testing.T, run func(n int)) {
	var cpus unix.CPUSet
	nettest.Check(t, unix.SchedGetaffinity(0, &cpus))
	var all sync.WaitGroup
	for n, cpu := 0, 0; n < cpus.Count(); cpu++ {
		if !cpus.IsSet(cpu) {
			continue
		}
		all.Add(1)
		go func(n int) {
			defer all.Done()
			runtime.LockOSThread() // and never unlocked: the thread ends with its affinity
			var one unix.CPUSet
			one.Set(cpu)
			nettest.Check(t, unix.SchedSetaffinity(0, &one))
			run(n)
		}(n)
		n++
	}
	all.Wait()
}

// On all CPUs at once nothing is accepted beyond any of the limits, over any time.
func TestLimitsAreNeverExceeded(t *testing.T) {
	const sources, all, each, burst = 4, 20_000, 6_000, 3
	s := share(t, bucketPolicy(fmt.Sprintf("limits: [{rate: %d/s, burst: %d}, {rate: %d/s, burst: %d, per: source}]", all, burst, each, burst)))
	h := &s.hooks[0]
	var frames [sources][]byte
	for i := range frames {
		frames[i] = syn(fmt.Sprintf("203.0.113.%d:4000", i), "10.0.0.1:80").bytes(t)
	}
	var mu sync.Mutex
	var passed [sources + 1][]accepted // the last: of all
	onEachCPU(t, func(n int) {
		var mine [sources][]accepted
		for i, until := n, time.Now().Add(700*time.Millisecond); time.Now().Before(until); i++ {
			source := i * 7 % sources
			a := accepted{before: clock(t)}
			dropped := h.send(t, frames[source])
			if a.after = clock(t); !dropped {
				mine[source] = append(mine[source], a)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for i := range mine {
			passed[i] = append(passed[i], mine[i]...)
			passed[sources] = append(passed[sources], mine[i]...)
		}
	})
	for i, list := range passed {
		rate := map[bool]int64{true: all, false: each}[i == sources]
		if len(list) < 100 {
			t.Errorf("only %d accepted: nothing was tested", len(list))
		}
		checkAccepted(t, list, int64(time.Second)/rate, burst)
	}
}

// checkAccepted looks at windows from each SYN on that was accepted.
func checkAccepted(t *testing.T, list []accepted, interval, burst int64) {
	t.Helper()
	const most = 300
	slices.SortFunc(list, func(a, b accepted) int { return int(a.before - b.before) })
	for i, first := range list {
		end := first.after
		for j, last := range list[i:min(i+most, len(list))] {
			end = max(end, last.after)
			if got, due := int64(j+1), burst+(end-first.before)/interval; got > due {
				t.Fatalf("%d accepted within %d ns, of which %d are due", got, end-first.before, due)
			}
		}
	}
}

// What is refused by a later limit comes back to the earlier one, on all CPUs at once.
func TestLimitsGiveBack(t *testing.T) {
	const tokens, each, tries = 3000, 2, 8
	s := share(t, bucketPolicy(fmt.Sprintf("limits: [{rate: 1/h, burst: %d}, {rate: 1/h, burst: %d, per: source}]", tokens, each)))
	h := &s.hooks[0]
	var mu sync.Mutex
	total := 0
	next := 0
	source := func() (b []byte, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		next++
		return syn(fmt.Sprintf("10.9.%d.%d:4000", next>>8, next&255), "10.0.0.1:80").bytes(t), total < tokens-10
	}
	send := func(b []byte, n int) {
		for range n {
			if !h.send(t, b) {
				mu.Lock()
				total++
				mu.Unlock()
			}
		}
	}
	onEachCPU(t, func(int) {
		for b, more := source(); more; b, more = source() {
			send(b, tries)
		}
	})
	for range 20 { // alone: what is left, and no more
		b, _ := source()
		send(b, each)
	}
	if total > tokens || total < tokens-tokens/1000 {
		t.Errorf("%d accepted of %d tokens", total, tokens)
	}
}
