// SPDX-License-Identifier: Apache-2.0

// Package packet runs single frames through the loaded programs with BPF_PROG_TEST_RUN
// and looks at verdicts, bytes and counters. The same tables are benchmarks.
package packet

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"narthex/internal/datapath"
	"narthex/internal/policy"
)

// root keeps the tests' pins apart from those of a Narthex that runs here.
const root = datapath.Root + "-test"

// without are features that the kernel is taken not to have in all tests.
var without = flag.String("without", "", "`features` that the kernel is taken not to have, such as casts,memory-keys")

// instances counts those that were loaded.
var instances atomic.Int32

// The verdicts by program.
const (
	xdpDrop, xdpPass = 1, 2
	tcxNext, tcxDrop = ^uint32(0), 2
)

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests load eBPF programs: run them as root, for example with make test")
		os.Exit(1)
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := errors.Join(common.remove(), commonGate.remove()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// hook is one of the programs.
type hook struct {
	name       string
	prog       *ebpf.Program
	pass, drop uint32
}

// subject is an instance under test.
type subject struct {
	*datapath.Instance
	name    string // of the instance
	tables  *policy.Tables
	hooks   []hook
	endless bool // no bucket is ever empty: for benchmarks of decisions that take a token
}

// locals are the local addresses of every subject.
var locals = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("fd00::1/128"), netip.MustParsePrefix("10.9.0.0/24"),
	netip.MustParsePrefix("10.77.0.1/32"), netip.MustParsePrefix("fd77::1/128"), // of a lab's server
}

// load opens an instance of the policy; it is attached to nothing.
func load(t testing.TB, text string, targets ...datapath.Target) *subject {
	t.Helper()
	return loadConfig(t, datapath.Config{}, text, targets...)
}

func loadConfig(t testing.TB, cfg datapath.Config, text string, targets ...datapath.Target) *subject {
	t.Helper()
	s, err := open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.remove(); err != nil {
			t.Error(err)
		}
	})
	_, s.endless = t.(*testing.B)
	s.apply(t, text, targets...)
	s.reopenHooks(t)
	return s
}

// leftOut returns what -without names.
func leftOut() (all []datapath.Feature) {
	for f := range strings.FieldsFuncSeq(*without, func(r rune) bool { return r == ',' }) {
		all = append(all, datapath.Feature(f))
	}
	return all
}

// open makes an instance, which the process has under a name of its own.
func open(cfg datapath.Config) (*subject, error) {
	cfg.Root, cfg.Instance = root, fmt.Sprintf("packet-%d-%d", os.Getpid(), instances.Add(1))
	if _, err := datapath.Remove(root, cfg.Instance); err != nil {
		return nil, err
	}
	cfg.Without = append(cfg.Without, leftOut()...)
	in, err := datapath.Open(cfg, 0)
	if err != nil {
		return nil, err
	}
	return &subject{Instance: in, name: cfg.Instance}, nil
}

// remove closes the instance and takes it out of the kernel.
func (s *subject) remove() error {
	if s == nil {
		return nil
	}
	err := s.Close()
	found, removeErr := datapath.Remove(root, s.name)
	if removeErr == nil && !found {
		removeErr = errors.New("it was not there")
	}
	if err = errors.Join(err, removeErr); err != nil {
		return fmt.Errorf("removing instance %q: %w", s.name, err)
	}
	return nil
}

// pin is a path below the instance's pins.
func (s *subject) pin(path ...string) string {
	return filepath.Join(append([]string{root, s.name}, path...)...)
}

// common is an instance that tests take in their turn which need none of their own: loading
// one takes seconds.
var (
	common     *subject
	commonTurn sync.Mutex
)

// nobody is a policy that lets go of whatever the one before had.
const nobody = `
version: 1
services: [{name: nobody, listen: ["*:9"], protocol: tcp}]
`

