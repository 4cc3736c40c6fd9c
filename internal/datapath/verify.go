// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"sync"

	"github.com/cilium/ebpf"
)

// loadObjects makes the maps that are not reused, and loads all programs. The kernel verifies a program
// on the core of the thread that loads it: the gate's for incoming packets, which takes as long as all
// others together, is loaded beside them.
func loadObjects(spec *ebpf.CollectionSpec, reused map[string]*ebpf.Map, to *narthexObjects) error {
	memory := spec.Copy()
	memory.Programs = nil
	shared, err := ebpf.NewCollectionWithOptions(memory, ebpf.CollectionOptions{MapReplacements: reused})
	if err != nil {
		return err
	}
	defer shared.Close()

	largest := spec.Copy()
	largest.Programs = map[string]*ebpf.ProgramSpec{narthexProgNarthexGateIn: largest.Programs[narthexProgNarthexGateIn]}
	others := spec.Copy()
	delete(others.Programs, narthexProgNarthexGateIn)

	opts := ebpf.CollectionOptions{MapReplacements: shared.Maps}
	var beside *ebpf.Collection
	var failed error
	var loading sync.WaitGroup
	loading.Go(func() { beside, failed = ebpf.NewCollectionWithOptions(largest, opts) })
	all, err := ebpf.NewCollectionWithOptions(others, opts)
	loading.Wait()
	if all != nil {
		defer all.Close()
	}
	if beside != nil {
		defer beside.Close()
	}
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	all.Programs[narthexProgNarthexGateIn] = beside.DetachProgram(narthexProgNarthexGateIn)
	return all.Assign(to)
}
