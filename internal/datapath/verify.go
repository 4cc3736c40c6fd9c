// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// part is programs that are of use together alone: if one is refused, so are the others.
type part struct {
	feature  Feature
	programs []string
}

// largestPart is the program whose verification takes as long as that of all others together.
var largestPart = part{FeatureGate, []string{narthexProgNarthexGateIn}}

// parts are what the object's programs are loaded in.
var parts = []part{
	{FeatureXDP, []string{narthexProgNarthexXdpSyn}},
	{FeatureTraffic, []string{narthexProgNarthexTcxSyn}},
	{FeatureGate, []string{
		narthexProgNarthexGateOut, narthexProgNarthexGateReset, narthexProgNarthexGateSteer, narthexProgNarthexGateSweep,
		narthexProgNarthexGateTick, narthexProgNarthexSockState, narthexProgNarthexSockMissed, narthexProgNarthexSockRelease,
	}},
	{FeatureCgroup, []string{narthexProgNarthexSockops, narthexProgNarthexSockOlder}},
}

// places are where the programs are kept, by their names.
func (p *narthexPrograms) places() map[string]**ebpf.Program {
	return map[string]**ebpf.Program{
		narthexProgNarthexXdpSyn:      &p.NarthexXdpSyn,
		narthexProgNarthexTcxSyn:      &p.NarthexTcxSyn,
		narthexProgNarthexGateIn:      &p.NarthexGateIn,
		narthexProgNarthexGateOut:     &p.NarthexGateOut,
		narthexProgNarthexGateReset:   &p.NarthexGateReset,
		narthexProgNarthexGateSteer:   &p.NarthexGateSteer,
		narthexProgNarthexGateSweep:   &p.NarthexGateSweep,
		narthexProgNarthexGateTick:    &p.NarthexGateTick,
		narthexProgNarthexSockRelease: &p.NarthexSockRelease,
		narthexProgNarthexSockState:   &p.NarthexSockState,
		narthexProgNarthexSockMissed:  &p.NarthexSockMissed,
		narthexProgNarthexSockOlder:   &p.NarthexSockOlder,
		narthexProgNarthexSockops:     &p.NarthexSockops,
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
	if o.NarthexXdpSyn == nil && o.NarthexTcxSyn == nil {
		return errors.Join(o.lacks(FeatureXDP), o.lacks(FeatureTraffic))
	}
	return nil
}

// loadParts loads the largest program beside the others: the kernel verifies one on the core of the thread that
// loads it.
func (o *objects) loadParts(spec *ebpf.CollectionSpec, maps map[string]*ebpf.Map) error {
	var largest map[string]*ebpf.Program
	var failed error
	var loading sync.WaitGroup
	if o.lacks(largestPart.feature) == nil {
		loading.Go(func() { largest, failed = largestPart.load(spec, maps) })
	}
	var all error
	for _, p := range parts {
		if o.lacks(p.feature) == nil {
			loaded, err := p.load(spec, maps)
			all = errors.Join(all, o.keep(p, loaded, err))
		}
	}
	loading.Wait()
	all = errors.Join(all, o.keep(largestPart, largest, failed))
	if o.lacks(FeatureGate) != nil { // without one of its parts the other is of no use
		for _, p := range append(parts, largestPart) {
			if p.feature == FeatureGate {
				o.drop(p)
			}
		}
	}
	return all
}

// load loads the programs of a part.
func (p part) load(spec *ebpf.CollectionSpec, maps map[string]*ebpf.Map) (map[string]*ebpf.Program, error) {
	own := spec.Copy()
	own.Programs = map[string]*ebpf.ProgramSpec{}
	for _, name := range p.programs {
		own.Programs[name] = spec.Programs[name].Copy()
	}
	c, err := ebpf.NewCollectionWithOptions(own, ebpf.CollectionOptions{MapReplacements: maps})
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

// drop closes the programs of a part.
func (o *objects) drop(p part) {
	places := o.places()
	for _, name := range p.programs {
		_ = (*places[name]).Close()
		*places[name] = nil
	}
}

func loadError(err error) error {
	var ve *ebpf.VerifierError
	if errors.As(err, &ve) {
		return fmt.Errorf("the kernel's verifier refuses a program, please report it: %+v", ve)
	}
	return fmt.Errorf("loading eBPF programs: %w", err)
}
