// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"

	"github.com/cilium/ebpf"

	"narthex/internal/datapath"
	"narthex/internal/policy"
	"narthex/test/rules/rulesprog"
	"narthex/test/twin"
)

// mostInstructions is the budget for the verifier's way through the reader, of the million
// that a program has.
const mostInstructions = 400_000

// kernel is the reader loaded.
type kernel struct {
	rulesprog.RulesObjects
	slotSize uint32
}

func loadKernel(t testing.TB) *kernel {
	t.Helper()
	spec, err := rulesprog.LoadRules()
	if err != nil {
		t.Fatal(err)
	}
	k := &kernel{slotSize: mostHead + 66}
	if err := spec.Variables["slot_size"].Set(k.slotSize); err != nil {
		t.Fatal(err)
	}
	if err := datapath.SetKernel(spec); err != nil {
		t.Fatal(err)
	}
	const leastSlot = 2048
	spec.Maps["slots"].ValueSize += k.slotSize - leastSlot
	spec.Maps["slots"].MaxEntries = 2
	spec.Maps["readings"].MaxEntries = uint32(ebpf.MustPossibleCPU())
	spec.Maps["policy_image"].InnerMap = imageSpec(1)
	twin.Load(t, spec.LoadAndAssign, &k.RulesObjects)
	return k
}

func imageSpec(pages int) *ebpf.MapSpec {
	const innerMap = 1 << 12 // BPF_F_INNER_MAP
	return &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: uint32(pageSize), MaxEntries: uint32(pages), Flags: innerMap}
}

// upload makes a map of an image.
func upload(t testing.TB, im *image) *ebpf.Map {
	t.Helper()
	m, err := ebpf.NewMap(imageSpec(len(im.bytes) / pageSize))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	for i := range len(im.bytes) / pageSize {
		if err := m.Put(uint32(i), im.bytes[i*pageSize:][:pageSize]); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// use puts an image in force.
func (k *kernel) use(t testing.TB, m *ebpf.Map) {
	t.Helper()
	if err := k.PolicyImage.Put(uint32(0), m); err != nil {
		t.Fatal(err)
	}
}

// compiled is a policy's image.
func compiled(t testing.TB, p *policy.Policy) *image {
	t.Helper()
	tables, _, err := policy.CompileRequests(p, 1)
	if err != nil {
		t.Fatal(err)
	}
	im := &image{}
	im.fill(tables)
	return im
}

// match is the reader in the kernel on a head, which is in a packet or in a slot.
func (k *kernel) match(t testing.TB, head []byte, slot bool, e ends) found {
	t.Helper()
	for variable, value := range map[*ebpf.Variable]any{
		k.Client: words(e.from), k.Server: words(e.to.Addr()), k.Port: uint32(e.to.Port()), k.V6: uint32(flag(!e.from.Is4())),
	} {
		if err := variable.Set(value); err != nil {
			t.Fatal(err)
		}
	}
	p, b := k.RulesFrame, head
	if slot {
		k.putSlot(t, head)
		p, b = k.RulesSlot, []byte{0}
	}
	if ret := twin.Run(t, p, b); ret != 0 {
		t.Fatalf("returned %d", int32(ret))
	}
	var rule, complex, refused uint32
	twin.Get(t, k.Rule, &rule)
	twin.Get(t, k.Complex, &complex)
	twin.Get(t, k.Refused, &refused)
	return found{int(int32(rule)), refused != 0, complex != 0}
}

// putSlot puts a head in a frame into the slot that is read.
func (k *kernel) putSlot(t testing.TB, head []byte) {
	t.Helper()
	value := make([]byte, k.Slots.ValueSize())
	copy(value[len(value)-int(k.slotSize):], twin.Frame(head))
	if err := k.Slots.Put(uint32(1), value); err != nil {
		t.Fatal(err)
	}
	if err := k.InSlot.Set(uint32(len(head))); err != nil {
		t.Fatal(err)
	}
}

// TestVerifierCost keeps the reader well within what the verifier looks at.
func TestVerifierCost(t *testing.T) {
	k := loadKernel(t)
	twin.CheckCost(t, mostInstructions, map[string]*ebpf.Program{"rules_frame": k.RulesFrame, "rules_slot": k.RulesSlot})
}