// share puts a policy in force on the common instance. Its rules and services are new to it,
// with counters of zero and buckets that are full.
func share(t *testing.T, text string, targets ...datapath.Target) *subject {
	t.Helper()
	commonTurn.Lock()
	t.Cleanup(commonTurn.Unlock)
	if common == nil {
		var err error
		if common, err = open(datapath.Config{}); err != nil {
			t.Fatal(err)
		}
	}
	common.apply(t, nobody)
	common.apply(t, text, targets...)
	common.reopenHooks(t)
	t.Cleanup(func() { common.apply(t, nobody) }) // before its targets go
	return common
}

// reopenHooks makes the hooks the programs that are pinned now.
func (s *subject) reopenHooks(t testing.TB) {
	t.Helper()
	s.hooks = nil
	for _, h := range []hook{{"xdp", nil, xdpPass, xdpDrop}, {"tcx", nil, tcxNext, tcxDrop}} {
		var err error
		h.prog, err = ebpf.LoadPinnedProgram(s.pin("programs", "narthex_"+h.name+"_syn"), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.prog.Close() })
		s.hooks = append(s.hooks, h)
	}
}

// apply puts another policy in force.
func (s *subject) apply(t testing.TB, text string, targets ...datapath.Target) {
	t.Helper()
	p, _, err := policy.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if s.tables, _, err = policy.Compile(p); err != nil {
		t.Fatal(err)
	}
	if s.endless {
		for i := range s.tables.Rules {
			s.tables.Rules[i].Interval = 1
		}
	}
	if err := s.Apply(datapath.State{Tables: s.tables, Locals: locals, Targets: targets}); err != nil {
		t.Fatal(err)
	}
}

// send runs a frame through a program once and reports whether it was dropped.
func (h *hook) send(t testing.TB, frame []byte) (dropped bool) {
	t.Helper()
	return h.run(t, frame, &ebpf.RunOptions{})
}

// xdpMd is struct xdp_md.
type xdpMd struct {
	Data, DataEnd, DataMeta, Ingress, Queue, Egress uint32
}

// sendPieces does the same with a frame that has so many bytes in its first buffer and
// the rest in another.
func (h *hook) sendPieces(t testing.TB, frame []byte, linear int) (dropped bool) {
	t.Helper()
	return h.run(t, frame, &ebpf.RunOptions{Context: xdpMd{DataEnd: uint32(linear), Ingress: 1}})
}

// cutsFrames reports whether the kernel's test run has frames whose first buffer ends anywhere.
func (h *hook) cutsFrames(t testing.TB) bool {
	t.Helper()
	_, err := h.prog.Run(&ebpf.RunOptions{Data: make([]byte, 100), Context: xdpMd{DataEnd: 60, Ingress: 1}})
	if err != nil && !errors.Is(err, unix.EINVAL) {
		t.Fatal(err)
	}
	return err == nil
}

func (h *hook) run(t testing.TB, frame []byte, opts *ebpf.RunOptions) (dropped bool) {
	t.Helper()
	opts.Data, opts.DataOut = frame, make([]byte, len(frame)+256)
	verdict, err := h.prog.Run(opts)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(frame, opts.DataOut); diff != "" {
		t.Fatalf("the frame was changed (-sent +came out):\n%s", diff)
	}
	if verdict != h.pass && verdict != h.drop {
		t.Fatalf("verdict %d is neither pass nor drop", verdict)
	}
	return verdict == h.drop
}

// counters are all non-zero counters by name.
type counters map[string]datapath.Counts

func (s *subject) counters(t testing.TB) counters {
	t.Helper()
	stats, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	c := counters{}
	for i, v := range stats.Rules {
		c["rule "+s.tables.Rules[i].Name] = v
	}
	for i, v := range stats.Services {
		c["service "+s.tables.Services[i].Name] = v
	}
	for name, v := range stats.Reasons {
		c["reason "+name] = v
	}
	return c
}

// since returns what was counted since the earlier reading, without zeros.
func (c counters) since(before counters) counters {
	d := counters{}
	for name, v := range c {
		b := before[name]
		v.Passed, v.Dropped, v.WouldDrop = v.Passed-b.Passed, v.Dropped-b.Dropped, v.WouldDrop-b.WouldDrop
		if v != (datapath.Counts{}) {
			d[name] = v
		}
	}
	return d
}
