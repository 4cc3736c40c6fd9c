// SPDX-License-Identifier: Apache-2.0

// Package datapath loads Narthex's eBPF programs, attaches them, pins them so that they
// outlive the process, adopts what is pinned, and gives typed access to the maps.
package datapath

import (
	"errors"
	"log/slog"
	"net/netip"
	"time"

	"narthex/internal/policy"
)

// Root is where instances are pinned unless a Config says otherwise.
const Root = "/sys/fs/bpf/narthex"

// Config says which instance to open and how large its state may be.
type Config struct {
	Instance string       // name of the instance
	Root     string       // bpffs folder of all instances; Root if empty
	Sources  int          // per-source buckets kept at once; DefaultSources if 0
	Log      *slog.Logger // nil discards
}

// DefaultSources is how many per-source buckets an instance keeps.
const DefaultSources = 262_144

// Instance is the loaded data path of one instance. Its methods may be called from
// several goroutines.
type Instance struct{}

// ErrUnsupported is wrapped by the error of Open when the kernel lacks what Narthex
// needs, or the process the privilege; the message says what to do.
var ErrUnsupported = errors.New("not possible on this system")

// Open adopts the pinned instance of that name, or loads a new one with room for at
// least the given number of connection rules. Nothing is attached to a new one and it
// has no policy. An adopted one goes on enforcing what it enforced; its programs are
// replaced by this binary's, and Notes says what state could not be kept.
func Open(cfg Config, rules int) (*Instance, error) { return nil, errors.New("todo") }

// Adopted reports whether Open found a pinned instance.
func (in *Instance) Adopted() bool { return false }

// Notes returns sentences about state that adoption migrated or reset.
func (in *Instance) Notes() []string { return nil }

// Publish puts a policy in force: each packet is decided by the old one or by the new
// one. Buckets and counters of rules that keep their name and their bucket's form live
// on. On error the old policy stays in force.
func (in *Instance) Publish(t *policy.Tables) error { return errors.New("todo") }

// SetLocals replaces the addresses that a listen on any address stands for: prefixes
// of the host's local routing table. 127.0.0.0/8 and ::1 need not be in it.
func (in *Instance) SetLocals(locals []netip.Prefix) error { return errors.New("todo") }

// Target is an interface to police, in the network namespace of the calling thread.
type Target struct {
	Name     string
	Index    int
	XDP      policy.XDPMode
	Services []int // indexes into the published Tables.Services
}

// Mode is how the program is attached to an interface.
type Mode string

// The modes of attachment.
const (
	ModeNative  Mode = "native"
	ModeGeneric Mode = "generic"
	ModeTCX     Mode = "tcx"
)

// Attachment is an interface that is being policed.
type Attachment struct {
	Name   string
	Index  int
	Mode   Mode
	Reason string // why not a better mode, empty if there is none
}

// Attach makes the attachments be those to the targets: it adds what is missing,
// replaces what has another mode, and lets go the rest and what belongs to interfaces
// that are gone. It returns what is attached, also on error; the error joins one per
// target that failed.
func (in *Instance) Attach(targets []Target) ([]Attachment, error) {
	return nil, errors.New("todo")
}

// Counts are verdicts on SYNs since the instance was loaded.
type Counts struct {
	Passed    uint64 `json:"passed"`
	Dropped   uint64 `json:"dropped"`
	WouldDrop uint64 `json:"would_drop"` // passed only because the service is in shadow mode
}

// Matched is the number of SYNs that were decided.
func (c Counts) Matched() uint64 { return c.Passed + c.Dropped + c.WouldDrop }

// Stats is one reading of all counters.
type Stats struct {
	Rules    []Counts          // like Tables.Rules of the published policy
	Services []Counts          // like Tables.Services
	Reasons  map[string]Counts // by reason, of packets decided without a rule; only non-zero ones
}

// Stats reads the counters.
func (in *Instance) Stats() (Stats, error) { return Stats{}, errors.New("todo") }

// Bucket is the state of one token bucket.
type Bucket struct {
	Known  bool          // false: the source was not seen or was forgotten
	Tokens float64       // tokens in it now
	Full   time.Duration // until it is full again without further SYNs
}

// Bucket reads the bucket that a SYN from that source to the given rule (an index into
// the published Tables.Rules) would take a token from.
func (in *Instance) Bucket(rule int, from netip.Addr) (Bucket, error) {
	return Bucket{}, errors.New("todo")
}

// Sources returns how many per-source buckets are in use and how many there can be.
func (in *Instance) Sources() (used, size int, err error) { return 0, 0, errors.New("todo") }

// MapBytes returns the kernel memory that the instance's maps hold.
func (in *Instance) MapBytes() (uint64, error) { return 0, errors.New("todo") }

// Journal returns the strings that Record put beside the maps, where they outlive the
// daemon: overrides, and the hash of the policy in force.
func (in *Instance) Journal() (map[string]string, error) { return nil, errors.New("todo") }

// Record stores a string under a key; both are at most 127 bytes.
func (in *Instance) Record(key, value string) error { return errors.New("todo") }

// Erase removes a key from the journal. A key that is not there is no error.
func (in *Instance) Erase(key string) error { return errors.New("todo") }

// Close lets the instance go and leaves it in force.
func (in *Instance) Close() error { return nil }

// Remove takes the instance out of the kernel: links, programs, maps and pins. Close
// first. It works also on what a crash left behind, and is no error if there is nothing.
// The result says whether there was anything.
func Remove(root, instance string) (found bool, err error) { return false, errors.New("todo") }
