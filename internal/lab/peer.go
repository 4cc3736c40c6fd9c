// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Peer is one end of a TCP connection that does just what it is told: it acknowledges
// nothing, repeats nothing and answers nothing by itself. Its address belongs to no
// kernel, so nobody resets the connection either.
type Peer struct {
	From, To netip.AddrPort
	Tags     []VLANTag // of the frames that it sends, outermost first

	Next uint32 // sequence number of what Send sends next
	Ack  uint32 // what it acknowledges: Receive moves it on past what comes in order

	SYNACK *Segment // once there was one

	timestamps bool
	mptcp      bool
	sack       bool
	raw        *Raw
	srcMAC     net.HardwareAddr
	dstMAC     net.HardwareAddr
	start      time.Time
	echo       uint32 // the other end's latest timestamp
}

// PeerConfig says how a peer behaves.
type PeerConfig struct {
	From, To     netip.AddrPort
	Tags         []VLANTag
	NoTimestamps bool // offer no TCP timestamps
	NoSACK       bool // do not permit selective acknowledgements
	MPTCP        bool // offer MPTCP
}

// Segment is a TCP segment, to send or received.
type Segment struct {
	Seq, Ack                uint32
	SYN, ACK, FIN, RST, PSH bool
	Window                  uint16
	Options                 []layers.TCPOption
	Payload                 []byte
}

// End returns the sequence number after the segment.
func (s *Segment) End() uint32 {
	end := s.Seq + uint32(len(s.Payload))
	for _, flag := range []bool{s.SYN, s.FIN} {
		if flag {
			end++
		}
	}
	return end
}

// Option returns the data of an option, and whether the segment has it.
func (s *Segment) Option(kind layers.TCPOptionKind) (data []byte, ok bool) {
	for _, o := range s.Options {
		if o.OptionType == kind {
			return o.OptionData, true
		}
	}
	return nil, false
}

func (s *Segment) String() string {
	flags := ""
	for _, f := range []struct {
		set  bool
		name string
	}{{s.SYN, "S"}, {s.FIN, "F"}, {s.RST, "R"}, {s.PSH, "P"}, {s.ACK, "."}} {
		if f.set {
			flags += f.name
		}
	}
	return fmt.Sprintf("[%s] seq %d ack %d, %d bytes %.40q", flags, s.Seq, s.Ack, len(s.Payload), s.Payload)
}

// OptionMPTCP is the kind of MPTCP's options (RFC 8684).
const OptionMPTCP = layers.TCPOptionKindMultipathTCP

// NewPeer makes a peer at the lab's client device for a server at its server device. The
// address must not be one that the client has.
func (l *Lab) NewPeer(cfg PeerConfig) (*Peer, error) {
	fail := func(err error) (*Peer, error) { return nil, fmt.Errorf("make a peer at %s: %w", cfg.From, err) }
	src, err := l.Client.MAC(Dev)
	if err != nil {
		return fail(err)
	}
	dst, err := l.Server.MAC(Dev)
	if err != nil {
		return fail(err)
	}
	if err := l.Server.AddNeighbour(Dev, cfg.From.Addr(), src); err != nil {
		return fail(err)
	}
	raw, err := l.Client.OpenCapture(Dev)
	if err != nil {
		return fail(err)
	}
	return &Peer{
		From: cfg.From, To: cfg.To, Tags: cfg.Tags,
		Next:       rand.Uint32(),
		timestamps: !cfg.NoTimestamps, mptcp: cfg.MPTCP, sack: !cfg.NoSACK,
		raw: raw, srcMAC: src, dstMAC: dst, start: time.Now(),
	}, nil
}

// Close forgets the peer. The other end hears nothing of it.
func (p *Peer) Close() error { return p.raw.Close() }

