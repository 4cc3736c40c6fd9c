// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

func TestServerAnswersSYNsOfMadeUpSources(t *testing.T) {
	rig := nettest.Lab(t, 1)
	nettest.Check(t, rig.Server.AddRoute(netip.MustParsePrefix("10.99.0.0/16"), rig.ClientsV4[0]))
	nettest.Check(t, rig.Server.AddRoute(netip.MustParsePrefix("fd99::/16"), rig.ClientsV6[0]))
	s4, s6 := netip.AddrPortFrom(rig.ServerV4, 80), netip.AddrPortFrom(rig.ServerV6, 80)
	nettest.Nginx(t, rig.Server, s4, s6)

	sender, capture := nettest.Sender(t, rig.Client, lab.Dev), nettest.Capture(t, rig.Client, lab.Dev)
	for i := range byte(3) {
		for _, c := range []struct{ from, to netip.AddrPort }{
			{netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 99, 0, i}), 4000), s4},
			{netip.AddrPortFrom(netip.AddrFrom16([16]byte{0xfd, 0x99, 15: i}), 4000), s6},
		} {
			sendSYN(t, rig, sender, c.from, c.to)
			awaitSYNACK(t, capture, c.to, c.from)
		}
	}
}

func sendSYN(t *testing.T, rig *lab.Lab, r *lab.Raw, from, to netip.AddrPort, tags ...lab.VLANTag) {
	t.Helper()
	syn, err := rig.NewSYN(from, to)
	nettest.Check(t, err)
	syn.Tags = tags
	frame, err := syn.Frame()
	nettest.Check(t, err)
	nettest.Check(t, r.Send(frame))
}

// awaitSYNACK returns the first SYN-ACK between the two, skipping other frames.
func awaitSYNACK(t *testing.T, r *lab.Raw, from, to netip.AddrPort) gopacket.Packet {
	t.Helper()
	for {
		frame, err := r.Receive(5 * time.Second)
		if err != nil {
			t.Fatalf("no SYN-ACK from %s to %s: %v", from, to, err)
		}
		p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
		tcp, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
		if !ok || !tcp.SYN || !tcp.ACK {
			continue
		}
		src, dst := p.NetworkLayer().NetworkFlow().Endpoints()
		ends := fmt.Sprint(net.JoinHostPort(src.String(), fmt.Sprint(uint16(tcp.SrcPort))), " ",
			net.JoinHostPort(dst.String(), fmt.Sprint(uint16(tcp.DstPort))))
		if ends == fmt.Sprint(from, " ", to) {
			return p
		}
	}
}

func TestTaggedFrames(t *testing.T) {
	dot1q := []lab.VLANTag{{ID: 10}}
	qinq := []lab.VLANTag{{ID: 20, Proto: unix.ETH_P_8021AD}, {ID: 10}}
	for _, tags := range [][]lab.VLANTag{dot1q, qinq} {
		for _, offload := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d tags, txvlan %v", len(tags), offload), func(t *testing.T) {
				rig := nettest.Lab(t, 1)
				for _, n := range []*lab.Namespace{rig.Server, rig.Client} {
					nettest.Check(t, n.SetOffload(lab.Dev, lab.TxVLAN, offload))
				}
				server := netip.AddrPortFrom(rig.ServerV4, 80)
				nettest.Nginx(t, rig.Server, server, netip.AddrPortFrom(rig.ServerV6, 80))
				nettest.Check(t, rig.Server.TagFrames(lab.Dev, tags...))
				nettest.Check(t, rig.Client.TagFrames(lab.Dev, tags...))

				capture := nettest.Capture(t, rig.Client, lab.Dev)
				get(t, rig.Client, rig.ClientsV4[0], server)
				get(t, rig.Client, rig.ClientsV6[0], netip.AddrPortFrom(rig.ServerV6, 80))
				p := awaitTagged(t, capture)
				checkTags(t, p, tags)
			})
		}
	}
}

// awaitTagged returns the first tagged TCP packet of the server.
func awaitTagged(t *testing.T, r *lab.Raw) gopacket.Packet {
	t.Helper()
	for {
		frame, err := r.Receive(5 * time.Second)
		if err != nil {
			t.Fatalf("no tagged TCP packet from the server: %v", err)
		}
		p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
		tcp, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
		if ok && tcp.SrcPort == 80 {
			return p
		}
	}
}

