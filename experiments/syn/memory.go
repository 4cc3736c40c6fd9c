// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"narthex/internal/datapath"
	"narthex/internal/testnet"
)

const (
	memorySources = 250_000
	memoryReloads = 20
	mebibyte      = 1 << 20
)

// memory is what a large policy and many sources take. The sources are half IPv4
// addresses, half IPv6 prefixes, and each sends one SYN; no server need answer.
func (b *bench) memory(ctx context.Context) (figures []figure, err error) {
	lab, err := b.lab("memory", 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	policies, err := twoPolicies(lab)
	if err != nil {
		return nil, err
	}
	n, err := b.start(ctx, lab.Server, policies[0])
	if err != nil {
		return nil, err
	}
	b.progress("  %d sources", memorySources)
	if err := sendFromMany(ctx, lab, memorySources); err != nil {
		return nil, err
	}
	before, err := n.readMemory(ctx)
	if err != nil {
		return nil, err
	}
	b.progress("  %d reloads", memoryReloads)
	for i := range memoryReloads {
		if _, err := n.reload(ctx, policies[(i+1)%2]); err != nil {
			return nil, err
		}
	}
	after, err := n.readMemory(ctx)
	if err != nil {
		return nil, err
	}
	return []figure{
		{
			What: "SYNs of new sources that were decided", Samples: []float64{float64(before.everyone)}, Wanted: atLeast(memorySources),
			Note: fmt.Sprintf("of the %d buckets %d are in use", before.buckets, before.used),
		},
		{What: "maps, by status", Unit: "MiB", Samples: []float64{before.maps, after.maps}, Wanted: always(0, 96)},
		{What: "maps, by the kernel", Unit: "MiB", Samples: []float64{before.kernelMaps, after.kernelMaps}, Wanted: always(0, 96)},
		{What: "daemon's RSS", Unit: "MiB", Samples: []float64{before.rss}, Wanted: atMost(48)},
		{What: "daemon's RSS after 20 reloads", Unit: "MiB", Samples: []float64{after.rss}, Wanted: atMost(48)},
		{What: "daemon's highest RSS before", Unit: "MiB", Samples: []float64{before.peak}},
		{What: "daemon's highest RSS after", Unit: "MiB", Samples: []float64{after.peak}},
	}, nil
}

// sendFromMany sends a SYN from each of so many sources to the lab's service. None is in
// a network that the policies' other rules name.
func sendFromMany(ctx context.Context, lab *testnet.Lab, sources int) error {
	raw, err := lab.Client.OpenSender(testnet.Dev)
	if err != nil {
		return err
	}
	defer raw.Close()
	syn, err := lab.NewSYN(netip.AddrPort{}, web(lab))
	if err != nil {
		return err
	}
	for i := range sources {
		if i%1000 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		j := i / 2
		from := netip.AddrFrom4([4]byte{10, 128 + byte(j>>16), byte(j >> 8), byte(j)})
		syn.To = web(lab)
		if i%2 == 1 {
			from = netip.AddrFrom16([16]byte{0xfd, 0x99, 5: byte(j >> 16), 6: byte(j >> 8), 7: byte(j), 15: 1})
			syn.To = netip.AddrPortFrom(lab.ServerV6, web(lab).Port())
		}
		syn.From = netip.AddrPortFrom(from, 1024)
		frame, err := syn.Frame()
		if err != nil {
			return err
		}
		if err := raw.Send(frame); err != nil {
			return err
		}
	}
	return nil
}

// memoryUse is a reading; sizes are in MiB.
type memoryUse struct {
	everyone         uint64 // SYNs that the rule for everyone decided
	buckets, used    int
	maps, kernelMaps float64
	rss, peak        float64
}

func (n *narthex) readMemory(ctx context.Context) (m memoryUse, err error) {
	s, err := n.status(ctx)
	if err != nil {
		return m, err
	}
	everyone, err := rule(s, "everyone")
	if err != nil {
		return m, err
	}
	m.everyone, m.buckets, m.used = everyone.Matched, s.Sources.Size, s.Sources.Used
	m.maps = float64(s.MapBytes) / mebibyte
	if m.kernelMaps, err = mapMemory(n.instance); err != nil {
		return m, err
	}
	if m.rss, err = procStatus(s.PID, "VmRSS"); err != nil {
		return m, err
	}
	m.peak, err = procStatus(s.PID, "VmHWM")
	return m, err
}

// mapMemory sums what the kernel says of all maps that the instance has pinned or that its
// pinned programs use, and of the maps in those.
func mapMemory(instance string) (mib float64, err error) {
	files, err := filepath.Glob(filepath.Join(datapath.Root, instance, "programs", "*"))
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("find the programs of %q: %v", instance, err)
	}
	ids, err := pinnedMaps(instance)
	if err != nil {
		return 0, err
	}
	for _, f := range files {
		p, err := ebpf.LoadPinnedProgram(f, nil)
		if err != nil {
			return 0, fmt.Errorf("open pinned program %q: %w", f, err)
		}
		info, err := p.Info()
		p.Close()
		if err != nil {
			return 0, fmt.Errorf("read pinned program %q: %w", f, err)
		}
		used, _ := info.MapIDs()
		for _, id := range used {
			ids[id] = true
		}
	}
	var sum uint64
	counted := map[ebpf.MapID]bool{0: true}
	for id := range ids {
		// A map and at most one in it: maps nest no deeper.
		for !counted[id] {
			counted[id] = true
			bytes, inner, err := mapBytes(id)
			if err != nil {
				return 0, err
			}
			sum, id = sum+bytes, inner
		}
	}
	return float64(sum) / mebibyte, nil
}

// pinnedMaps lists the maps that the instance has pinned.
func pinnedMaps(instance string) (map[ebpf.MapID]bool, error) {
	files, err := filepath.Glob(filepath.Join(datapath.Root, instance, "maps", "*"))
	if err != nil {
		return nil, err
	}
	ids := map[ebpf.MapID]bool{}
	for _, f := range files {
		m, err := ebpf.LoadPinnedMap(f, nil)
		if err != nil {
			return nil, fmt.Errorf("open pinned map %q: %w", f, err)
		}
		info, err := m.Info()
		m.Close()
		if err != nil {
			return nil, fmt.Errorf("read pinned map %q: %w", f, err)
		}
		if id, ok := info.ID(); ok {
			ids[id] = true
		}
	}
	return ids, nil
}

// mapBytes returns what a map takes, and the first map in it if it holds maps.
func mapBytes(id ebpf.MapID) (bytes uint64, inner ebpf.MapID, err error) {
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return 0, 0, fmt.Errorf("open map %d: %w", id, err)
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		return 0, 0, fmt.Errorf("read the size of map %d: %w", id, err)
	}
	bytes, ok := info.Memlock()
	if !ok {
		return 0, 0, errors.New("the kernel does not say how large maps are")
	}
	if m.Type() == ebpf.ArrayOfMaps {
		err = m.Lookup(uint32(0), &inner)
	}
	return bytes, inner, err
}

// procStatus reads a size from a process's status, in MiB.
func procStatus(pid int, key string) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 64)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("process %d: no %s in its status", pid, key)
}
