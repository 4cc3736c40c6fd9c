// SPDX-License-Identifier: Apache-2.0

// Package daemontest has a data path and a network that exist in memory alone, for tests
// of what is built on them.
package daemontest

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"narthex/internal/datapath"
	"narthex/internal/lists"
	"narthex/internal/netif"
	"narthex/internal/policy"
)

// Kernel keeps instances as a kernel would: they outlive whoever opened them.
type Kernel struct {
	mu        sync.Mutex
	instances map[string]*Path
	refuse    map[string]error // interfaces that cannot be policed
	rooms     []datapath.Room
	pool      datapath.PoolUse
	opened    datapath.Config
	ticks     int
	looked    int // how often attachments were looked at, which removes those that are gone
	end       []string
	reader    *reader // who listens to events
	listened  int     // how often somebody began to
	mirror    *mirror // who takes copies
}

// NewKernel returns a kernel without instances.
func NewKernel() *Kernel {
	return &Kernel{
		instances: map[string]*Path{}, refuse: map[string]error{},
		pool: datapath.PoolUse{Slots: 64, FreeSlots: 60, SlotSize: 8192, Flows: 128, UsedFlows: 5},
	}
}

// Open adopts or makes an instance.
func (k *Kernel) Open(cfg datapath.Config) *Path {
	k.mu.Lock()
	defer k.mu.Unlock()
	dp, found := k.instances[cfg.Instance]
	if !found {
		dp = &Path{kernel: k, journal: map[string]string{}}
		k.instances[cfg.Instance] = dp
	}
	dp.adopted = found
	k.opened = cfg
	return dp
}

// Opened returns what the last instance was opened with.
func (k *Kernel) Opened() datapath.Config {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.opened
}

// Remove removes an instance.
func (k *Kernel) Remove(instance string) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, found := k.instances[instance]
	delete(k.instances, instance)
	k.end = append(k.end, "remove")
	return found, nil
}

// Pinned reports whether there is an instance.
func (k *Kernel) Pinned(instance string) (bool, error) {
	_, ok := k.State(instance)
	return ok, nil
}

// End returns how instances ended, in order: clear and its limit, close, remove.
func (k *Kernel) End() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.end)
}

// SetRooms makes the waiting rooms of all instances be these.
func (k *Kernel) SetRooms(rooms ...datapath.Room) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rooms = rooms
}

// SetPool makes the memory of the waiting rooms be as full as that.
func (k *Kernel) SetPool(pool datapath.PoolUse) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pool = pool
}

// Ticks returns how often an instance was told to tick.
func (k *Kernel) Ticks() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ticks
}

// State returns what an instance enforces, and whether there is one.
func (k *Kernel) State(instance string) (datapath.State, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	dp, ok := k.instances[instance]
	if !ok {
		return datapath.State{}, false
	}
	return dp.state, true
}

// Journal returns the journal of an instance.
func (k *Kernel) Journal(instance string) map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.instances[instance].journal)
}

// Looked returns how often attachments were looked at.
func (k *Kernel) Looked() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.looked
}

// Refuse makes attaching to an interface fail, or no longer if err is nil.
func (k *Kernel) Refuse(name string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refuse[name] = err
}

// Path is an instance. It satisfies daemon.Datapath.
type Path struct {
	kernel  *Kernel
	adopted bool
	state   datapath.State
	journal map[string]string

	controls map[int]datapath.Control // by service
	blocked  []datapath.Remembered    // nil: nothing was changed

	Lacks []datapath.Missing // of the kernel
}

// Adopted reports whether the instance was there.
func (p *Path) Adopted() bool { return p.adopted }

// Notes returns none.
func (p *Path) Notes() []string { return nil }

// Missing is what the test says that the kernel lacks.
func (p *Path) Missing() []datapath.Missing { return p.Lacks }

// Close says that it was called.
func (p *Path) Close() error {
	p.kernel.mu.Lock()
	defer p.kernel.mu.Unlock()
	p.kernel.end = append(p.kernel.end, "close")
	return nil
}

