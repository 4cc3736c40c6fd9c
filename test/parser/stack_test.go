// SPDX-License-Identifier: Apache-2.0

package parser

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"narthex/internal/lab"
	"narthex/test/draw"
	"narthex/test/nettest"
)

// stack is the kernel of this machine: a namespace that listens, and a wire to it.
type stack struct {
	wire *lab.Raw
	mac  net.HardwareAddr
	sent [][]byte // the TCP sequence number is the index here; 0 is left out
	tags int      // VLAN tags up to which it reads on
}

// answer is a SYN-ACK, and the frame that it acknowledges.
type answer struct {
	frame []byte
	from  netip.AddrPort
}

// newStack makes a namespace in which all destinations of the tests' frames listen. SYN
// cookies keep it from remembering a SYN, so that each is answered once, and again if it is
// sent again.
func newStack(t *testing.T) *stack {
	host, wire := nettest.Namespace(t, "stack"), nettest.Namespace(t, "wire")
	in := lab.End{NS: host, Dev: "in", Addrs: []netip.Prefix{
		netip.MustParsePrefix("10.9.0.1/24"), netip.MustParsePrefix("fd00:9::1/64"),
		netip.MustParsePrefix("198.51.100.9/32"),
	}}
	for i := byte(1); i <= 4; i++ {
		in.Addrs = append(in.Addrs,
			netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, 100, i}), 32),
			netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 2, 15: i}), 128))
	}
	out := lab.End{NS: wire, Dev: "out", Addrs: []netip.Prefix{
		netip.MustParsePrefix("10.9.0.2/24"), netip.MustParsePrefix("fd00:9::2/64"),
	}}
	nettest.Check(t, lab.Connect(in, out))
	for _, e := range []lab.End{in, out} {
		nettest.Check(t, e.NS.Command("ip", "link", "set", e.Dev, "mtu", "65535").Run())
	}
	nettest.Check(t, host.AddRoute(netip.MustParsePrefix("192.0.2.0/23"), netip.MustParseAddr("10.9.0.2")))
	nettest.Check(t, host.AddRoute(netip.MustParsePrefix("2001:db8:1::/48"), netip.MustParseAddr("fd00:9::2")))
	nettest.Check(t, host.AddRoute(netip.MustParsePrefix("2001:db8:100::/40"), netip.MustParseAddr("fd00:9::2")))
	nettest.Check(t, host.Sysctl("ipv4/tcp_syncookies", "2"))
	nettest.Check(t, host.Do(func() error {
		for _, port := range []string{":80", ":443", ":8080"} {
			l, err := net.Listen("tcp", port)
			if err != nil {
				return err
			}
			t.Cleanup(func() { l.Close() })
		}
		return nil
	}))
	mac, err := host.MAC("in")
	nettest.Check(t, err)
	gateway, err := wire.MAC("out")
	nettest.Check(t, err)
	// An answer that had to wait for its neighbour would come after the next frame's.
	for _, ip := range []string{"10.9.0.2", "fd00:9::2"} {
		nettest.Check(t, host.Command("ip", "neigh", "replace", ip, "lladdr", gateway.String(), "dev", "in", "nud", "permanent").Run())
	}
	s := &stack{wire: nettest.Capture(t, wire, "out"), mac: mac, sent: make([][]byte, 1)}
	s.tags = s.readTags(t)
	return s
}

// Linux up to 7.2 takes tags off until there is none left. Newer ones drop a frame, by the reason
// RECURSION_LIMIT, that would go through __netif_receive_skb_core() for the ninth time.
const (
	newTags = 8
	allTags = 16 // as many as are tried
)

// readTags finds out which of both this kernel does.
func (s *stack) readTags(t *testing.T) int {
	t.Helper()
	reads, last := 0, 0
	for n := range allTags + 1 {
		frame := cat(eth(v4, make([]int, n)...), ip4(0, tcp(syn)))
		if all := s.answers(t, frame); len(all) > 0 && bytes.Equal(all[0].frame, frame) {
			reads, last = reads+1, n
		}
	}
	if reads != last+1 || last != newTags && last != allTags {
		t.Fatalf("the kernel answers %d of %d SYNs with 0 to %d tags, the last with %d; want all with up to %d tags, or all",
			reads, allTags+1, allTags, last, newTags)
	}
	return last
}

// countTags counts a frame's VLAN tags.
func countTags(f []byte) (n int) {
	for at := 12; at+4 <= len(f) && isTag(be16(f[at:])); at += 4 {
		n++
	}
	return n
}

// answers sends a frame, and after it a plain SYN to another address. It returns what comes
// until that is answered.
func (s *stack) answers(t *testing.T, frame []byte) (all []answer) {
	t.Helper()
	marker := cat(eth(v4), ip4(0, tcp(syn)))
	copy(marker[14+12:], []byte{192, 0, 3, 1, 198, 51, 100, 9})
	for _, f := range [][]byte{frame, marker} {
		s.sent = append(s.sent, f)
		if len(f) < 14 {
			continue // no driver would take it
		}
		f = slices.Clone(f)
		copy(f, s.mac)
		fixTransport(f, uint32(len(s.sent)-1))
		nettest.Check(t, s.wire.Send(f))
	}
	for {
		f, err := s.wire.Receive(10 * time.Second)
		if err != nil {
			t.Fatalf("the SYN after a frame was not answered: %v\n%s", err, hex.Dump(frame))
		}
		if string(f[6:12]) != string(s.mac) {
			continue // what we sent
		}
		from, index := synAck(f)
		switch {
		case index < 0:
		case index >= len(s.sent):
			t.Fatalf("the kernel acknowledges what was not sent\n%s", hex.Dump(f))
		case index == len(s.sent)-1:
			return all
		default:
			all = append(all, answer{s.sent[index], from})
		}
	}
}

