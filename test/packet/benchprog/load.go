// SPDX-License-Identifier: Apache-2.0

package benchprog

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"

	"narthex/internal/datapath"
)

// Sources is how many addresses bench_known takes in turn.
const Sources = 16_384

// Programs are the benchmark programs over the maps of an instance.
type Programs struct{ coll *ebpf.Collection }

// Load loads the programs for the instance that is pinned in a folder. They decide by the policy
// that it has in force.
func Load(pins string) (*Programs, error) {
	spec, err := LoadBench()
	if err != nil {
		return nil, err
	}
	shared := map[string]*ebpf.Map{}
	for name, m := range spec.Maps {
		p, err := ebpf.LoadPinnedMap(filepath.Join(pins, "maps", name), nil)
		if err != nil {
			continue // the benchmark's own
		}
		defer p.Close()
		m.MaxEntries, m.ValueSize, shared[name] = p.MaxEntries(), p.ValueSize(), p
	}
	sets := shared["source_sets"]
	if sets == nil {
		return nil, fmt.Errorf("load benchmark programs: no instance is pinned in %s", pins)
	}
	if err := spec.Variables["source_set_mask"].Set(sets.MaxEntries() - 1); err != nil {
		return nil, err
	}
	if err := datapath.SetKernel(spec); err != nil {
		return nil, err
	}
	spec.Maps["readings"].MaxEntries = uint32(ebpf.MustPossibleCPU())
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared})
	if err != nil {
		return nil, fmt.Errorf("load benchmark programs: %w", err)
	}
	return &Programs{coll}, nil
}

// Close unloads the programs.
func (p *Programs) Close() { p.coll.Close() }

// Map is one of theirs, the instance's or their own.
func (p *Programs) Map(name string) *ebpf.Map { return p.coll.Maps[name] }

// From has bench_known and bench_nothing take these addresses in turn.
func (p *Programs) From(list []netip.Addr) error {
	for i := range uint32(Sources) {
		var a [16]byte
		copy(a[:], list[int(i)%len(list)].AsSlice())
		if err := p.Map("bench_sources").Put(i, a); err != nil {
			return err
		}
	}
	return nil
}

// Time runs a program on a frame so many times and returns what one run takes. All must come to
// the verdict that is wanted.
func (p *Programs) Time(name string, frame []byte, repeat int, want uint32) (time.Duration, error) {
	verdict, d, err := p.coll.Programs[name].Benchmark(frame, repeat, nil)
	if err == nil && verdict != want {
		err = fmt.Errorf("verdict %d in place of %d", int32(verdict), want)
	}
	if err != nil {
		return 0, fmt.Errorf("run %s: %w", name, err)
	}
	return d, nil
}
