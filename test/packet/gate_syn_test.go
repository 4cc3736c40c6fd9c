// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"narthex/internal/lab"
)

// optionSet are the bytes of a SYN's TCP options before and behind the gate.
var optionSets = []struct {
	name     string
	in, want []byte
}{
	{"none", nil, nil},
	{"usual",
		[]byte{2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7},
		[]byte{2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7}},
	{"MP_CAPABLE last",
		[]byte{2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7, 30, 4, 1, 129},
		[]byte{2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7, 1, 1, 1, 1}},
	{"MP_JOIN first", []byte{30, 12, 16, 1, 1, 2, 3, 4, 5, 6, 7, 8, 2, 4, 5, 180}, []byte{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 5, 180}},
	{"fast open, asking for a cookie", []byte{2, 4, 5, 180, 34, 2, 1, 1}, []byte{2, 4, 5, 180, 1, 1, 1, 1}},
	{"fast open with a cookie", []byte{34, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1}, []byte{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
	{"fast open as an experiment (RFC 6994)",
		[]byte{2, 4, 5, 180, 254, 12, 0xf9, 0x89, 1, 2, 3, 4, 5, 6, 7, 8},
		[]byte{2, 4, 5, 180, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
	{"another experiment", []byte{254, 8, 0xe2, 0xd4, 0xc3, 0xd9, 1, 1}, []byte{254, 8, 0xe2, 0xd4, 0xc3, 0xd9, 1, 1}},
	{"both, at odd places",
		[]byte{1, 30, 4, 1, 129, 3, 3, 7, 34, 3, 9, 1},
		[]byte{1, 1, 1, 1, 1, 3, 3, 7, 1, 1, 1, 1}},
	{"twice", []byte{30, 4, 1, 129, 30, 4, 1, 129}, []byte{1, 1, 1, 1, 1, 1, 1, 1}},
	{"40 bytes",
		append(bytes.Repeat([]byte{1}, 36), 30, 4, 1, 129),
		bytes.Repeat([]byte{1}, 40)},
	{"its number within another option",
		[]byte{8, 10, 30, 4, 30, 4, 34, 2, 34, 2, 1, 1},
		[]byte{8, 10, 30, 4, 30, 4, 34, 2, 34, 2, 1, 1}},
	{"behind the end of the list", []byte{2, 4, 5, 180, 0, 30, 2, 1}, []byte{2, 4, 5, 180, 0, 30, 2, 1}},
	// What the kernel does not read behind is left alone; it reads behind none of these.
	{"behind one with length 0", []byte{5, 0, 30, 4, 1, 129, 1, 1}, []byte{5, 0, 30, 4, 1, 129, 1, 1}},
	{"behind one with length 1", []byte{5, 1, 30, 4, 1, 129, 1, 1}, []byte{5, 1, 30, 4, 1, 129, 1, 1}},
	{"behind one that is too long", []byte{5, 99, 30, 4, 1, 129, 1, 1}, []byte{5, 99, 30, 4, 1, 129, 1, 1}},
	{"itself with length 0", []byte{30, 0, 1, 129}, []byte{30, 0, 1, 129}},
	{"itself too long", []byte{2, 4, 5, 180, 30, 40, 1, 129}, []byte{2, 4, 5, 180, 1, 1, 1, 1}},
	{"its number as the last byte", []byte{1, 1, 1, 30}, []byte{1, 1, 1, 30}},
}

// synWith is a SYN with such options, and data behind them.
func synWith(t *testing.T, r *room, v6 bool, options []byte, data string) []byte {
	t.Helper()
	f := &frame{from: addrPort("10.77.2.1:4000"), to: addrPort("10.77.0.1:80"), payload: []byte(data)}
	l4 := 14 + 20
	if v6 {
		f.from, f.to, l4 = addrPort("[fd77::2:1]:4000"), addrPort("[fd77::1]:80"), 14+40
	}
	f.to = netipPort(f.to, r.port)
	f.tcp = layers.TCP{SYN: true, Window: 64240, Seq: 7}
	for range options {
		f.tcp.Options = append(f.tcp.Options, layers.TCPOption{OptionType: layers.TCPOptionKindNop})
	}
	b := f.bytes(t)
	copy(b[l4+20:], options)
	b = unpadded(b)
	resum(b, l4)
	return b
}

// resum gives a segment that begins there its checksum.
func resum(b []byte, l4 int) {
	clear(b[l4+16 : l4+18])
	s := 6 + uint32(len(b)-l4)
	addresses := b[14+12 : l4]
	if l4 == 14+40 {
		addresses = b[14+8 : l4]
	} else {
		addresses = addresses[:8]
	}
	for _, part := range [][]byte{addresses, b[l4:]} {
		for i, x := range part {
			s += uint32(x) << (8 * (1 - i%2))
		}
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	binary.BigEndian.PutUint16(b[l4+16:], ^uint16(s))
}

// What opens ways past the waiting room is taken out of a SYN: all else stays.
func TestGateStripsSYNs(t *testing.T) {
	g := newGate(t)
	limited := g.room(t, "concurrency: 1")
	for _, c := range optionSets {
		t.Run(c.name, func(t *testing.T) {
			for _, v6 := range []bool{false, true} {
				for _, data := range []string{"", "odd"} {
					in, want := synWith(t, limited, v6, c.in, data), synWith(t, limited, v6, c.want, data)
					limited.expects(t, nothing, func() { limited.run(t, g.in, in, 0).is(t, tcxNext, want) })
				}
			}
		})
	}
	for name, settings := range map[string][]string{"unlimited": {unlimited}, "shadow": {"concurrency: 1", "mode: shadow"}} {
		limited.set(t, settings...)
		t.Run(name, func(t *testing.T) {
			for _, c := range optionSets {
				in := synWith(t, limited, false, c.in, "")
				limited.expects(t, nothing, func() { limited.run(t, g.in, in, 0).is(t, tcxNext, in) })
			}
		})
	}
}

// A SYN that a listener of MPTCP answers is answered like one of a client that has none.
func TestGateHidesMPTCP(t *testing.T) {
	g := newGate(t)
	r := g.room(t, "concurrency: 1")
	c := r.client(t, func(cfg *lab.PeerConfig) { cfg.MPTCP = true })
	if _, has := c.SYNACK.Option(lab.OptionMPTCP); !has {
		t.Fatal("the listener does not speak MPTCP: this test proves nothing")
	}
	stripped := r.client(t)
	if _, has := stripped.SYNACK.Option(lab.OptionMPTCP); has {
		t.Error("the listener speaks MPTCP with whom it was not asked by")
	}
}
