// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab"
)

const (
	memorySources = 250_000
	memoryReloads = 20
	mebibyte      = 1 << 20
)

// memory is what a large policy and many sources take. The sources are half IPv4
// addresses, half IPv6 prefixes, and each sends one SYN; no server need answer.
func (b suite) memory(ctx context.Context) (figures []bench.Figure, err error) {
	rig, err := b.Lab("memory", 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rig.Close()) }()
	policies, err := twoPolicies(rig)
	if err != nil {
		return nil, err
	}
	n, err := b.Start(ctx, rig.Server, policies[0])
	if err != nil {
		return nil, err
	}
	b.Progress("  %d sources", memorySources)
	if err := sendFromMany(ctx, rig, memorySources); err != nil {
		return nil, err
	}
	before, err := readMemory(ctx, n)
	if err != nil {
		return nil, err
	}
	b.Progress("  %d reloads", memoryReloads)
	for i := range memoryReloads {
		if _, err := n.Reload(ctx, policies[(i+1)%2]); err != nil {
			return nil, err
		}
	}
	after, err := readMemory(ctx, n)
	if err != nil {
		return nil, err
	}
	return []bench.Figure{
		{
			What: "SYNs of new sources that were decided", Samples: []float64{float64(before.everyone)}, Wanted: bench.AtLeast(memorySources),
			Note: fmt.Sprintf("of the %d buckets %d are in use", before.buckets, before.used),
		},
		{What: "maps, by status", Unit: "MiB", Samples: []float64{before.maps, after.maps}, Wanted: bench.Always(0, 96)},
		{What: "maps, by the kernel", Unit: "MiB", Samples: []float64{before.kernelMaps, after.kernelMaps}, Wanted: bench.Always(0, 96)},
		{What: "daemon's RSS", Unit: "MiB", Samples: []float64{before.rss}, Wanted: bench.AtMost(48)},
		{What: "daemon's RSS after 20 reloads", Unit: "MiB", Samples: []float64{after.rss}, Wanted: bench.AtMost(48)},
		{What: "daemon's highest RSS before", Unit: "MiB", Samples: []float64{before.peak}},
		{What: "daemon's highest RSS after", Unit: "MiB", Samples: []float64{after.peak}},
	}, nil
}

// sendFromMany sends a SYN from each of so many sources to the lab's service. None is in
// a network that the policies' other rules name.
func sendFromMany(ctx context.Context, rig *lab.Lab, sources int) error {
	raw, err := rig.Client.OpenSender(lab.Dev)
	if err != nil {
		return err
	}
	defer raw.Close()
	syn, err := rig.NewSYN(netip.AddrPort{}, bench.Web(rig))
	if err != nil {
		return err
	}
	for i := range sources {
		if i%1000 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		j := i / 2
		from := netip.AddrFrom4([4]byte{10, 128 + byte(j>>16), byte(j >> 8), byte(j)})
		syn.To = bench.Web(rig)
		if i%2 == 1 {
			from = netip.AddrFrom16([16]byte{0xfd, 0x99, 5: byte(j >> 16), 6: byte(j >> 8), 7: byte(j), 15: 1})
			syn.To = netip.AddrPortFrom(rig.ServerV6, bench.Web(rig).Port())
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

func readMemory(ctx context.Context, n *bench.Narthex) (m memoryUse, err error) {
	s, err := n.Status(ctx)
	if err != nil {
		return m, err
	}
	everyone, err := bench.Rule(s, "everyone")
	if err != nil {
		return m, err
	}
	m.everyone, m.buckets, m.used = everyone.Matched, s.Sources.Size, s.Sources.Used
	m.maps = float64(s.MapBytes) / mebibyte
	if m.kernelMaps, err = bench.MapMemory(n.Instance); err != nil {
		return m, err
	}
	if m.rss, err = procStatus(s.PID, "VmRSS"); err != nil {
		return m, err
	}
	m.peak, err = procStatus(s.PID, "VmHWM")
	return m, err
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
