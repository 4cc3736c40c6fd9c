// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/gopacket/gopacket/layers"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

// entries is a map whose values are structs, for what takes too long to come about by packets.
type entries struct {
	t  *testing.T
	m  *ebpf.Map
	at map[string]uint32 // offsets of the members, by name
}

// entries opens a map of structs of that name until the test ends.
func (g *gate) entries(t *testing.T, table, holds string) *entries {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(g.pin("maps", table), nil)
	nettest.Check(t, err)
	t.Cleanup(func() { m.Close() })
	h, err := m.Handle()
	nettest.Check(t, err)
	defer h.Close()
	spec, err := h.Spec(nil)
	nettest.Check(t, err)
	var s *btf.Struct
	nettest.Check(t, spec.TypeByName(holds, &s))
	e := &entries{t: t, m: m, at: map[string]uint32{}}
	for _, member := range s.Members {
		e.at[member.Name] = member.Offset.Bytes()
	}
	return e
}

// number is where a value has a member of 32 bits.
func (e *entries) number(value []byte, member string) []byte {
	e.t.Helper()
	at, ok := e.at[member]
	if !ok {
		e.t.Fatalf("there is no member %s", member)
	}
	return value[at : at+4]
}

// find returns the entry that has a number in a member.
func (e *entries) find(member string, want uint32) (key, value []byte) {
	e.t.Helper()
	all := e.m.Iterate()
	for all.Next(&key, &value) {
		if binary.NativeEndian.Uint32(e.number(value, member)) == want {
			return key, value
		}
	}
	nettest.Check(e.t, all.Err())
	e.t.Fatalf("no entry has %s %d", member, want)
	return nil, nil
}

// stopWatching takes out all that is to be looked at again.
func (g *gate) stopWatching(t *testing.T) {
	t.Helper()
	ring := g.entries(t, "watches", "watch_ring")
	var zero uint32
	value, err := ring.m.LookupBytes(&zero)
	nettest.Check(t, err)
	copy(ring.number(value, "first"), ring.number(value, "end"))
	nettest.Check(t, ring.m.Put(&zero, value))
}

// The reset that ends at the stack what it has of a refused connection may be behind what the client sends
// next, or lost: none of that is taken for something that is older than the gate.
func TestGateEndsAgain(t *testing.T) {
	g := newGate(t)
	flows, farewells := g.entries(t, "flows", "flow"), g.entries(t, "farewells", "farewell")
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: 1")
		c := r.idle(t, base)
		key, _ := flows.find("next", c.Next)
		value := make([]byte, farewells.m.ValueSize())
		for member, n := range map[string]uint32{"seq": c.Ack, "end": c.Ack + uint32(len(badRequest)) + 1, "client": c.Next + 9} {
			binary.NativeEndian.PutUint32(farewells.number(value, member), n)
		}

		// Of another connection between the same ports.
		binary.NativeEndian.PutUint32(farewells.number(value, "client"), c.Next-9)
		nettest.Check(t, farewells.m.Put(key, value))
		nettest.Check(t, flows.m.Delete(key))
		c.drops(after(c.says("GE"), "T /se"), dropsFor("gap"))

		binary.NativeEndian.PutUint32(farewells.number(value, "client"), c.Next+9)
		nettest.Check(t, farewells.m.Put(key, value))
		res := c.send(c.says("cret HTTP/1.1\r\n"), change{"farewell dropped": 1})
		if res.verdict != tcxRedirect {
			t.Errorf("what a refused client goes on with: verdict %d, want it answered", res.verdict)
		}
		nettest.Check(t, c.SendACK())
		_, err := c.Await(patience, func(s *lab.Segment) bool { return s.RST })
		nettest.Check(t, err)
	}
}

// An early reset may have come right behind its request, of which the stack makes a socket still.
func TestGateResetBehindRequest(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		c, res := g.resetBehind(t, base)
		c.lands(res)
		c.Next += uint32(len(get))
		other := c.r.client(t)
		other.drops(other.says(get), waits.and(known)) // it is in service, and counts
		c.replies(ok, ends)
		other.released(other.frame(other.says(get)))
	}
}

// Sequence numbers come round in a body of more than 4 GiB: its beginning is left behind before.
func TestGateLeavesBehind(t *testing.T) {
	g := newGate(t)
	flows := g.entries(t, "flows", "flow")
	const gone = 1<<30 + 1000
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: 1")
		c := r.clientAt(t, base)
		start := c.Next
		c.asks("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000000\r\n\r\n", serves.and(known))
		key, value := flows.find("start", start)
		binary.NativeEndian.PutUint32(flows.number(value, "start"), start-gone) // as if it had come long ago
		binary.NativeEndian.PutUint32(flows.number(value, "body"), c.Next-gone)
		nettest.Check(t, flows.m.Update(key, value, ebpf.UpdateExist))
		c.asks("body", nothing)
		_, value = flows.find("next", c.Next)
		if got, want := binary.NativeEndian.Uint32(flows.number(value, "start")), c.Next-4-1; got != want {
			t.Errorf("the request begins at %d, want the last byte that the stack had, %d", got, want)
		}
		c.passes(back(c.says("y"), 4), nothing) // sent again, with more behind
		c.Next++
		c.answers(layers.TCP{RST: true, ACK: true, Seq: c.Ack, Ack: c.Next}, "", ends)
	}
}
