// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"narthex/internal/datapath"
	"narthex/internal/lab"
	"narthex/internal/policy"
	"narthex/test/nettest"
)

// device makes a device without native XDP in a namespace.
func device(t *testing.T, ns *lab.Namespace, name string) datapath.Target {
	t.Helper()
	nettest.Check(t, ns.AddBridge(name))
	l, err := ns.Link(name)
	nettest.Check(t, err)
	return datapath.Target{Name: name, Index: l.Attrs().Index, XDP: policy.XDPOff, Services: []int{0}}
}

// try applies a policy to targets in a namespace; it may fail.
func (s *subject) try(t *testing.T, ns *lab.Namespace, text string, targets ...datapath.Target) error {
	t.Helper()
	p, _, err := policy.Parse("test.yaml", []byte(text))
	nettest.Check(t, err)
	tables, _, err := policy.Compile(p)
	nettest.Check(t, err)
	apply := func() error {
		return s.Apply(datapath.State{Tables: tables, Locals: locals, Targets: targets})
	}
	if ns != nil {
		err = ns.Do(apply)
	} else {
		err = apply()
	}
	if err == nil {
		s.tables = tables
	}
	return err
}

func (s *subject) mustTry(t *testing.T, ns *lab.Namespace, text string, targets ...datapath.Target) {
	t.Helper()
	nettest.Check(t, s.try(t, ns, text, targets...))
}

// reopen closes the instance and adopts it.
func (s *subject) reopen(t *testing.T, cfg datapath.Config, rules int) *subject {
	t.Helper()
	nettest.Check(t, s.Close())
	cfg.Root, cfg.Instance, cfg.Without = root, s.name, append(cfg.Without, leftOut()...)
	in, err := datapath.Open(cfg, rules)
	nettest.Check(t, err)
	t.Cleanup(func() { nettest.Check(t, in.Close()) })
	return &subject{Instance: in, name: s.name}
}

// onTCX returns the programs that police SYNs at a device's ingress: in tcx, or as filters.
func onTCX(t *testing.T, ns *lab.Namespace, d datapath.Target) []ebpf.ProgramID {
	t.Helper()
	return programsAt(t, ns, d, ebpf.AttachTCXIngress)["narthex_tcx_syn"]
}

// gateAt returns the programs of a device's waiting rooms, those at its ingress first.
func gateAt(t *testing.T, ns *lab.Namespace, d datapath.Target) []ebpf.ProgramID {
	t.Helper()
	in := programsAt(t, ns, d, ebpf.AttachTCXIngress)["narthex_gate_in"]
	return append(in, programsAt(t, ns, d, ebpf.AttachTCXEgress)["narthex_gate_out"]...)
}

// programsAt returns the programs at a side of a device by name, be they in tcx or filters.
func programsAt(t *testing.T, ns *lab.Namespace, d datapath.Target, at ebpf.AttachType) map[string][]ebpf.ProgramID {
	t.Helper()
	ids := map[string][]ebpf.ProgramID{}
	nettest.Check(t, ns.Do(func() error {
		all, err := filtersAt(d, at)
		if err != nil {
			return err
		}
		q, err := link.QueryPrograms(link.QueryOptions{Target: d.Index, Attach: at})
		if err == nil {
			for _, a := range q.Programs {
				all = append(all, a.ID)
			}
		} else if !errors.Is(err, ebpf.ErrNotSupported) && !errors.Is(err, unix.EINVAL) { // no tcx
			return err
		}
		for _, id := range all {
			p, err := ebpf.NewProgramFromID(id)
			if err != nil {
				return err
			}
			info, err := p.Info()
			p.Close()
			if err != nil {
				return err
			}
			ids[info.Name] = append(ids[info.Name], id)
		}
		return nil
	}))
	return ids
}

