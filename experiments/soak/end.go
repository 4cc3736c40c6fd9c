// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"narthex/experiments/internal/bench"
	"narthex/internal/api"
	"narthex/internal/datapath"
)

// How long the end may take, in steps.
const (
	calmLimit  = 10 * time.Second  // until nobody is in service or waits: far less than max_service, which finds what was lost
	closeLimit = 130 * time.Second // until the kernel has given up the last connection of clients that are gone: it asks every 120 s
	sweepLimit = 45 * time.Second  // then until flows are forgotten whose end was not seen; the daemon looks every 30 s
)

// memory is what Narthex has taken.
type memory struct {
	maps   float64 // MiB
	daemon float64 // MiB, resident
}

// ending is how things are in the end.
type ending struct {
	before, after                memory
	calm                         time.Duration
	inService, waiting, gathered int
	slots, flows                 int    // not free
	sockets                      int    // that the server still has
	open                         string // what they are
	lost                         uint64
	sums                         int // of counters that do not add up
	unanswered                   int // services that did not answer the next request
	next                         []float64
	left                         int // objects of the kernel that are still there
	unknown                      int // classes of a service in which more were refused than the gate knows of
}

// memory reads what Narthex takes.
func (w *world) memory() (m memory, err error) {
	if m.maps, err = bench.MapMemory(w.narthex.Instance); err != nil {
		return m, err
	}
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", w.narthex.PID()))
	if err != nil {
		return m, err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var kib float64
		if n, _ := fmt.Sscanf(lines.Text(), "VmRSS: %f kB", &kib); n == 1 {
			m.daemon = kib / 1024
			return m, nil
		}
	}
	return m, errors.New("the kernel does not say what the daemon takes")
}

// end waits until everything is over and looks at what is left.
func (w *world) end(ctx context.Context) (*ending, error) {
	e := &ending{}
	s, err := w.calm(ctx, e)
	if err != nil {
		return nil, err
	}
	w.add(e, s)
	reasons, _ := json.Marshal(s.Reasons)
	w.Progress("  decided without a rule: %s", reasons)
	if err := w.writePolicy(w.firstPolicy()); err != nil {
		return nil, err
	}
	if _, err := w.narthex.Swap(ctx, w.policy); err != nil {
		return nil, err
	}
	for _, s := range w.rig.services {
		took, err := w.next(ctx, s)
		if err != nil {
			w.ledger.fault("%s did not answer the next request: %v", s.name, err)
			e.unanswered++
		}
		e.next = append(e.next, took.Seconds()*1e3)
	}
	if e.after, err = w.memory(); err != nil {
		return nil, err
	}
	if err := w.forgotten(ctx, e); err != nil {
		return nil, err
	}
	return e, w.gone(e)
}

// calm waits until nobody is in service or waits.
func (w *world) calm(ctx context.Context, e *ending) (s api.Status, err error) {
	for begun := time.Now(); ; {
		if s, err = w.narthexStatus(ctx); err != nil {
			return s, err
		}
		e.inService, e.waiting, e.gathered = 0, 0, 0
		for _, r := range s.Services {
			if r.RoomStatus != nil {
				e.inService, e.waiting, e.gathered = e.inService+r.InService, e.waiting+r.Waiting, e.gathered+r.Gathering
			}
		}
		e.slots, e.calm = s.WaitingRoom.Slots-s.WaitingRoom.FreeSlots, time.Since(begun)
		if e.inService+e.waiting+e.gathered+e.slots == 0 || e.calm > calmLimit {
			break
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return s, err
		}
	}
	if e.inService+e.waiting+e.gathered+e.slots > 0 {
		text := ""
		w.mu.Lock()
		w.status = s
		w.mu.Unlock()
		for _, r := range s.Services {
			text += "\n" + r.Name + ": " + w.describe(r.Name)
		}
		w.dumpFlows()
		w.ledger.fault("after %v %d in service, %d waiting, %d gathering, %d slots taken%s", calmLimit, e.inService, e.waiting, e.gathered, e.slots, text)
	}
	return s, nil
}

