// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// settings are what the programs are told of the kernel. What the kernel has is tried with
// small programs: distributions bring back to old versions what is of new ones.
var settings = []struct {
	feature  Feature
	variable string
	probe    func() error
}{
	{FeatureCasts, narthexVarHasCasts, probeCasts},
	{FeatureMemoryKeys, narthexVarHasMemoryKeys, probeMemoryKeys},
}

// SetKernel tries what the kernel has of what programs go by that are made of the same source, and tells them.
func SetKernel(spec *ebpf.CollectionSpec) error { return features{}.setKernel(spec) }

// setKernel tries what the programs go by, and tells them.
func (f features) setKernel(spec *ebpf.CollectionSpec) error {
	for _, s := range settings {
		err := f.lacks(s.feature)
		if err == nil {
			err = s.probe()
			f.miss(s.feature, err)
		}
		if err := spec.Variables[s.variable].Set(uint8(flag(err == nil))); err != nil {
			return fmt.Errorf("setting %q: %w", s.variable, err)
		}
	}
	pointToValues(spec)
	return nil
}

// pointToValues has each load of a map that ONLY_VALUE reads load the address of the map's only value. Compilers do
// that for variables, but maps of variables have no names of their own, and an instance finds its maps by name.
func pointToValues(spec *ebpf.CollectionSpec) {
	values := []string{narthexMapPool, narthexMapWatches, narthexMapAudience, narthexMapMirror}
	for _, p := range spec.Programs {
		for i := range p.Instructions {
			if ins := &p.Instructions[i]; ins.IsLoadFromMap() && slices.Contains(values, ins.Reference()) {
				ins.Src = asm.PseudoMapValue
			}
		}
	}
}

// tryProgram loads a program and lets it go. A refusal is ErrNotSupported.
func tryProgram(ins asm.Instructions) error {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, Instructions: ins, License: "Dual BSD/GPL"})
	if err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: %s", ebpf.ErrNotSupported, firstLine(err))
	}
	if err == nil {
		err = p.Close()
	}
	return err
}

// probeCasts tries the kfuncs bpf_cast_to_kern_ctx and bpf_rdonly_cast.
func probeCasts() error {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return fmt.Errorf("reading the kernel's types: %w", err)
	}
	ids := map[string]int64{}
	for _, name := range []string{"bpf_cast_to_kern_ctx", "bpf_rdonly_cast"} {
		var f *btf.Func
		if err := kernel.TypeByName(name, &f); err != nil {
			return fmt.Errorf("%w: there is no kfunc %s", ebpf.ErrNotSupported, name)
		}
		id, err := kernel.TypeID(f)
		if err != nil {
			return err
		}
		ids[name] = int64(id)
	}
	var buffer *btf.Struct
	if err := kernel.TypeByName("sk_buff", &buffer); err != nil {
		return fmt.Errorf("%w: there is no struct sk_buff", ebpf.ErrNotSupported)
	}
	id, err := kernel.TypeID(buffer)
	if err != nil {
		return err
	}
	call := func(name string) asm.Instruction {
		return asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call), Src: asm.PseudoKfuncCall, Constant: ids[name]}
	}
	return tryProgram(asm.Instructions{
		call("bpf_cast_to_kern_ctx"), // of the context in R1
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.LoadImm(asm.R2, int64(id), asm.DWord),
		call("bpf_rdonly_cast"),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	})
}

// probeMemoryKeys tries a key in memory that is neither a stack, nor a packet, nor a map: that of a
// ring buffer.
func probeMemoryKeys() error {
	ring, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: uint32(unix.Getpagesize())})
	if err != nil {
		return fmt.Errorf("making a ring buffer: %w", err)
	}
	defer closeMap(ring)
	hash, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return fmt.Errorf("making a map: %w", err)
	}
	defer closeMap(hash)
	return tryProgram(asm.Instructions{
		asm.LoadMapPtr(asm.R1, ring.FD()),
		asm.Mov.Imm(asm.R2, 8),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnRingbufReserve.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Reg(asm.R6, asm.R0),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(asm.R6, 0, asm.R1, asm.DWord),
		asm.LoadMapPtr(asm.R1, hash.FD()),
		asm.Mov.Reg(asm.R2, asm.R6),
		asm.FnMapLookupElem.Call(),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRingbufDiscard.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	})
}