// filtersAt returns the programs of filters at a side of a device.
func filtersAt(d datapath.Target, at ebpf.AttachType) (ids []ebpf.ProgramID, err error) {
	parent := uint32(netlink.HANDLE_MIN_INGRESS)
	if at == ebpf.AttachTCXEgress {
		parent = netlink.HANDLE_MIN_EGRESS
	}
	l, err := netlink.LinkByIndex(d.Index)
	if err != nil {
		return nil, err
	}
	all, err := netlink.FilterList(l, parent)
	for _, f := range all {
		if b, ok := f.(*netlink.BpfFilter); ok {
			ids = append(ids, ebpf.ProgramID(b.Id))
		}
	}
	return ids, err
}

// traffic returns how programs are attached to traffic control here.
func (s *subject) traffic() datapath.Mode {
	lacks := func(m datapath.Missing) bool { return m.Feature == datapath.FeatureTCX }
	if slices.ContainsFunc(s.Missing(), lacks) {
		return datapath.ModeTC
	}
	return datapath.ModeTCX
}

// roomed gives the services of a policy waiting rooms.
func roomed(text string) string { return strings.ReplaceAll(text, ", protocol: tcp", "") }

func TestFailedModeChangeKeepsPolicing(t *testing.T) {
	ns := nettest.Namespace(t, "packet")
	d, d1 := device(t, ns, "d0"), device(t, ns, "d1")
	text := roomed(rules(0, 3, "1/m"))
	s := share(t, text)
	s.mustTry(t, ns, text, d)
	before, gate := onTCX(t, ns, d), gateAt(t, ns, d)
	native := d
	native.XDP = policy.XDPNative
	if s.try(t, ns, text, native, d1) == nil {
		t.Fatal("a bridge took native XDP")
	}
	if after := onTCX(t, ns, d); !slices.Equal(before, after) || len(after) != 1 {
		t.Errorf("programs %v, before %v", after, before)
	}
	if after := gateAt(t, ns, d); !slices.Equal(gate, after) || len(after) != 2 {
		t.Errorf("programs of the waiting room %v, before %v", after, gate)
	}
	if left := append(onTCX(t, ns, d1), gateAt(t, ns, d1)...); len(left) != 0 {
		t.Errorf("%s has the programs %v", d1.Name, left)
	}
	if a := s.Attachments(); len(a) != 1 || a[0].Mode != s.traffic() {
		t.Errorf("attachments %+v", a)
	}
}

func TestModeChanges(t *testing.T) {
	ns := nettest.Namespace(t, "packet")
	d := device(t, ns, "d0")
	s := share(t, rules(0, 3, "1/m"))
	for _, c := range []struct {
		xdp  policy.XDPMode
		want datapath.Mode
	}{{"off", "tcx"}, {"generic", "generic"}, {"off", "tcx"}, {"generic", "generic"}, {"auto", "tcx"}} {
		d.XDP = c.xdp
		s.mustTry(t, ns, rules(0, 3, "1/m"), d)
		want := c.want
		if want == datapath.ModeTCX {
			want = s.traffic()
		}
		if a := s.Attachments(); len(a) != 1 || a[0].Mode != want {
			t.Errorf("xdp: %s: attachments %+v", c.xdp, a)
		}
		if n := len(onTCX(t, ns, d)); (n == 1) != (c.want == datapath.ModeTCX) {
			t.Errorf("xdp: %s: %d tcx programs", c.xdp, n)
		}
		pins, err := os.ReadDir(s.pin("links"))
		if pins = slices.DeleteFunc(pins, func(e os.DirEntry) bool { return isQdisc(e.Name()) }); err != nil || len(pins) != 1 {
			t.Errorf("xdp: %s: pins %v, %v", c.xdp, pins, err)
		}
	}
}

// isQdisc reports whether a pin says that a qdisc is ours.
func isQdisc(path string) bool { return strings.HasPrefix(filepath.Base(path), "clsact_") }

