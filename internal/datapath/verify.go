// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// part is programs that are of use together alone: if one is refused, so are the others.
type part struct {
	feature  Feature
	programs []string
}

// parts are what the object's programs are loaded in, those that take longest first. Those of the gate that are
// large are parts of their own, for parts are verified beside each other.
var parts = []part{
	{FeatureGate, []string{narthexProgNarthexGateDecide}},
	{FeatureGate, []string{narthexProgNarthexGateIn}},
	{FeatureGate, []string{narthexProgNarthexGateOut}},
	{FeatureGate, []string{
		narthexProgNarthexGateAttend, narthexProgNarthexGateFingerprint, narthexProgNarthexGateReset, narthexProgNarthexGateSteer, narthexProgNarthexGateSweep,
		narthexProgNarthexGateTick, narthexProgNarthexGateUse, narthexProgNarthexSockState, narthexProgNarthexSockMissed, narthexProgNarthexSockRelease,
	}},
	{FeatureXDP, []string{narthexProgNarthexXdpSyn}},
	{FeatureTraffic, []string{narthexProgNarthexTcxSyn}},
	{FeatureCgroup, []string{narthexProgNarthexSockops, narthexProgNarthexSockOlder}},
}

// places are where the programs are kept, by their names.
func (p *narthexPrograms) places() map[string]**ebpf.Program {
	return map[string]**ebpf.Program{
		narthexProgNarthexXdpSyn:          &p.NarthexXdpSyn,
		narthexProgNarthexTcxSyn:          &p.NarthexTcxSyn,
		narthexProgNarthexGateIn:          &p.NarthexGateIn,
		narthexProgNarthexGateDecide:      &p.NarthexGateDecide,
		narthexProgNarthexGateAttend:      &p.NarthexGateAttend,
		narthexProgNarthexGateFingerprint: &p.NarthexGateFingerprint,
		narthexProgNarthexGateOut:         &p.NarthexGateOut,
		narthexProgNarthexGateReset:       &p.NarthexGateReset,
		narthexProgNarthexGateSteer:       &p.NarthexGateSteer,
		narthexProgNarthexGateSweep:       &p.NarthexGateSweep,
		narthexProgNarthexGateTick:        &p.NarthexGateTick,
		narthexProgNarthexGateUse:         &p.NarthexGateUse,
		narthexProgNarthexSockRelease:     &p.NarthexSockRelease,
		narthexProgNarthexSockState:       &p.NarthexSockState,
		narthexProgNarthexSockMissed:      &p.NarthexSockMissed,
		narthexProgNarthexSockOlder:       &p.NarthexSockOlder,
		narthexProgNarthexSockops:         &p.NarthexSockops,
	}
}

// loadObjects makes the maps that are not reused, and loads the programs, part by part. A part that the
// kernel refuses is missing; without any that polices SYNs there is nothing to be had.
func (o *objects) loadObjects(spec *ebpf.CollectionSpec, reused map[string]*ebpf.Map) error {
	memory := spec.Copy()
	memory.Programs = nil
	shared, err := ebpf.NewCollectionWithOptions(memory, ebpf.CollectionOptions{MapReplacements: reused})
	if err != nil {
		return err
	}
	defer shared.Close()
	if err := o.loadParts(spec, shared.Maps); err != nil {
		return err
	}
	if err := shared.Assign(&o.narthexMaps); err != nil {
		return err
	}
	if o.hasGate() {
		next := map[narthexNextProgram]*ebpf.Program{
			narthexNextProgramNEXT_DECIDE:      o.NarthexGateDecide,
			narthexNextProgramNEXT_ATTEND:      o.NarthexGateAttend,
			narthexNextProgramNEXT_FINGERPRINT: o.NarthexGateFingerprint,
		}
		for key, prog := range next {
			if err := o.NextPrograms.Put(uint32(key), prog); err != nil {
				return fmt.Errorf("joining the gate's programs: %w", err)
			}
		}
	}
	if o.NarthexXdpSyn == nil && o.NarthexTcxSyn == nil {
		return errors.Join(o.lacks(FeatureXDP), o.lacks(FeatureTraffic))
	}
	return nil
}

// loaders is how many parts are loaded at once: each takes a core for the kernel to verify it, and reads the kernel's
// types anew.
const loaders = 2

// loadParts loads all parts, the first ones first.
func (o *objects) loadParts(spec *ebpf.CollectionSpec, maps map[string]*ebpf.Map) error {
	loaded := make([]map[string]*ebpf.Program, len(parts))
	failed := make([]error, len(parts))
	waiting := make(chan int, len(parts))
	for i, p := range parts {
		if o.lacks(p.feature) == nil {
			waiting <- i
		}
	}
	close(waiting)
	var loading sync.WaitGroup
	for range loaders {
		loading.Go(func() {
			types := btf.NewCache() // not for several at once
			for i := range waiting {
				loaded[i], failed[i] = parts[i].load(spec, maps, types)
			}
		})
	}
	loading.Wait()
	var all error
	for i, p := range parts {
		all = errors.Join(all, o.keep(p, loaded[i], failed[i]))
	}
	if o.lacks(FeatureGate) != nil { // without one of its parts the others are of no use
		o.dropGate()
	}
	return all
}

// load loads the programs of a part.
func (p part) load(spec *ebpf.CollectionSpec, maps map[string]*ebpf.Map, types *btf.Cache) (map[string]*ebpf.Program, error) {
	own := *spec
	own.Programs = map[string]*ebpf.ProgramSpec{}
	for _, name := range p.programs {
		own.Programs[name] = spec.Programs[name]
	}
	c, err := ebpf.NewCollectionWithOptions(own.Copy(), ebpf.CollectionOptions{MapReplacements: maps, Cache: types})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	loaded := map[string]*ebpf.Program{}
	for _, name := range p.programs {
		loaded[name] = c.DetachProgram(name)
	}
	return loaded, nil
}

// keep takes the programs of a part over, or notes that it is missing. What is wrong with this process
// and not with the kernel is an error.
func (o *objects) keep(p part, loaded map[string]*ebpf.Program, err error) error {
	var refused *ebpf.VerifierError
	if err != nil && !errors.As(err, &refused) && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOMEM)) {
		return err
	}
	o.miss(p.feature, err)
	places := o.places()
	for name, prog := range loaded {
		*places[name] = prog
	}
	return nil
}

// dropGate closes the programs of the gate.
func (o *objects) dropGate() {
	places := o.places()
	for _, p := range parts {
		if p.feature != FeatureGate {
			continue
		}
		for _, name := range p.programs {
			_ = (*places[name]).Close()
			*places[name] = nil
		}
	}
}

func loadError(err error) error {
	var ve *ebpf.VerifierError
	if errors.As(err, &ve) {
		return fmt.Errorf("the kernel's verifier refuses a program, please report it: %+v", ve)
	}
	return fmt.Errorf("loading eBPF programs: %w", err)
}
