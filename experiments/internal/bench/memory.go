// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf"

	"narthex/internal/datapath"
)

// mebibyte is the unit of memory.
const mebibyte = 1 << 20

// MapMemory sums in MiB what the kernel says of all maps that the instance has pinned or that its
// pinned programs use, and of the maps in those.
func MapMemory(instance string) (mib float64, err error) {
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
		// A map that is filled later has none yet.
		if err = m.Lookup(uint32(0), &inner); errors.Is(err, ebpf.ErrKeyNotExist) {
			err = nil
		}
	}
	return bytes, inner, err
}