func TestGrowthReachesNewInterfaces(t *testing.T) {
	t.Parallel()
	ns := nettest.Namespace(t, "packet")
	d0, d1 := device(t, ns, "d0"), device(t, ns, "d1")
	s := load(t, roomed(rules(0, 3, "1/m")))
	s.mustTry(t, ns, roomed(rules(0, 3, "1/m")), d0)
	s.mustTry(t, ns, roomed(rules(0, 3000, "1/m")), d0, d1)
	want := []ebpf.ProgramID{s.pinned(t, "narthex_tcx_syn"), s.pinned(t, "narthex_gate_in"), s.pinned(t, "narthex_gate_out")}
	for _, d := range []datapath.Target{d0, d1} {
		if got := append(onTCX(t, ns, d), gateAt(t, ns, d)...); !slices.Equal(got, want) {
			t.Errorf("%s runs %v, want %v", d.Name, got, want)
		}
	}
}

// pinned returns the program that is pinned under a name now.
func (s *subject) pinned(t *testing.T, name string) ebpf.ProgramID {
	t.Helper()
	p, err := ebpf.LoadPinnedProgram(s.pin("programs", name), nil)
	nettest.Check(t, err)
	defer p.Close()
	info, err := p.Info()
	nettest.Check(t, err)
	id, _ := info.ID()
	return id
}

func TestGrowthForgetsRulesThatAreGone(t *testing.T) {
	t.Parallel()
	s := load(t, rules(0, 2, "1/m"))
	passes(t, &s.hooks[0], source(0), 100)
	s.apply(t, rules(1, 1, "1/m")) // rule-0 goes
	s.apply(t, rules(1, 3000, "1/m"))
	for name, c := range s.counters(t) {
		if c.Matched() > 0 && name != "rule rule-1" && name != "service shop" {
			t.Errorf("%s, which never matched: %+v", name, c)
		}
	}
}

func manyServices(name string, n, rules int, rate string) string {
	s := "version: 1\nservices:\n"
	for i := range n {
		s += fmt.Sprintf("  - {name: %s-%d, listen: [\"*:%d\"]}\n", name, i, 80+i)
	}
	s += "connections:\n"
	for i := range rules {
		s += fmt.Sprintf("  - {name: rule-%d, from: [%s], rate: %s, burst: 10}\n", i, source(i), rate)
	}
	return s
}

// A state that does not fit leaves no trace: not in buckets, counters or slots.
func TestFailedApplyChangesNothing(t *testing.T) {
	t.Parallel()
	s := load(t, manyServices("a", 600, 2, "1/m"))
	h := &s.hooks[0]
	passes(t, h, source(0), 5)
	for _, text := range []string{
		manyServices("b", 600, 2, "2/m"), manyServices("b", 600, 2, "3/m"), manyServices("b", 600, 1500, "2/m"),
	} {
		if s.try(t, nil, text) == nil {
			t.Fatal("1,200 services fitted")
		}
		if got := s.counters(t)["rule rule-0"]; got != (datapath.Counts{Passed: 5}) {
			t.Errorf("counters %+v", got)
		}
	}
	if got := passes(t, h, source(0), 50); got != 5 {
		t.Errorf("%d passed with the five tokens left", got)
	}
	s.apply(t, manyServices("a", 600, 2, "1/m"))
	if got := passes(t, h, source(0), 50); got != 0 {
		t.Errorf("%d passed after the old policy was applied again", got)
	}
	if err := s.try(t, nil, manyServices("c", 300, 2, "1/m")); err != nil {
		t.Errorf("a policy for which there is room: %v", err)
	}
}

// Whatever pins are missing, the next start enforces its policy on what is attached.
func TestAdoptionOfParts(t *testing.T) {
	for _, gone := range []string{
		"links", "maps", "programs", "maps/*", "maps/rule_slots", "maps/policy_image", "maps/image", "maps/rooms", "links/gateout_*", "links/sock*",
	} {
		t.Run(gone, func(t *testing.T) {
			t.Parallel()
			adoptsWithout(t, gone)
		})
	}
}

