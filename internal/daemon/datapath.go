// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"narthex/internal/datapath"
	"narthex/internal/lists"
	"narthex/internal/netif"
)

// Datapath is what the daemon needs of a *datapath.Instance.
type Datapath interface {
	Adopted() bool
	Notes() []string
	Missing() []datapath.Missing
	Apply(datapath.State) error
	NewLists(*lists.Table) (*datapath.Lists, error)
	SwapLists(*datapath.Lists) error
	ListMatches() ([]uint64, error)
	Attachments() []datapath.Attachment
	Stats() (datapath.Stats, error)
	Bucket(rule, limit int, from netip.Addr) (datapath.Bucket, error)
	RequestBucket(rule, limit int, from netip.Addr, value string) (datapath.Bucket, error)
	Client(from netip.Addr) (datapath.Client, error)
	Blocked() ([]datapath.Remembered, error)
	Learned() ([]datapath.Remembered, error)
	Block(from netip.Addr, long time.Duration) error
	Learn(from netip.Addr, class int, long time.Duration) error
	Unblock(within []netip.Prefix) ([]netip.Prefix, error)
	Unlearn(within []netip.Prefix) ([]netip.Prefix, error)
	FillBucket(rule, limit int, from netip.Addr) (bool, error)
	FillRequestBucket(rule, limit int, from netip.Addr) (bool, error)
	Places(clients []netip.Addr) ([]datapath.Taken, error)
	Sources() (datapath.SourceUse, error)
	Rooms() ([]datapath.Room, error)
	ReadRoom(service int, into *datapath.RoomReading) error
	Steer(service int, c datapath.Control) error
	Pool() (datapath.PoolUse, error)
	Events() (datapath.EventReader, error)
	Mirror() (datapath.MirrorReader, error)
	Tick() error
	Sweep() error
	Clear(limit time.Duration) error
	ReadPaced(datapath.PacedRule) (datapath.Counts, error)
	SetPace(datapath.PacedRule, datapath.Pace) error
	ReadService(service int) (datapath.Counts, error)
	MapBytes() (uint64, error)
	Journal() (map[string]string, error)
	Record(key, value string) error
	Erase(key string) error
	Close() error
}

// Kernel opens and removes data paths.
type Kernel struct {
	Open   func(cfg datapath.Config, rules int) (Datapath, error)
	Remove func(instance string) (found bool, err error)
	// Pinned reports whether an instance polices something, with or without a daemon.
	Pinned func(instance string) (bool, error)
}

// BPF is the Kernel that is made of eBPF.
func BPF() Kernel {
	return Kernel{
		Open: func(cfg datapath.Config, rules int) (Datapath, error) {
			in, err := datapath.Open(cfg, rules)
			if err != nil {
				return nil, err
			}
			return in, nil
		},
		Remove: func(instance string) (bool, error) { return datapath.Remove("", instance) },
		Pinned: func(instance string) (bool, error) {
			_, interfaces, err := datapath.Pinned("", instance)
			return interfaces > 0, err
		},
	}
}

// Network is what the daemon needs of a network namespace.
type Network interface {
	Do(func() error) error // on a thread in the namespace
	Cookie() (uint64, error)
	Snapshot() (netif.Snapshot, error)
	Run(ctx context.Context, changed chan<- netif.Snapshot)
	Listeners() (netif.Listeners, error)
	Diag() (netif.SocketDiag, error)
	RouteTo(netip.Addr) (index int, err error) // as netif.RouteTo
	Gone() bool                                // the file by which it was opened stands for it no more
	Close() error
}

// namespace is the Network that is a namespace of this machine.
type namespace struct {
	*netif.Namespace
	*netif.Watcher
}

// OpenNamespace opens a network namespace by its name or path, or that of the process if
// the name is empty.
func OpenNamespace(name string, log *slog.Logger) (Network, error) {
	ns, err := netif.OpenNamespace(name)
	if err != nil {
		return nil, err
	}
	w, err := netif.Watch(ns, log)
	if err != nil {
		ns.Close()
		return nil, err
	}
	return namespace{ns, w}, nil
}

func (n namespace) Listeners() (netif.Listeners, error) { return netif.ReadListeners(n.Namespace) }

func (n namespace) Diag() (netif.SocketDiag, error) {
	d, err := netif.OpenDiag(n.Namespace)
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (n namespace) RouteTo(to netip.Addr) (int, error) { return netif.RouteTo(n.Namespace, to) }

func (n namespace) Close() error {
	n.Watcher.Close()
	return n.Namespace.Close()
}
