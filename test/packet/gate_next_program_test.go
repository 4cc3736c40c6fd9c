// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"testing"

	"github.com/cilium/ebpf"

	"narthex/test/nettest"
)

// Without the program in which it goes on the gate lets segments pass, and counts them.
func TestGateWithoutNextProgram(t *testing.T) {
	g := smallGate(t, 8, 8)
	r := g.room(t, "concurrency: 1")
	programs, err := ebpf.LoadPinnedMap(g.pin("maps", "next_programs"), nil)
	nettest.Check(t, err)
	defer programs.Close()
	nettest.Check(t, programs.Delete(uint32(0)))
	c := r.clientAt(t, lowBase)
	c.passes(c.says(get), passesFor("no_program").and(known))
}