// Apply keeps the state unless an interface is refused.
func (p *Path) Apply(s datapath.State) error {
	p.kernel.mu.Lock()
	defer p.kernel.mu.Unlock()
	for _, t := range s.Targets {
		if err := p.kernel.refuse[t.Name]; err != nil {
			return fmt.Errorf("attach to %q: %w", t.Name, err)
		}
	}
	p.state = s
	return nil
}

// Attachments are those to all targets.
func (p *Path) Attachments() []datapath.Attachment {
	p.kernel.mu.Lock()
	defer p.kernel.mu.Unlock()
	p.kernel.looked++
	var all []datapath.Attachment
	for _, t := range p.state.Targets {
		all = append(all, datapath.Attachment{Name: t.Name, Index: t.Index, Mode: datapath.ModeNative})
	}
	return all
}

// Stats returns n and 10n for the n-th connection rule, 100n and 1000n for the n-th request
// rule, and 3, 2, 1 for every service.
func (p *Path) Stats() (datapath.Stats, error) {
	p.kernel.mu.Lock()
	defer p.kernel.mu.Unlock()
	s := datapath.Stats{Reasons: map[string]datapath.Counts{"no_rule": {Passed: 7}}}
	for i := range p.state.Tables.Rules {
		s.Rules = append(s.Rules, datapath.Counts{Passed: uint64(i + 1), Dropped: uint64(10 * (i + 1))})
	}
	for i := range p.state.Tables.RequestRules() {
		s.Requests = append(s.Requests, datapath.Counts{Passed: uint64(100 * (i + 1)), Dropped: uint64(1000 * (i + 1))})
	}
	for range p.state.Tables.Services {
		s.Services = append(s.Services, datapath.Counts{Passed: 3, Dropped: 2, WouldDrop: 1})
	}
	return s, nil
}

// Bucket is empty for 10.0.0.9; others were never seen, and 10.0.0.10 would start with a
// debt.
func (p *Path) Bucket(rule, _ int, from netip.Addr) (datapath.Bucket, error) {
	return p.bucket(from, func(t *policy.Tables) uint32 { return t.Rules[rule].Burst })
}

// RequestBucket is like Bucket.
func (p *Path) RequestBucket(rule, _ int, from netip.Addr, _ string) (datapath.Bucket, error) {
	return p.bucket(from, func(t *policy.Tables) uint32 { return t.Requests.Rules[rule].Burst })
}

// Client is learned in the first class if it is 10.0.0.20, and blocked if it is 10.0.0.21.
func (p *Path) Client(from netip.Addr) (datapath.Client, error) {
	switch from.String() {
	case "10.0.0.20":
		return datapath.Client{Class: 0, Learned: time.Minute}, nil
	case "10.0.0.21":
		return datapath.Client{Class: policy.NotLearned, Blocked: 2 * time.Second}, nil
	}
	return datapath.Client{Class: policy.NotLearned}, nil
}

// Blocked is 10.0.0.21, unless it was cleared, and who was added.
func (p *Path) Blocked() ([]datapath.Remembered, error) { return p.memory(), nil }

// Places has nobody.
func (p *Path) Places([]netip.Addr) ([]datapath.Taken, error) { return nil, nil }

// Learned is nobody.
func (p *Path) Learned() ([]datapath.Remembered, error) { return nil, nil }

// Block remembers a client.
func (p *Path) Block(from netip.Addr, long time.Duration) error {
	p.blocked = append(p.memory(), datapath.Remembered{Client: datapath.ClientPrefix(from), Class: policy.NotLearned, Left: long})
	return nil
}

// Learn does nothing.
func (p *Path) Learn(netip.Addr, int, time.Duration) error { return nil }

// Unblock forgets clients.
func (p *Path) Unblock(within []netip.Prefix) (gone []netip.Prefix, err error) {
	kept := []datapath.Remembered{}
	for _, r := range p.memory() {
		if slices.ContainsFunc(within, r.Client.Overlaps) {
			gone = append(gone, r.Client)
		} else {
			kept = append(kept, r)
		}
	}
	p.blocked = kept
	return gone, nil
}

// Unlearn finds nobody.
func (p *Path) Unlearn([]netip.Prefix) ([]netip.Prefix, error) { return nil, nil }

// FillBucket finds one for 10.0.0.9.
func (p *Path) FillBucket(_, _ int, from netip.Addr) (bool, error) {
	return !from.IsValid() || from == netip.MustParseAddr("10.0.0.9"), nil
}

