// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"

	"github.com/cilium/ebpf"
)

// Spec returns the programs as they are committed and as a new instance loads them, but with few
// entries in their large maps: to see what the kernel's verifier makes of the programs, not to
// enforce anything. What an instance draws by lot is fixed, for the verifier knows constants.
func Spec() (*ebpf.CollectionSpec, error) {
	spec, err := loadNarthex()
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