// dumpFlows writes the table of flows beside the packets, if those are captured.
func (w *world) dumpFlows() {
	if *capture == "" {
		return
	}
	path := filepath.Join(datapath.Root, w.narthex.Instance, "maps", "flows")
	text, err := exec.Command("bpftool", "map", "dump", "pinned", path).Output()
	if err == nil {
		err = os.WriteFile(*capture+".flows", text, 0o644)
	}
	if err != nil {
		w.Progress("  no table of flows: %v", err)
	}
}

// add looks whether the counters add up.
func (w *world) add(e *ending, s api.Status) {
	for _, r := range s.Services {
		if r.RoomStatus == nil {
			continue
		}
		for _, c := range r.Classes {
			w.addClass(e, r.Name, c)
		}
	}
}

func (w *world) addClass(e *ending, service string, c api.RoomClassStatus) {
	e.lost += c.Lost
	all := uint64(0)
	for _, n := range c.Rejected {
		all += n
	}
	// The rest, of those whose head was not complete, never came to have a turn.
	atOnce := c.Rejected["queue_full"] + c.Rejected["no_slot"] + c.Rejected["no_flow"]
	for _, sum := range []struct {
		what           string
		got, low, high uint64
	}{
		{"served, lost and paused", c.Served + c.Paused, c.Admitted + c.Released, c.Admitted + c.Released},
		{"arrived", c.Arrived, c.Admitted + c.Held, c.Admitted + c.Held + atOnce},
		{"held", c.Held, c.Released + c.GaveUp, c.Released + c.GaveUp + all},
	} {
		if sum.got < sum.low || sum.got > sum.high {
			e.sums++
			c.Wait, c.Service = api.Durations{}, api.Durations{} // long to read
			w.ledger.fault("%s, %s: %d %s, the other counters say %d to %d: %+v", service, c.Name, sum.got, sum.what, sum.low, sum.high, c)
		}
	}
	w.ledger.mu.Lock()
	told := w.ledger.refusals[service][c.Name]
	w.ledger.mu.Unlock()
	if told > all {
		e.unknown++
		w.ledger.fault("%s, %s: %d clients were refused, the gate knows of %d", service, c.Name, told, all)
	}
}

// next asks a service once more and returns how long that takes, connection included.
func (w *world) next(ctx context.Context, s *service) (time.Duration, error) {
	begun := time.Now()
	v := &visit{ctx: ctx, rng: rand.New(rand.NewPCG(*seed, 1)), rig: w.rig, service: s, class: classes[0], began: begun}
	if err := v.dial(); err != nil {
		return 0, err
	}
	defer v.raw.Close()
	err := func() error {
		switch s.protocol {
		case "tcp":
			return v.oneLine()
		case "tls":
			if err := v.handshake(); err != nil {
				return err
			}
		}
		if err := v.send(v.head(http.MethodGet, "/"+fileName(100), "Connection: close")); err != nil {
			return err
		}
		return v.file(100)
	}()
	return time.Since(begun), err
}

// forgotten stops the servers and waits until the kernel has no connection to them any more,
// and Narthex no flow.
func (w *world) forgotten(ctx context.Context, e *ending) error {
	// Attackers' connections that have no client any more end sooner.
	for name, value := range map[string]string{"ipv4/tcp_orphan_retries": "2", "ipv4/tcp_fin_timeout": "5"} {
		if err := w.rig.Server.Sysctl(name, value); err != nil {
			return err
		}
	}
	for _, s := range w.rig.services {
		if err := s.server.Close(); err != nil {
			return err
		}
	}
	w.Progress("  the servers have stopped")
	err := w.until(ctx, closeLimit, func() (bool, error) {
		err := w.rig.Server.Do(func() (err error) {
			e.sockets, err = sockets()
			return err
		})
		return e.sockets == 0, err
	})
	if err != nil {
		return err
	}
	w.Progress("  %d sockets are left", e.sockets)
	if e.sockets > 0 {
		open, err := w.rig.Server.Command("ss", "-Htanio").CombinedOutput()
		if err != nil {
			return fmt.Errorf("ss: %w: %s", err, open)
		}
		e.open = string(open)
	}
	return w.until(ctx, sweepLimit, func() (bool, error) {
		s, err := w.narthexStatus(ctx)
		e.flows = s.WaitingRoom.UsedFlows
		return e.flows == 0, err
	})
}