func checkTags(t *testing.T, p gopacket.Packet, want []lab.VLANTag) {
	t.Helper()
	b := p.Data()[12:]
	for i, tag := range want {
		proto := tag.Proto
		if proto == 0 {
			proto = unix.ETH_P_8021Q
		}
		gotProto, gotID := binary.BigEndian.Uint16(b[4*i:]), binary.BigEndian.Uint16(b[4*i+2:])&0xfff
		if gotProto != proto || gotID != tag.ID {
			t.Errorf("tag %d is %#x %d, want %#x %d", i, gotProto, gotID, proto, tag.ID)
		}
	}
	if after := binary.BigEndian.Uint16(b[4*len(want):]); after != unix.ETH_P_IP && after != unix.ETH_P_IPV6 {
		t.Errorf("after %d tags comes Ethernet type %#x", len(want), after)
	}
}

func TestForeignTagsStayOut(t *testing.T) {
	rig := nettest.Lab(t, 1)
	server := netip.AddrPortFrom(rig.ServerV4, 80)
	nettest.Nginx(t, rig.Server, server)
	get(t, rig.Client, rig.ClientsV4[0], server) // both ends learn the other's hardware address
	nettest.Check(t, rig.Server.TagFrames(lab.Dev, lab.VLANTag{ID: 10}))
	capture := nettest.Capture(t, rig.Client, lab.Dev)

	// The frame with the other tag goes first, so its answer would come first.
	other := netip.AddrPortFrom(rig.ClientsV4[0], 4001)
	ours := netip.AddrPortFrom(rig.ClientsV4[0], 4002)
	sendSYN(t, rig, capture, other, server, lab.VLANTag{ID: 11})
	sendSYN(t, rig, capture, ours, server, lab.VLANTag{ID: 10})
	for {
		p := awaitTagged(t, capture)
		switch tcp := p.Layer(layers.LayerTypeTCP).(*layers.TCP); uint16(tcp.DstPort) {
		case other.Port():
			t.Fatal("a frame with another tag was answered")
		case ours.Port():
			return
		}
	}
}

func TestVLANDevice(t *testing.T) {
	rig := nettest.Lab(t, 1)
	tag := lab.VLANTag{ID: 10}
	server, client := netip.MustParsePrefix("10.10.0.1/24"), netip.MustParsePrefix("10.10.0.2/24")
	for n, addr := range map[*lab.Namespace]netip.Prefix{rig.Server: server, rig.Client: client} {
		nettest.Check(t, n.AddVLANDevice("eth0.10", lab.Dev, tag))
		nettest.Check(t, n.AddAddr("eth0.10", addr))
	}
	plain, vlan := netip.AddrPortFrom(rig.ServerV4, 80), netip.AddrPortFrom(server.Addr(), 80)
	nettest.Nginx(t, rig.Server, plain, vlan)
	get(t, rig.Client, rig.ClientsV4[0], plain)

	capture := nettest.Capture(t, rig.Client, lab.Dev)
	get(t, rig.Client, client.Addr(), vlan)
	checkTags(t, awaitTagged(t, capture), []lab.VLANTag{tag})
}

func TestBridgeAndMacvlan(t *testing.T) {
	server, client := nettest.Namespace(t, "server"), nettest.Namespace(t, "client")
	nettest.Check(t, lab.Connect(lab.End{NS: server, Dev: "port0"}, lab.End{NS: client, Dev: "eth0"}))
	nettest.Check(t, server.AddBridge("br0", "port0"))
	nettest.Check(t, server.AddAddr("br0", netip.MustParsePrefix("10.20.0.1/24")))
	nettest.Check(t, client.AddMacvlan("mv0", "eth0"))
	nettest.Check(t, client.AddAddr("mv0", netip.MustParsePrefix("10.20.0.2/24")))
	addr := netip.MustParseAddrPort("10.20.0.1:80")
	nettest.Nginx(t, server, addr)
	get(t, client, netip.MustParseAddr("10.20.0.2"), addr)
}