// Connect does the handshake. Its SYN is sent again every second.
func (p *Peer) Connect(timeout time.Duration) error {
	for end, start := time.Now().Add(timeout), p.Next; ; p.Next = start {
		if err := p.SendSYN(); err != nil {
			return err
		}
		_, err := p.AwaitSYNACK(min(time.Second, time.Until(end)))
		if err == nil {
			return p.SendACK()
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Until(end) <= 0 {
			return err
		}
	}
}

// SendSYN opens the connection.
func (p *Peer) SendSYN() error {
	options := []layers.TCPOption{
		{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{0x05, 0xa0}}, // 1440 suits IPv6 too
		{OptionType: layers.TCPOptionKindWindowScale, OptionLength: 3, OptionData: []byte{7}},
	}
	if p.sack {
		options = append(options, layers.TCPOption{OptionType: layers.TCPOptionKindSACKPermitted, OptionLength: 2})
	}
	if p.mptcp {
		// MP_CAPABLE, version 1, no checksums, HMAC-SHA256.
		options = append(options, layers.TCPOption{OptionType: OptionMPTCP, OptionLength: 4, OptionData: []byte{0x01, 0x01}})
	}
	err := p.SendSegment(Segment{Seq: p.Next, SYN: true, Options: options})
	p.Next++
	return err
}

// AwaitSYNACK waits for the answer to SendSYN.
func (p *Peer) AwaitSYNACK(timeout time.Duration) (*Segment, error) {
	s, err := p.Await(timeout, func(s *Segment) bool { return s.SYN && s.ACK || s.RST })
	if err != nil {
		return nil, err
	}
	if s.RST {
		return nil, fmt.Errorf("connect %s to %s: reset: %s", p.From, p.To, s)
	}
	p.SYNACK, p.Ack = s, s.End()
	return s, nil
}

// SendACK acknowledges what has been received, with nothing else.
func (p *Peer) SendACK() error { return p.SendSegment(Segment{Seq: p.Next, Ack: p.Ack, ACK: true}) }

// Send sends data in one segment, and moves on past it.
func (p *Peer) Send(data []byte) error {
	err := p.SendSegment(Segment{Seq: p.Next, Ack: p.Ack, ACK: true, PSH: true, Payload: data})
	p.Next += uint32(len(data))
	return err
}

// SendFIN ends this end's half of the connection.
func (p *Peer) SendFIN() error {
	err := p.SendSegment(Segment{Seq: p.Next, Ack: p.Ack, ACK: true, FIN: true})
	p.Next++
	return err
}

// SendRST resets the connection.
func (p *Peer) SendRST() error {
	return p.SendSegment(Segment{Seq: p.Next, Ack: p.Ack, ACK: true, RST: true})
}

// SendSegment sends a segment as it is and moves on nothing. It gets a window if it has
// none, and timestamps if the connection has them and the segment says nothing of them.
func (p *Peer) SendSegment(s Segment) error {
	if s.Window == 0 {
		s.Window = 64240
	}
	if _, has := s.Option(layers.TCPOptionKindTimestamps); !has && p.timestamps && !s.RST {
		s.Options = append(s.Options, Timestamps(p.now(), p.echo))
	}
	frame, err := p.Frame(s)
	if err != nil {
		return err
	}
	return p.raw.Send(frame)
}

// now is the peer's timestamp clock, in milliseconds.
func (p *Peer) now() uint32 { return 1 + uint32(time.Since(p.start).Milliseconds()) }

// Timestamps returns the TCP timestamps option.
func Timestamps(value, echo uint32) layers.TCPOption {
	data := make([]byte, 8)
	for i := range 4 {
		data[i], data[4+i] = byte(value>>(24-8*i)), byte(echo>>(24-8*i))
	}
	return layers.TCPOption{OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: data}
}

// Frame returns the frame that carries a segment, with correct checksums.
func (p *Peer) Frame(s Segment) ([]byte, error) {
	return frame(p.srcMAC, p.dstMAC, p.Tags, p.From, p.To, &layers.TCP{
		SrcPort: layers.TCPPort(p.From.Port()), DstPort: layers.TCPPort(p.To.Port()),
		Seq: s.Seq, Ack: s.Ack, SYN: s.SYN, ACK: s.ACK, FIN: s.FIN, RST: s.RST, PSH: s.PSH,
		Window: s.Window, Options: s.Options,
	}, s.Payload)
}

// SendFrame sends a frame that Frame has made and somebody has changed.
func (p *Peer) SendFrame(frame []byte) error { return p.raw.Send(frame) }

// Receive returns the next segment that comes to the peer. It returns
// os.ErrDeadlineExceeded if none comes in time.
func (p *Peer) Receive(timeout time.Duration) (*Segment, error) {
	deadline := time.Now().Add(timeout)
	for {
		frame, err := p.raw.Receive(max(0, time.Until(deadline)))
		if err != nil {
			return nil, err
		}
		if s := p.decode(frame); s != nil {
			return s, nil
		}
	}
}

// decode returns a frame's segment if it is for the peer.
func (p *Peer) decode(frame []byte) *Segment {
	packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	tcp, ok := packet.Layer(layers.LayerTypeTCP).(*layers.TCP)
	if !ok || uint16(tcp.SrcPort) != p.To.Port() || uint16(tcp.DstPort) != p.From.Port() {
		return nil
	}
	from, to := packet.NetworkLayer().NetworkFlow().Endpoints()
	if !addrIs(p.To.Addr(), from) || !addrIs(p.From.Addr(), to) {
		return nil
	}
	s := &Segment{
		Seq: tcp.Seq, Ack: tcp.Ack, SYN: tcp.SYN, ACK: tcp.ACK, FIN: tcp.FIN, RST: tcp.RST, PSH: tcp.PSH,
		Window: tcp.Window, Options: tcp.Options, Payload: tcp.Payload,
	}
	if ts, ok := s.Option(layers.TCPOptionKindTimestamps); ok && len(ts) == 8 {
		p.echo = uint32(ts[0])<<24 | uint32(ts[1])<<16 | uint32(ts[2])<<8 | uint32(ts[3])
	}
	if s.Seq == p.Ack && !s.RST {
		p.Ack = s.End()
	}
	return s
}

func addrIs(a netip.Addr, e gopacket.Endpoint) bool {
	b, ok := netip.AddrFromSlice(e.Raw())
	return ok && a == b
}

// Await returns the next segment that comes to the peer and is the one in question.
func (p *Peer) Await(timeout time.Duration, is func(*Segment) bool) (*Segment, error) {
	deadline := time.Now().Add(timeout)
	for {
		s, err := p.Receive(time.Until(deadline))
		if err != nil {
			return nil, err
		}
		if is(s) {
			return s, nil
		}
	}
}

// Silent makes sure that nothing comes to the peer for a while that is in question.
func (p *Peer) Silent(duration time.Duration, is func(*Segment) bool) error {
	s, err := p.Await(duration, is)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%s was sent %s", p.From, s)
}

// Conclude takes what the other end sends and acknowledges it, until that ends the
// connection with a FIN or an RST. It returns the data and the segment that ended it.
func (p *Peer) Conclude(timeout time.Duration) (data []byte, last *Segment, err error) {
	deadline := time.Now().Add(timeout)
	for {
		expected := p.Ack
		s, err := p.Receive(time.Until(deadline))
		if err != nil {
			return data, nil, err
		}
		if s.RST {
			return data, s, nil
		}
		if s.SYN || s.Seq != expected || s.End() == s.Seq {
			continue
		}
		data = append(data, s.Payload...)
		if err := p.SendACK(); err != nil {
			return data, nil, err
		}
		if s.FIN {
			return data, s, nil
		}
	}
}
