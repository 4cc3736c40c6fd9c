// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"sync/atomic"

	"github.com/cilium/ebpf"
)

// tables holds what the tables that a map of maps points to are made from, by that map's name.
var tables atomic.Pointer[map[string]*ebpf.MapSpec]

// readSpec reads the object file.
func readSpec() (*ebpf.CollectionSpec, error) {
	spec, err := loadNarthex()
	if err != nil {
		return nil, err
	}
	inner := map[string]*ebpf.MapSpec{}
	for name, m := range spec.Maps {
		if m.InnerMap != nil {
			inner[name] = m.InnerMap.Copy()
			inner[name].Key, inner[name].Value = nil, nil // they would keep all types of the file
		}
	}
	tables.Store(&inner)
	return spec, nil
}

// newTable makes a table of so many pages for a map of maps. It reads the object file only if nobody has yet: that
// takes as long as the kernel takes to verify some of its programs.
func newTable(of string, pages int) (*ebpf.Map, error) {
	if tables.Load() == nil {
		if _, err := readSpec(); err != nil {
			return nil, err
		}
	}
	spec := (*tables.Load())[of].Copy()
	spec.MaxEntries = uint32(pages)
	return ebpf.NewMap(spec)
}

// Spec returns the programs as they are committed and as a new instance loads them, but with few
// entries in their large maps: to see what the kernel's verifier makes of the programs, not to
// enforce anything. What an instance draws by lot is fixed, for the verifier knows constants.
func Spec() (*ebpf.CollectionSpec, error) {
	spec, err := readSpec()
	if err != nil {
		return nil, err
	}
	in := &Instance{}
	if err := in.size(spec, nil, 0); err != nil {
		return nil, err
	}
	if _, err := in.setGate(spec, nil); err != nil {
		return nil, err
	}
	if err := SetKernel(spec); err != nil {
		return nil, err
	}
	for _, name := range []string{narthexMapSlots, narthexMapFlows, narthexMapBriefFlows, narthexMapSourceSets} {
		spec.Maps[name].MaxEntries = 1
	}
	return spec, errors.Join(
		spec.Variables[narthexVarGateMark].Set(uint32(0x1000)),
		spec.Variables[narthexVarNetCookie].Set(uint64(1)),
		spec.Variables[narthexVarCpuCount].Set(uint32(2)),
		spec.Variables[narthexVarFlowCount].Set(uint32(DefaultFlows)),
	)
}