func adoptsWithout(t *testing.T, gone string) {
	ns := nettest.Namespace(t, "packet")
	d := device(t, ns, "d0")
	s := load(t, roomed(rules(0, 3, "1/m")))
	s.mustTry(t, ns, roomed(rules(0, 3, "1/m")), d)
	count := func(kind string) int {
		pins, _ := filepath.Glob(s.pin(kind, "*"))
		return len(slices.DeleteFunc(pins, isQdisc)) // whose the qdisc is is forgotten with the links
	}
	maps, links := count("maps"), count("links")
	paths, _ := filepath.Glob(s.pin(gone))
	for _, p := range paths {
		nettest.Check(t, os.RemoveAll(p))
	}
	again := s.reopen(t, datapath.Config{}, 0)
	again.mustTry(t, ns, roomed(rules(0, 4, "1/m")), d)
	ids := onTCX(t, ns, d)
	if len(ids) != 1 {
		t.Fatalf("programs %v", ids)
	}
	p, err := ebpf.NewProgramFromID(ids[0])
	nettest.Check(t, err)
	defer p.Close()
	if got := passes(t, &hook{"tcx", p, tcxNext, tcxDrop}, source(3), 50); got != 5 {
		t.Errorf("the attached program passed %d of the new rule, want 5", got)
	}
	if got, want := gateAt(t, ns, d), []ebpf.ProgramID{again.pinned(t, "narthex_gate_in"), again.pinned(t, "narthex_gate_out")}; !slices.Equal(got, want) {
		t.Errorf("programs of the waiting room %v, want %v", got, want)
	}
	if n := count("maps"); n != maps {
		t.Errorf("%d maps are pinned, before %d", n, maps)
	}
	if n := count("links"); n != links {
		t.Errorf("%d links are pinned, before %d", n, links)
	}
}

func TestOtherLayoutOfCounts(t *testing.T) {
	t.Parallel()
	s := load(t, rules(0, 3, "1/m"))
	passes(t, &s.hooks[0], source(0), 10)
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 32, MaxEntries: 1024})
	nettest.Check(t, err)
	path := s.pin("maps", "rule_counts")
	nettest.Check(t, os.Remove(path))
	nettest.Check(t, m.Pin(path))
	nettest.Check(t, m.Close())
	again := s.reopen(t, datapath.Config{}, 0)
	if notes := again.Notes(); len(notes) != 1 {
		t.Errorf("notes %q, want one", notes)
	}
	again.mustTry(t, nil, rules(0, 3, "1/m"))
	again.reopenHooks(t)
	if got := passes(t, &again.hooks[0], source(0), 10); got != 0 {
		t.Errorf("%d passed of an empty bucket", got)
	}
}

// Tokens that the old programs take while the next ones are loaded are not given again.
func TestBucketsOfThePause(t *testing.T) {
	t.Parallel()
	s := load(t, bucketPolicy("rate: 1/m, burst: 10"))
	old := s.hooks[0]
	again := s.reopen(t, datapath.Config{}, 3000) // other maps; the old program decides until Apply
	if got := passes(t, &old, "203.0.113.1", 50); got != 10 {
		t.Fatalf("%d passed in the pause", got)
	}
	again.mustTry(t, nil, bucketPolicy("rate: 1/m, burst: 10"))
	again.reopenHooks(t)
	if got := passes(t, &again.hooks[0], "203.0.113.1", 50); got != 0 {
		t.Errorf("%d more passed after it", got)
	}
}