// until waits until a condition holds, for no longer than so long.
func (w *world) until(ctx context.Context, limit time.Duration, holds func() (bool, error)) error {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		ok, err := holds()
		if ok || err != nil {
			return err
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// sockets counts TCP sockets of this thread's namespace that are more than a memory
// (TIME_WAIT).
func sockets() (n int, err error) {
	for _, file := range []string{"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"} {
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		for i, line := range strings.Split(string(text), "\n") {
			const timeWait = "06"
			if f := strings.Fields(line); i > 0 && len(f) > 3 && f[3] != timeWait {
				n++
			}
		}
	}
	return n, nil
}

// gone stops the daemon and looks what it leaves in the kernel.
func (w *world) gone(e *ending) error {
	var programs []ebpf.ProgramID
	files, err := filepath.Glob(filepath.Join(datapath.Root, w.narthex.Instance, "programs", "*"))
	if err != nil {
		return err
	}
	for _, f := range files {
		p, err := ebpf.LoadPinnedProgram(f, nil)
		if err != nil {
			return err
		}
		info, err := p.Info()
		p.Close()
		if err != nil {
			return err
		}
		if id, ok := info.ID(); ok {
			programs = append(programs, id)
		}
	}
	if err := w.narthex.Stop(); err != nil {
		return err
	}
	// The kernel frees programs after a grace period.
	return w.until(context.Background(), 10*time.Second, func() (bool, error) {
		e.left = 0
		for _, id := range programs {
			if p, err := ebpf.NewProgramFromID(id); err == nil {
				p.Close()
				e.left++
			}
		}
		return e.left == 0, nil
	})
}

// figures are what is found. Without an ending those are missing that follow from it.
func (w *world) figures(e *ending) []bench.Figure {
	figure := func(what, unit string, wanted *bench.Bound, samples ...float64) bench.Figure {
		return bench.Figure{What: what, Unit: unit, Wanted: wanted, Samples: samples}
	}
	none := bench.Always(0, 0)
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	visits := w.ledger.visits
	faults := figure("faults", "", none, float64(w.ledger.count))
	faults.Note = strings.Join(w.ledger.faults, "\n")
	all := []bench.Figure{
		figure("visits in which every byte was right", "", bench.AtLeast(1), float64(visits[done])),
		figure("visits with a wrong byte", "", none, float64(visits[corrupt])),
		figure("visits that broke off", "", none, float64(visits[broken])),
		figure("visits that broke off as a server restarted or the link was down", "", nil, float64(visits[excused])),
		figure("visits that were refused", "", nil, float64(visits[refused])),
		figure("stalls of more than a second", "", none, float64(w.stalls.Load())),
		figure("longest without progress", "ms", nil, float64(w.stillest.Load())/1e6),
		figure("attacks", "", nil, float64(w.attacks.sum())),
		figure("operations", "", nil, float64(w.done.sum())),
		figure("times at which the machine had no time for the monitor", "", nil, float64(w.slept.Load())),
		faults,
	}
	all[7].Note, all[8].Note = w.attacks.String(), w.done.String()
	for _, s := range w.rig.services {
		all = append(all, figure("answers of "+s.name, "", bench.AtLeast(1), float64(w.ledger.answers[s.name])))
	}
	if e == nil {
		return all
	}
	left := figure("sockets left after the servers stopped", "", nil, float64(e.sockets))
	left.Note = e.open
	return append(all,
		figure("in service at the end", "", none, float64(e.inService)),
		figure("waiting at the end", "", none, float64(e.waiting)),
		figure("gathering at the end", "", none, float64(e.gathered)),
		figure("slots that are not free at the end", "", none, float64(e.slots)),
		figure("until all were zero", "ms", nil, e.calm.Seconds()*1e3),
		figure("requests lost, whose end was not seen", "", none, float64(e.lost)),
		figure("counters that do not add up", "", none, float64(e.sums)),
		figure("classes with more refusals than the gate knows of", "", none, float64(e.unknown)),
		figure("services that did not answer the next request", "", none, float64(e.unanswered)),
		figure("the next request took", "ms", nil, e.next...),
		left,
		figure("flows left then", "", none, float64(e.flows)),
		figure("maps, in the end / at first", "", bench.AtMost(1.01), e.after.maps/e.before.maps),
		figure("daemon, grown by", "MiB", bench.AtMost(32), e.after.daemon-e.before.daemon),
		figure("programs left in the kernel", "", none, float64(e.left)),
	)
}
