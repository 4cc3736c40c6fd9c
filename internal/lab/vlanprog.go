// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Verdicts of a tcx program.
const (
	tcxNext = -1 // go on with the chain's next program
	tcxDrop = 2
)

// Offsets in struct __sk_buff.
const (
	skbVLANPresent = 20
	skbVLANTCI     = 24
)

// redirectIngress is bpf_redirect's flag BPF_F_INGRESS.
const redirectIngress = 1

// push returns a program that tags a frame and then sends it out by the device with
// index out, or lets it go on where it is if out is 0.
func push(tags []VLANTag, out int) *ebpf.ProgramSpec {
	code := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}
	if out == 0 {
		// A frame that came with the tag and is sent back by a program has it still.
		code = append(code, asm.LoadMem(asm.R0, asm.R6, skbVLANPresent, asm.Word), asm.JNE.Imm(asm.R0, 0, "next"))
	}
	for i := len(tags) - 1; i >= 0; i-- { // the innermost first
		code = append(code,
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.Mov.Imm(asm.R2, int32(hostToNet16(tags[i].proto()))),
			asm.Mov.Imm(asm.R3, int32(tags[i].ID)),
			asm.FnSkbVlanPush.Call(),
			asm.JNE.Imm(asm.R0, 0, "drop"),
		)
	}
	return program(append(code, leave(out, 0)...))
}

// pop returns a program that takes just these tags off a frame and then has the device
// with index in receive it, or lets it go on where it is if in is 0. By the time of tcx
// ingress the kernel has moved a tag from the frame's bytes into its metadata; popping
// moves the next one there.
func pop(tags []VLANTag, in int) *ebpf.ProgramSpec {
	code := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}
	for i, tag := range tags {
		other := "next" // not our frame, and untouched
		if i > 0 {
			other = "drop" // has lost a tag already
		}
		code = append(code,
			asm.LoadMem(asm.R0, asm.R6, skbVLANPresent, asm.Word),
			asm.JEq.Imm(asm.R0, 0, other),
			asm.LoadMem(asm.R0, asm.R6, skbVLANTCI, asm.Word),
			asm.And.Imm(asm.R0, 0xfff),
			asm.JNE.Imm(asm.R0, int32(tag.ID), other),
			asm.Mov.Reg(asm.R1, asm.R6),
			asm.FnSkbVlanPop.Call(),
			asm.JNE.Imm(asm.R0, 0, "drop"),
		)
	}
	code = append(code, leave(in, redirectIngress)...)
	if in != 0 {
		code = append(code, next()...)
	}
	return program(code)
}

// leave ends a program with a redirection to a device, or without one if it is 0.
func leave(device int, flags int32) asm.Instructions {
	if device == 0 {
		return next()
	}
	return asm.Instructions{
		asm.Mov.Imm(asm.R1, int32(device)),
		asm.Mov.Imm(asm.R2, flags),
		asm.FnRedirect.Call(),
		asm.Return(),
	}
}

// next ends a program and leaves the frame where it is.
func next() asm.Instructions {
	return asm.Instructions{asm.Mov.Imm(asm.R0, tcxNext).WithSymbol("next"), asm.Return()}
}

// program completes code that ends in a return.
func program(code asm.Instructions) *ebpf.ProgramSpec {
	return &ebpf.ProgramSpec{
		Name:    "narthex_vlan",
		Type:    ebpf.SchedCLS,
		License: "Apache-2.0",
		Instructions: append(code,
			asm.Mov.Imm(asm.R0, tcxDrop).WithSymbol("drop"),
			asm.Return(),
		),
	}
}