// FillRequestBucket is like FillBucket.
func (p *Path) FillRequestBucket(rule, _ int, from netip.Addr) (bool, error) {
	return p.FillBucket(rule, datapath.RateOf, from)
}

func (p *Path) memory() []datapath.Remembered {
	if p.blocked == nil {
		return []datapath.Remembered{{Client: netip.MustParsePrefix("10.0.0.21/32"), Class: policy.NotLearned, Left: 2 * time.Second}}
	}
	return p.blocked
}

func (p *Path) bucket(from netip.Addr, burst func(*policy.Tables) uint32) (datapath.Bucket, error) {
	if from == netip.MustParseAddr("10.0.0.10") {
		return datapath.Bucket{Tokens: -1, Full: 3 * time.Second}, nil
	}
	if from == netip.MustParseAddr("10.0.0.9") {
		return datapath.Bucket{Known: true, Tokens: 0.5, Full: 2 * time.Second}, nil
	}
	p.kernel.mu.Lock()
	defer p.kernel.mu.Unlock()
	return datapath.Bucket{Tokens: float64(burst(p.state.Tables))}, nil
}

// Sources returns fixed numbers.
func (p *Path) Sources() (datapath.SourceUse, error) {
	return datapath.SourceUse{Size: 100, Used: 4, Debt: 2}, nil
}

// Rooms returns what SetRooms was given, and before that no room at all.
func (p *Path) Rooms() ([]datapath.Room, error) {
	p.kernel.mu.Lock()
	defer p.kernel.mu.Unlock()
	return p.kernel.rooms, nil
}

// ReadRoom reads the room of a service from what SetRooms was given, and what was steered last.
func (p *Path) ReadRoom(service int, into *datapath.RoomReading) error {
	p.kernel.mu.Lock()
	defer p.kernel.mu.Unlock()
	*into = datapath.RoomReading{}
	if service < len(p.kernel.rooms) {
		into.Room = p.kernel.rooms[service]
	}
	c := p.controls[service]
	into.Limit, into.Safe, into.Level = c.Limit, c.Safe, c.Level
	return nil
}

// ReadPaced returns nothing.
func (p *Path) ReadPaced(datapath.PacedRule) (datapath.Counts, error) { return datapath.Counts{}, nil }

// ReadService returns nothing.
func (p *Path) ReadService(int) (datapath.Counts, error) { return datapath.Counts{}, nil }

// SetPace does nothing.
func (p *Path) SetPace(datapath.PacedRule, datapath.Pace) error { return nil }

// Steer keeps the control.
func (p *Path) Steer(service int, c datapath.Control) error {
	p.kernel.mu.Lock()
	defer p.kernel.mu.Unlock()
	if p.controls == nil {
		p.controls = map[int]datapath.Control{}
	}
	p.controls[service] = c
	return nil
}

// Control returns what an instance was told last to do in a service.
func (k *Kernel) Control(instance string, service int) datapath.Control {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.instances[instance].controls[service]
}

// Pool returns what SetPool was given, and before that fixed numbers.
func (p *Path) Pool() (datapath.PoolUse, error) {
	p.kernel.mu.Lock()
	defer p.kernel.mu.Unlock()
	return p.kernel.pool, nil
}

// Tick is counted.
func (p *Path) Tick() error {
	p.kernel.mu.Lock()
	defer p.kernel.mu.Unlock()
	p.kernel.ticks++
	return nil
}

// Sweep finds nothing to forget.
func (p *Path) Sweep() error { return nil }

// Clear empties the rooms.
func (p *Path) Clear(limit time.Duration) error {
	p.kernel.mu.Lock()
	defer p.kernel.mu.Unlock()
	p.kernel.rooms = nil
	p.kernel.end = append(p.kernel.end, "clear "+limit.String())
	return nil
}

// NewLists keeps nothing.
func (p *Path) NewLists(*lists.Table) (*datapath.Lists, error) { return &datapath.Lists{}, nil }

// SwapLists does nothing.
func (p *Path) SwapLists(*datapath.Lists) error { return nil }

