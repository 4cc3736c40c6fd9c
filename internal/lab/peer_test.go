// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

const (
	soon     = 10 * time.Second
	request  = "GET " + lab.File + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	peerPort = 4000
)

// peers are addresses that no kernel has.
var peers = map[bool]netip.AddrPort{
	true:  netip.MustParseAddrPort("10.77.9.1:4000"),
	false: netip.MustParseAddrPort("[fd77::9:1]:4000"),
}

func TestPeerTalksToAServer(t *testing.T) {
	for _, v4 := range []bool{true, false} {
		for _, tags := range [][]lab.VLANTag{nil, {{ID: 10}}} {
			for _, plain := range []bool{true, false} {
				t.Run(fmt.Sprintf("v4=%v/tags=%d/timestamps=%v", v4, len(tags), !plain), func(t *testing.T) {
					rig := nettest.Lab(t, 1)
					to := netip.AddrPortFrom(rig.ServerV6, 80)
					if v4 {
						to = netip.AddrPortFrom(rig.ServerV4, 80)
					}
					nettest.Nginx(t, rig.Server, to)
					if tags != nil {
						nettest.Check(t, rig.Server.TagFrames(lab.Dev, tags...))
					}
					p := nettest.Peer(t, rig, lab.PeerConfig{From: peers[v4], To: to, Tags: tags, NoTimestamps: plain})
					nettest.Check(t, p.Connect(soon))
					nettest.Check(t, p.Send([]byte(request[:20])))
					nettest.Check(t, p.Send([]byte(request[20:])))
					data, last, err := p.Conclude(soon)
					nettest.Check(t, err)
					head, body, _ := bytes.Cut(data, []byte("\r\n\r\n"))
					if !bytes.HasPrefix(head, []byte("HTTP/1.1 200")) || !bytes.Equal(body, lab.FileContent()) {
						t.Errorf("answered %.60q with %d bytes", head, len(body))
					}
					if !last.FIN {
						t.Errorf("ended by %s, want a FIN", last)
					}
					nettest.Check(t, p.SendFIN())
					_, err = p.Await(soon, func(s *lab.Segment) bool { return s.Ack == p.Next })
					nettest.Check(t, err)
				})
			}
		}
	}
}

func TestPeerResetsAndIsReset(t *testing.T) {
	rig := nettest.Lab(t, 1)
	to := netip.AddrPortFrom(rig.ServerV4, 80)
	nettest.Nginx(t, rig.Server, to)
	p := nettest.Peer(t, rig, lab.PeerConfig{From: peers[true], To: to})
	nettest.Check(t, p.Connect(soon))
	nettest.Check(t, p.SendRST())
	// The connection is gone: data is answered by a reset.
	nettest.Check(t, p.Send([]byte(request)))
	if _, last, err := p.Conclude(soon); err != nil || !last.RST {
		t.Errorf("after a reset: %v, error %v", last, err)
	}
	closed := nettest.Peer(t, rig, lab.PeerConfig{From: netip.AddrPortFrom(peers[true].Addr(), 4001), To: netip.AddrPortFrom(to.Addr(), 81)})
	if err := closed.Connect(soon); err == nil {
		t.Error("connected to a port where nobody listens")
	}
}

// A server that the peer leaves without an answer repeats its SYN-ACK: no kernel resets
// the connection.
func TestPeerIsLeftAlone(t *testing.T) {
	rig := nettest.Lab(t, 1)
	to := netip.AddrPortFrom(rig.ServerV4, 80)
	nettest.Nginx(t, rig.Server, to)
	p := nettest.Peer(t, rig, lab.PeerConfig{From: peers[true], To: to})
	nettest.Check(t, p.SendSYN())
	first, err := p.AwaitSYNACK(soon)
	nettest.Check(t, err)
	if again, err := p.AwaitSYNACK(soon); err != nil || again.Seq != first.Seq {
		t.Errorf("then %v, error %v; want %s again", again, err, first)
	}
}

func TestPeerOffersMPTCP(t *testing.T) {
	rig := nettest.Lab(t, 1)
	to := netip.AddrPortFrom(rig.ServerV4, 80)
	var listener net.Listener
	nettest.Check(t, rig.Server.Do(func() (err error) {
		listener, err = net.Listen("tcp", to.String()) // Go's listeners speak MPTCP
		return err
	}))
	server := &http.Server{Handler: http.NotFoundHandler()}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	for i, offers := range []bool{true, false} {
		from := netip.AddrPortFrom(peers[true].Addr(), peerPort+uint16(i))
		p := nettest.Peer(t, rig, lab.PeerConfig{From: from, To: to, MPTCP: offers})
		nettest.Check(t, p.Connect(soon))
		if _, has := p.SYNACK.Option(lab.OptionMPTCP); has != offers {
			t.Errorf("offered MPTCP: %v, accepted: %v", offers, has)
		}
		nettest.Check(t, p.Send([]byte(request)))
		if data, _, err := p.Conclude(soon); err != nil || !bytes.HasPrefix(data, []byte("HTTP/1.1 404")) {
			t.Errorf("offered MPTCP: %v, answered %.40q, error %v", offers, data, err)
		}
	}
}
