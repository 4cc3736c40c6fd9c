// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"narthex/test/nettest"
)

// The probes say what the kernel says elsewhere.
func TestProbes(t *testing.T) {
	nettest.Root(t)
	kernel, err := btf.LoadKernelSpec()
	nettest.Check(t, err)
	var f *btf.Func
	has := kernel.TypeByName("bpf_cast_to_kern_ctx", &f) == nil && kernel.TypeByName("bpf_rdonly_cast", &f) == nil
	if err := probeCasts(); (err == nil) != has || err != nil && !isNotSupported(err) {
		t.Errorf("casts: %v, the kernel's types have them: %v", err, has)
	}
	// Both are of 6.2, and have not been brought back one without the other.
	if err := probeMemoryKeys(); (err == nil) != has || err != nil && !isNotSupported(err) {
		t.Errorf("keys in any memory: %v", err)
	}
}

// A program that the kernel refuses is a feature that is missing, with the verifier's last word.
func TestRefused(t *testing.T) {
	nettest.Root(t)
	err := tryProgram(asm.Instructions{asm.Mov.Reg(asm.R0, asm.R5), asm.Return()})
	if !isNotSupported(err) || !strings.Contains(err.Error(), "R5") { // the rest differs between kernels
		t.Errorf("error %v", err)
	}
}

func TestSetKernel(t *testing.T) {
	nettest.Root(t)
	spec, err := loadNarthex()
	nettest.Check(t, err)
	left := newFeatures([]Feature{FeatureCasts})
	nettest.Check(t, left.setKernel(spec))
	var casts, keys uint8
	nettest.Check(t, spec.Variables[narthexVarHasCasts].Get(&casts))
	nettest.Check(t, spec.Variables[narthexVarHasMemoryKeys].Get(&keys))
	if casts != 0 || keys != flag(probeMemoryKeys() == nil) {
		t.Errorf("casts %d, keys in any memory %d", casts, keys)
	}
}

func TestMissingText(t *testing.T) {
	f := newFeatures([]Feature{FeatureTCX})
	f.miss(FeatureGate, errors.Join(errors.New("first"), errors.New("second")))
	f.miss(FeatureGate, errors.New("later"))
	f.miss(FeatureXDP, nil)
	const want = "gate: waiting rooms and request rules are not enforced, SYN policing is (first); " +
		"tcx: programs are attached as tc filters, in clsact qdiscs (not supported: left out by configuration)"
	if got := MissingText(f.missing()); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestParseFeatures(t *testing.T) {
	if all, err := ParseFeatures([]string{"tcx", "gate"}); err != nil || len(all) != 2 {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := ParseFeatures([]string{"tcy"}); err == nil || !strings.Contains(err.Error(), "memory-keys") {
		t.Errorf("error %v", err)
	}
}