// Lost slots begin with identifiers that old buckets have: those must not be met.
func TestLostSlotsShareNoSources(t *testing.T) {
	t.Parallel()
	text := func(name, rate string) string {
		return fmt.Sprintf("version: 1\nservices: [{name: shop, listen: [\"*:80\"]}]\nconnections: [{name: %s, rate: %s, burst: 5, per: source}]\n", name, rate)
	}
	s := load(t, text("slow", "1/m"))
	passes(t, &s.hooks[0], "203.0.113.1", 10)
	nettest.Check(t, os.Remove(s.pin("maps", "rule_slots")))
	again := s.reopen(t, datapath.Config{}, 0)
	again.mustTry(t, nil, text("fast", "1/m"))
	again.reopenHooks(t)
	if got := passes(t, &again.hooks[0], "203.0.113.1", 10); got != 5 {
		t.Errorf("%d passed from a new bucket of 5", got)
	}
}

func TestLargerTableGivesNoTokens(t *testing.T) {
	t.Parallel()
	text := bucketPolicy("rate: 1/m, burst: 5, per: source")
	s := loadConfig(t, datapath.Config{Sources: 8}, text)
	for i := range 200 {
		passes(t, &s.hooks[0], fmt.Sprintf("198.51.100.%d", i), 5)
	}
	again := s.reopen(t, datapath.Config{Sources: 64}, 0)
	again.mustTry(t, nil, text)
	again.reopenHooks(t)
	for i := range 200 {
		if got := passes(t, &again.hooks[0], fmt.Sprintf("198.51.100.%d", i), 5); got != 0 {
			t.Errorf("source %d: %d passed", i, got)
		}
	}
}

// A source whose first SYNs come on two CPUs at once has one bucket. Slow machines try as many
// sources as there is time for.
func TestNewcomerOnTwoCPUs(t *testing.T) {
	const n = 10_000
	end := time.Now().Add(20 * time.Second)
	s := loadConfig(t, datapath.Config{Sources: 1 << 20}, bucketPolicy("rate: 1/m, burst: 1, per: source"))
	h := &s.hooks[1]
	var passed [n]atomic.Int32
	var turn [2]atomic.Int32
	var tried [2]int
	var both sync.WaitGroup
	for c := range turn {
		both.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			defer turn[c].Store(n)
			b := syn("203.0.113.1:1000", "10.0.0.1:80").bytes(t)
			for i := 0; i < n && time.Now().Before(end); i++ {
				tried[c] = i + 1
				binary.BigEndian.PutUint32(b[26:], uint32(0x0b000000+i))
				turn[c].Store(int32(i))
				for turn[1-c].Load() < int32(i) {
					runtime.Gosched()
				}
				verdict, err := h.prog.Run(&ebpf.RunOptions{Data: b, DataOut: make([]byte, len(b)+256)})
				if err != nil {
					t.Error(err)
					return
				}
				if verdict == h.pass {
					passed[i].Add(1)
				}
			}
		})
	}
	both.Wait()
	if both := min(tried[0], tried[1]); both < 100 {
		t.Errorf("only %d sources were tried", both)
	}
	for i := range max(tried[0], tried[1]) {
		if got := passed[i].Load(); got != 1 {
			t.Errorf("source %d got %d tokens of one", i, got)
		}
	}
}

// An image that points beyond itself, which cannot be, passes packets and says so.
func TestFaultIsCounted(t *testing.T) {
	s := share(t, bucketPolicy("action: drop"))
	image, err := ebpf.LoadPinnedMap(s.pin("maps", "image"), nil)
	nettest.Check(t, err)
	defer image.Close()
	page := make([]byte, image.ValueSize())
	nettest.Check(t, image.Lookup(uint32(0), &page))
	binary.NativeEndian.PutUint32(page, 1<<30) // where look-ups of IPv4 destinations start
	nettest.Check(t, image.Put(uint32(0), page))
	for _, h := range s.hooks {
		before := s.counters(t)
		if h.send(t, syn("203.0.113.1:4000", "10.0.0.1:80").bytes(t)) {
			t.Errorf("%s: dropped", h.name)
		}
		if diff := cmp.Diff(reason("map_fault", passed), s.counters(t).since(before)); diff != "" {
			t.Errorf("%s: counters (-want +got):\n%s", h.name, diff)
		}
	}
}