// synAck returns where a SYN-ACK comes from and the sequence number that it acknowledges;
// -1 for any other frame.
func synAck(f []byte) (from netip.AddrPort, seq int) {
	var segment []byte
	var addr netip.Addr
	switch b := f[14:]; {
	case be16(f[12:]) == v4 && b[9] == 6:
		addr, segment = netip.AddrFrom4([4]byte(b[12:])), b[20:]
	case be16(f[12:]) == v6 && b[6] == 6:
		addr, segment = netip.AddrFrom16([16]byte(b[8:])), b[40:]
	default:
		return from, -1
	}
	if segment[13]&(syn|ack) != syn|ack {
		return from, -1
	}
	return netip.AddrPortFrom(addr, uint16(be16(segment))), int(binary.BigEndian.Uint32(segment[8:])) - 1
}

// fixTransport gives whatever may be an IP and a TCP header right checksums, and the TCP
// header a sequence number.
func fixTransport(f []byte, seq uint32) {
	at := 12
	for at+4 <= len(f) && isTag(be16(f[at:])) {
		at += 4
	}
	b := f[min(at+2, len(f)):]
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		header, total := int(b[0]&15)*4, be16(b[2:])
		if header < 20 || header > len(b) {
			return
		}
		clear(b[10:12])
		binary.BigEndian.PutUint16(b[10:], ^sum(b[:header]))
		if total < header || total > len(b) {
			total = len(b)
		}
		fixTCP(b[12:20], b[header:total], seq)
	case len(b) >= 40 && b[0]>>4 == 6:
		next, end, at := b[6], 40+be16(b[4:]), 40
		if end == 40 || end > len(b) {
			end = len(b)
		}
		for next != 6 && at+8 <= end {
			size := (int(b[at+1]) + 1) * 8
			if next == 44 {
				size = 8
			}
			next, at = b[at], at+size
		}
		if at < end {
			fixTCP(b[8:40], b[at:end], seq)
		}
	}
}

// fixTCP sets a segment's sequence number and checksum.
func fixTCP(addresses, segment []byte, seq uint32) {
	if len(segment) >= 20 {
		binary.BigEndian.PutUint32(segment[4:], seq)
		clear(segment[16:18])
		pseudo := cat(addresses, num(6), num(len(segment)))
		binary.BigEndian.PutUint16(segment[16:], ^sum(cat(pseudo, segment)))
	}
}

// sum is the ones' complement sum of RFC 1071.
func sum(b []byte) uint16 {
	var s uint32
	for i := range b {
		s += uint32(b[i]) << (8 * (1 - i%2))
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// unsegmented is answered only if it comes with a virtio header, which this wire does not add.
const unsegmented = "total 0, to be segmented"

// toVLAN tells whether a frame has a tag of another VLAN than 0. There are no devices for
// those here.
func toVLAN(f []byte) bool {
	for at := 12; at+4 <= len(f) && isTag(be16(f[at:])); at += 4 {
		if be16(f[at+2:])&0xfff != 0 {
			return true
		}
	}
	return false
}

// makes is linuxMakes() of this kernel.
func (s *stack) makes(frame []byte) (Use, netip.AddrPort) {
	if countTags(frame) > s.tags {
		return Nothing, netip.AddrPort{}
	}
	return linuxMakes(frame)
}

// checkStack fails if the kernel answers a frame that makes() says it does not, or that the
// parser lets through. It tells whether the kernel answers this frame.
func checkStack(t *testing.T, s *stack, a *arena, frame []byte) bool {
	t.Helper()
	checkFrame(t, a, frame)
	answered := false
	for _, got := range s.answers(t, frame) {
		if use, to := s.makes(got.frame); use != Connection || to != got.from {
			t.Errorf("the kernel answers from %v, but it should make of the frame %s to %v\n%s", got.from, use, to, hex.Dump(got.frame))
		}
		answered = answered || bytes.Equal(got.frame, frame)
	}
	return answered
}

// onOneCPU keeps frames in the order in which they are sent: they are received on the CPU
// that sends them.
func onOneCPU(t *testing.T) {
	runtime.LockOSThread() // for good: the thread ends with the test
	var set unix.CPUSet
	nettest.Check(t, unix.SchedGetaffinity(0, &set))
	for cpu := range 1024 {
		if set.IsSet(cpu) {
			set.Zero()
			set.Set(cpu)
			break
		}
	}
	nettest.Check(t, unix.SchedSetaffinity(0, &set))
}

// TestStack lets the kernel say what it makes of the frames that the parser knows by heart,
// and of random ones. So the judge is not what somebody believes of Linux, but Linux.
func TestStack(t *testing.T) {
	onOneCPU(t)
	s, a := newStack(t), testArena(t)
	for _, f := range frames {
		want := f.use == Connection && countTags(f.frame) <= s.tags && !toVLAN(f.frame) && f.name != unsegmented
		if got := checkStack(t, s, a, f.frame); got != want {
			t.Errorf("%s: the kernel answers: %v, not %v", f.name, got, want)
		}
	}
	random := rand.NewChaCha8([32]byte{4})
	answered, want := 0, 0
	const frames = 100_000
	for choices := range draw.Recipes(random, frames, 200) {
		r := recipe{choices}
		frame := r.frame()
		if use, _ := s.makes(frame); use == Connection {
			want++
		}
		if checkStack(t, s, a, frame) {
			answered++
		}
	}
	t.Logf("of %d frames the kernel, which reads %d tags, could have answered %d, and answered %d", frames, s.tags, want, answered)
	if answered < frames/100 {
		t.Errorf("the kernel answered only %d of %d frames", answered, frames)
	}
}
