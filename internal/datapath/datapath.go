// SPDX-License-Identifier: Apache-2.0

// Package datapath loads Narthex's eBPF programs, attaches them, pins them so that they
// outlive the process, adopts what is pinned, and gives typed access to the maps.
package datapath

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"narthex/internal/policy"
)

// Root is where instances are pinned unless a Config says otherwise.
const Root = "/sys/fs/bpf/narthex"

// DefaultSources is how many per-source buckets an instance keeps.
const DefaultSources = 262_144

// Sizes of the waiting rooms' memory unless a Config says otherwise, and their bounds.
const (
	DefaultSlots    = 4352
	MaxSlots        = 65_536
	DefaultSlotSize = MaxSlotSize
	MinSlotSize     = 2048
	MaxSlotSize     = 16_064 // what the kernel lets a program make of a packet
	DefaultFlows    = 65_536
	MaxFlows        = 4_194_304
)

// Config says which instance to open and how large its state may be.
type Config struct {
	Instance string       // name of the instance
	Root     string       // bpffs folder of all instances; Root if empty
	Sources  int          // per-source buckets kept at once; 0: DefaultSources, or what an adopted instance has
	Slots    int          // requests that can be held at once; 0: DefaultSlots, or what an adopted instance has
	SlotSize int          // bytes of a slot; 0: DefaultSlotSize, or what an adopted instance has
	Services int          // services that there is to be room for at least
	Flows    int          // connections that can be followed at once; 0: DefaultFlows, or what an adopted instance has
	Without  []Feature    // what the kernel is taken not to have
	Log      *slog.Logger // nil discards
}

// Instance is the loaded data path of one instance. Its methods may be called from
// several goroutines.
type Instance struct {
	pins     pins
	log      *slog.Logger
	sources  int // as configured
	memory   Config
	services int // that there has to be room for
	features features

	mu       sync.Mutex
	objects  *objects // in force, or what the next Apply puts in force
	slots    *slots   // as the image in force has them
	notes    []string
	adopted  bool
	applied  State // the last that Apply put in force
	policed  []attached
	gates    []gate
	sockets  []socketLink
	imageGen uint32

	texts     []byte // of the answers in force, nil before there are any
	answersAt uint32 // their offset
	listsAt   int    // which table of lists is in force; 0: none has been

	pool         *narthexPool // for Pool to read into, kept since it takes megabytes
	placesLooked time.Time    // when it was last looked for places of limits that are to be given back

	openingsLooked time.Time // the same of connections without a socket
}

// ErrUnsupported is what the error of Open is when the kernel lacks what Narthex needs, or
// the process the privilege; the message says what to do.
var ErrUnsupported = errors.New("not possible on this system")

// State is all that an instance enforces.
type State struct {
	Tables *policy.Tables
	// Locals are what a listen on any address stands for: the prefixes of the host's
	// local routing table. 127.0.0.0/8 and ::1 need not be among them.
	Locals  []netip.Prefix
	Targets []Target
	Lists   *Lists // in which sources are; nil: there are none
}

// Target is an interface to police, in the network namespace of the calling thread.
type Target struct {
	Name     string
	Index    int
	XDP      policy.XDPMode
	Services []int // indexes into State.Tables.Services
	// Ports are devices whose frames come under their own index although the program is
	// attached to this one: those of a bond with native XDP.
	Ports []int
	// Uppers are hardware addresses of devices above this one that are targets of their own.
	Uppers []net.HardwareAddr
}

// Open adopts the pinned instance of that name, or loads a new one with room for at
// least the given number of connection rules. Nothing is attached to a new one and it
// has no policy. An adopted one goes on enforcing what it enforced; its programs are
// replaced by this binary's, and Notes says what state could not be kept.
//
// The error is ErrUnsupported where kernel or privilege are missing. The caller makes sure
// that no other process has the instance open.
func Open(cfg Config, rules int) (*Instance, error) {
	if err := supported(); err != nil {
		return nil, err
	}
	in := &Instance{pins: newPins(cfg.Root, cfg.Instance), log: cfg.Log, sources: cfg.Sources, memory: cfg, services: cfg.Services, features: newFeatures(cfg.Without)}
	if in.log == nil {
		in.log = slog.New(slog.DiscardHandler)
	}
	if err := mountBPFFS(in.pins.root); err != nil {
		return nil, err
	}
	if err := in.open(rules); err != nil {
		return nil, fmt.Errorf("opening instance %q: %w", cfg.Instance, err)
	}
	return in, nil
}

// Adopted reports whether Open found a pinned instance.
func (in *Instance) Adopted() bool { return in.adopted }

// Notes returns sentences about state that adoption migrated or reset.
func (in *Instance) Notes() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.notes)
}

// Missing returns what the kernel lacks, as far as it has been tried.
func (in *Instance) Missing() []Missing {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.features.missing()
}

// Apply puts a state in force: each packet is decided by the old policy or by the new
// one, never by parts of both. Buckets of rules that keep their name and their bucket's
// form live on, counters of all that keep their name. An interface that cannot be policed
// is an error; then, and on every other error, the old state stays in force. The calling
// thread is in the network namespace of the targets.
func (in *Instance) Apply(s State) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.objects == nil {
		return errors.New("instance is closed")
	}
	in.policed = dropElsewhere(in.policed)
	in.gates = dropGatesElsewhere(in.gates)
	c := change{in: in, state: s, generation: in.imageGen + 1}
	err := c.prepare()
	if err == nil {
		err = c.install()
	}
	if err != nil {
		return errors.Join(err, c.abort())
	}
	c.settle()
	return nil
}

// Counts are verdicts on SYNs since the instance was loaded.
type Counts struct {
	Passed    uint64 `json:"passed"`
	Dropped   uint64 `json:"dropped"`
	WouldDrop uint64 `json:"would_drop"` // passed only because the service is in shadow mode
}

// Matched is the number of SYNs that were decided.
func (c Counts) Matched() uint64 { return c.Passed + c.Dropped + c.WouldDrop }

func (c Counts) plus(n narthexCounts) Counts {
	return Counts{c.Passed + n.Passed, c.Dropped + n.Dropped, c.WouldDrop + n.WouldDrop}
}

// Close lets the instance go and leaves it in force.
func (in *Instance) Close() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.objects == nil {
		return nil
	}
	for _, a := range in.policed {
		a.hook.close()
	}
	in.closeGates()
	err := in.objects.close()
	in.objects = nil
	return err
}

// zero is the key of maps with one entry.
const zero uint32 = 0

// nameBytes returns a name in the form in which the maps hold it.
func nameBytes(name string) (b [64]uint8) {
	copy(b[:len(b)-1], name)
	return b
}

// nameString returns the name in such bytes.
func nameString(b []uint8) string {
	if end := slices.Index(b, 0); end >= 0 {
		b = b[:end]
	}
	return string(b)
}

// closeMap closes a map that is no longer needed; what is lost by an error is a file
// descriptor.
func closeMap(m *ebpf.Map) {
	if m != nil {
		_ = m.Close()
	}
}