// ListMatches returns a fixed number of matches of each list.
func (p *Path) ListMatches() ([]uint64, error) {
	return slices.Repeat([]uint64{7}, policy.MaxLists), nil
}

// MapBytes returns a fixed number.
func (p *Path) MapBytes() (uint64, error) { return 4096, nil }

// Journal returns what was recorded.
func (p *Path) Journal() (map[string]string, error) {
	p.kernel.mu.Lock()
	defer p.kernel.mu.Unlock()
	return maps.Clone(p.journal), nil
}

// Record records.
func (p *Path) Record(key, value string) error {
	p.kernel.mu.Lock()
	defer p.kernel.mu.Unlock()
	p.journal[key] = value
	return nil
}

// Erase erases.
func (p *Path) Erase(key string) error {
	p.kernel.mu.Lock()
	defer p.kernel.mu.Unlock()
	delete(p.journal, key)
	return nil
}

// Network is a namespace with the interfaces that a test puts there.
type Network struct {
	ID      uint64 // its cookie
	changes chan netif.Snapshot

	mu   sync.Mutex
	snap netif.Snapshot
}

// NewNetwork returns a namespace with interfaces that are up and have an address.
func NewNetwork(names ...string) *Network {
	return &Network{ID: 1, changes: make(chan netif.Snapshot), snap: snapshotOf(names...)}
}

func snapshotOf(names ...string) netif.Snapshot {
	s := netif.Snapshot{Locals: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}}
	s.Links = append(s.Links, netif.Link{Index: 1, Name: "lo", Ethernet: true, Loopback: true, Up: true, HasAddress: true})
	for i, name := range names {
		ethernet := !strings.HasPrefix(name, "tun")
		s.Links = append(s.Links, netif.Link{Index: i + 2, Name: name, Ethernet: ethernet, Up: true, HasAddress: true})
	}
	return s
}

// Do calls f.
func (n *Network) Do(f func() error) error { return f() }

// Cookie returns ID.
func (n *Network) Cookie() (uint64, error) { return n.ID, nil }

// Close does nothing.
func (n *Network) Close() error { return nil }

// Gone is false.
func (n *Network) Gone() bool { return false }

// Snapshot returns what there is.
func (n *Network) Snapshot() (netif.Snapshot, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.snap, nil
}

// Run delivers what Become makes.
func (n *Network) Run(ctx context.Context, changed chan<- netif.Snapshot) {
	for {
		select {
		case s := <-n.changes:
			select {
			case changed <- s:
			case <-ctx.Done():
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// Become makes the interfaces be those with the names.
func (n *Network) Become(names ...string) {
	n.BecomeUnseen(names...)
	n.changes <- snapshotOf(names...)
}

// BecomeUnseen is Become of which Run does not tell yet.
func (n *Network) BecomeUnseen(names ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.snap = snapshotOf(names...)
}

// RouteTo leads to the n-th interface for 10.n.0.0/16, to lo for 127.0.0.0/8 and what is
// local, and to the first interface for all else but 203.0.113.0/24.
func (n *Network) RouteTo(to netip.Addr) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch b := to.As16(); {
	case to.IsLoopback() || n.snap.Locals[0].Contains(to):
		return 1, nil
	case netip.MustParsePrefix("203.0.113.0/24").Contains(to):
		return 0, netif.ErrNoRoute
	case to.Is4() && b[12] == 10:
		return 2 + int(b[13]), nil
	}
	return 2, nil
}

// Listeners are on port 80.
func (n *Network) Listeners() (netif.Listeners, error) {
	return netif.Listeners{netip.MustParseAddrPort("0.0.0.0:80")}, nil
}

// Diag knows no sockets.
func (n *Network) Diag() (netif.SocketDiag, error) { return noSockets{}, nil }

type noSockets struct{}

func (noSockets) Listening(into []netif.Listening) ([]netif.Listening, error) { return into, nil }
func (noSockets) Backlog(netip.AddrPort, uint32, uint16) (int, error)         { return 0, nil }

func (noSockets) Peers(uint16, bool, func(netip.Addr)) error { return nil }

func (noSockets) Unread(uint16, bool) (netif.Unread, error) { return netif.Unread{}, nil }
func (noSockets) Close() error                              { return nil }
