// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/gopacket/gopacket/layers"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

func withTimestamps(c *lab.PeerConfig) { c.NoTimestamps = false }

// echo is what the kernel has sent with its SYN-ACK.
func (c *client) echo() (echo uint32) {
	c.t.Helper()
	ts, ok := c.SYNACK.Option(layers.TCPOptionKindTimestamps)
	if !ok {
		c.t.Fatal("the SYN-ACK has no timestamps")
	}
	return uint32(ts[0])<<24 | uint32(ts[1])<<16 | uint32(ts[2])<<8 | uint32(ts[3])
}

// stamped is a segment with timestamps, behind two bytes of padding, or before them.
func stamped(s lab.Segment, value, echo uint32, odd bool) lab.Segment {
	nop := layers.TCPOption{OptionType: layers.TCPOptionKindNop}
	s.Options = []layers.TCPOption{nop, nop, lab.Timestamps(value, echo)}
	if odd {
		s.Options = []layers.TCPOption{lab.Timestamps(value, echo), nop, nop}
	}
	return s
}

// looksAtEchoes is whether the kernel drops a first request whose timestamps echo what it has not sent.
func looksAtEchoes(t *testing.T) bool {
	t.Helper()
	kernel, err := btf.LoadKernelSpec()
	nettest.Check(t, err)
	var r *btf.Struct
	nettest.Check(t, kernel.TypeByName("tcp_request_sock", &r))
	for _, m := range r.Members {
		if m.Name == "snt_tsval_first" {
			return true
		}
	}
	return false
}

// What the stack would drop for its timestamps takes no place and no slot, whole or in pieces.
func TestGateOutdated(t *testing.T) {
	g := newGate(t)
	outdated := dropsFor("outdated")
	for _, base := range []string{lowBase, v6Base} {
		for name, text := range map[string]string{"whole": get, "piece": get[:10]} {
			t.Run("first "+name+" "+base, func(t *testing.T) {
				r := g.room(t, "concurrency: 1")
				c := r.clientAt(t, base, withTimestamps)
				c.drops(stamped(c.says(text), 1<<32-1000, c.echo(), false), outdated)
				if looksAtEchoes(t) {
					c.drops(stamped(c.says(text), 1000, c.echo()+1000, false), outdated)
				}
				c.passes(stamped(c.says(get), 1000, c.echo(), false), serves.and(known))
			})
			t.Run("later "+name+" "+base, func(t *testing.T) {
				r := g.room(t, "concurrency: 1")
				c := r.clientAt(t, base, withTimestamps)
				c.passes(stamped(c.says(get), 1000, c.echo(), false), serves.and(known))
				c.Next += uint32(len(get))
				c.replies(ok, ends)
				c.drops(stamped(c.says(text), 998, c.echo(), false), outdated)
				c.passes(stamped(c.says(get), 1001, c.echo(), false), serves)
			})
		}
	}
}

// Timestamps in an unusual place are taken out: the stack asks for none.
func TestGateOddOptions(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: 1")
		c := r.clientAt(t, base, withTimestamps)
		res := c.send(stamped(c.says(get), 1<<32-1000, 7, true), serves.and(known))
		if res.verdict != tcxNext {
			t.Fatalf("verdict %d, want it passed", int32(res.verdict))
		}
		c.lands(res)
	}
}

// A head that is put together has the latest timestamp that the stack has seen, so that it is not dropped.
func TestGateRenewsTimestamps(t *testing.T) {
	g := newGate(t)
	for _, base := range []string{lowBase, v6Base} {
		r := g.room(t, "concurrency: 1")
		c := r.clientAt(t, base, withTimestamps)
		c.passes(stamped(c.says(get), 1000, c.echo(), false), serves.and(known))
		c.Next += uint32(len(get))
		c.replies(ok, ends)
		first := stamped(c.says(get[:10]), 1001, c.echo(), false)
		c.acknowledged(first, first.Seq+10, gathers)
		bare := stamped(lab.Segment{Seq: first.Seq, Ack: c.Ack, ACK: true, Window: 500}, 5000, c.echo(), false)
		c.passes(bare, nothing)
		nettest.Check(t, c.SendFrame(c.frame(bare)))
		res := c.send(after(stamped(c.says(get[:10]), 1001, c.echo(), false), get[10:]), turns)
		if res.verdict != tcxNext {
			t.Fatalf("verdict %d, want it passed", int32(res.verdict))
		}
		c.lands(res)
	}
}
