// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// What is read from a frame, and made into one again by somebody else, is the same frame.
func TestFrames(t *testing.T) {
	f := framer{net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}}
	for _, ends := range [][2]string{{"198.18.3.4:4000", "10.77.0.1:80"}, {"[2001:db8:18::7]:4000", "[fd77::1]:80"}} {
		for _, s := range []Segment{
			{Seq: 0xfedcba98, Flags: SYN, MSS: true},
			{Seq: 1, Ack: 0x89abcdef, Flags: ACK},
			{Seq: 2, Ack: 3, Flags: ACK | PSH, Payload: []byte(Forged)},
			{Seq: 2, Ack: 3, Flags: ACK | FIN, Payload: []byte("odd"), Window: 7},
			{Seq: 2, Ack: 3, Flags: ACK | PSH, Payload: []byte("later"), Timestamps: [2]uint32{0x01020304, 5}},
			{Seq: 4, Flags: RST},
		} {
			s.From, s.To = netip.MustParseAddrPort(ends[0]), netip.MustParseAddrPort(ends[1])
			want := f.frame(nil, &s)
			p := gopacket.NewPacket(want, layers.LayerTypeEthernet, gopacket.Default)
			tcp, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
			if !ok || p.ErrorLayer() != nil {
				t.Fatalf("%+v: unreadable frame %x: %v", s, want, p.ErrorLayer())
			}
			if tcp.Seq != s.Seq || tcp.Ack != s.Ack || tcp.SYN != (s.Flags&SYN != 0) || tcp.FIN != (s.Flags&FIN != 0) || !bytes.Equal(tcp.Payload, s.Payload) {
				t.Errorf("%+v became %+v", s, tcp)
			}
			var stack []gopacket.SerializableLayer
			for _, l := range p.Layers() {
				if n, ok := l.(gopacket.NetworkLayer); ok {
					_ = tcp.SetNetworkLayerForChecksum(n)
				}
				stack = append(stack, l.(gopacket.SerializableLayer))
			}
			buf := gopacket.NewSerializeBuffer()
			if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{ComputeChecksums: true}, stack...); err != nil {
				t.Fatal(err)
			}
			// Ethernet frames have at least 60 bytes; a device pads those that have fewer.
			if got := buf.Bytes(); !bytes.Equal(got, append(want, make([]byte, max(0, 60-len(want)))...)) {
				t.Errorf("%+v\nmade    %x\nis made %x", s, want, got)
			}
		}
	}
}

func TestRequestsArePadded(t *testing.T) {
	for _, c := range []struct{ request, want string }{
		{"1234", "1234"},
		{"GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nP:xx\r\n\r\n"},
		{"12345", ""},
	} {
		if got, err := padded(c.request); got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%q: %q, error %v; want %q", c.request, got, err, c.want)
		}
	}
}
