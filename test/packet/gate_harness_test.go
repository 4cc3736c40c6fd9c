// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"narthex/internal/datapath"
	"narthex/internal/lab"
	"narthex/test/nettest"
)

// patience is how long the kernel may take to answer.
const patience = 10 * time.Second

// tcxRedirect is the verdict on a packet that goes elsewhere: an answer of ours to the
// client, or a request to the stack. A test run does not send it.
const tcxRedirect = 7

// Marks of our own packets, beside the random one.
const (
	markKick = 0x400 // and the slot of the service
	markOurs = 0x800
)

// gate is a server whose listeners and half-open connections are real, and the programs of
// the waiting room, which are attached nowhere: each packet gets to them by a test run, so
// that nothing happens that a test has not asked for. VLAN tags beside a packet cannot be
// given to a test run; the tests with whole connections have them.
type gate struct {
	*subject
	rig     *lab.Lab
	in, out *ebpf.Program
	ifindex uint32
	mark    uint32
}

// rooms counts services of this process, and so gives each its port and its name.
var rooms atomic.Uint32

// peers counts clients, and so gives each an address.
var peers atomic.Uint32

// commonGate is the gate of all tests that need none of their own.
var commonGate *gate

// newGate returns the common gate, of which every test takes other rooms.
func newGate(t *testing.T) *gate {
	t.Helper()
	if commonGate == nil {
		g, err := openGate(datapath.Config{Services: 512, Slots: 1024, Flows: 4096})
		nettest.Check(t, err)
		commonGate = g
	}
	return commonGate
}

// unwatch has nothing looked at again that was left in other rooms: a packet looks at few flows, and that counts.
func (g *gate) unwatch(t *testing.T) {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(g.pin("maps", "watches"), nil)
	nettest.Check(t, err)
	defer m.Close()
	nettest.Check(t, m.Put(uint32(0), make([]byte, m.ValueSize())))
}

// smallGate returns a gate with little memory.
func smallGate(t *testing.T, slots, flows int) *gate {
	t.Helper()
	g, err := openGate(datapath.Config{Slots: slots, SlotSize: datapath.MinSlotSize, Flows: flows})
	nettest.Check(t, err)
	t.Cleanup(func() { nettest.Check(t, g.remove()) })
	return g
}

func openGate(cfg datapath.Config) (*gate, error) {
	rig, err := lab.New("packet", 1)
	if err != nil {
		return nil, err
	}
	g := &gate{rig: rig}
	if err := g.open(cfg); err != nil {
		return nil, errors.Join(err, g.remove())
	}
	return g, nil
}

func (g *gate) open(cfg datapath.Config) error {
	for _, ns := range []*lab.Namespace{g.rig.Server, g.rig.Client} {
		if err := ns.Command("ip", "link", "set", lab.Dev, "mtu", "9000").Run(); err != nil {
			return err
		}
	}
	l, err := g.rig.Server.Link(lab.Dev)
	if err != nil {
		return err
	}
	g.ifindex = uint32(l.Attrs().Index)
	if g.subject, err = open(cfg); err != nil {
		return err
	}
	for name, p := range map[string]**ebpf.Program{"narthex_gate_in": &g.in, "narthex_gate_out": &g.out} {
		if *p, err = ebpf.LoadPinnedProgram(g.pin("programs", name), nil); err != nil {
			return err
		}
	}
	journal, err := g.Journal()
	if err != nil {
		return err
	}
	mark, err := strconv.ParseUint(journal["gate.mark"], 10, 32)
	g.mark = uint32(mark)
	return err
}

// remove takes the gate and its lab away.
func (g *gate) remove() error {
	if g == nil {
		return nil
	}
	for _, p := range []*ebpf.Program{g.in, g.out} {
		if p != nil {
			_ = p.Close()
		}
	}
	return errors.Join(g.subject.remove(), g.rig.Close())
}

// room is a service of its own that the gate has in place of the last.
type room struct {
	*gate
	port   uint16
	listen *net.TCPListener
}

// roomPolicy is a policy of one service. Clients of the class high have addresses of their
// own.
const roomPolicy = `
version: 1
services: [{name: room-%d, listen: ["*:%d"]%s}]
classes: [{name: high, priority: 1}, {name: low, priority: 2}]
connections:
  - {name: high, from: [10.77.64.0/18, "fd77::64:0/112"], class: high}
  - {name: exempt, from: [10.77.128.0/18], action: pass}
`

// unlimited is the setting of a service at which nobody ever waits.
const unlimited = "concurrency: unlimited"

// room opens a waiting room with settings as in a policy.
func (g *gate) room(t *testing.T, settings ...string) *room {
	t.Helper()
	return g.roomOf(t, true, settings...)
}

// roomOf does the same with a listener that is MPTCP, as Go's are, or is not.
func (g *gate) roomOf(t *testing.T, mptcp bool, settings ...string) *room {
	t.Helper()
	g.unwatch(t)
	n := rooms.Add(1)
	r := &room{gate: g, port: uint16(8000 + n)}
	nettest.Check(t, g.rig.Server.Do(func() error {
		var c net.ListenConfig
		c.SetMultipathTCP(mptcp)
		l, err := c.Listen(context.Background(), "tcp", fmt.Sprintf(":%d", r.port))
		if err == nil {
			r.listen = l.(*net.TCPListener)
		}
		return err
	}))
	t.Cleanup(func() { r.listen.Close() })
	r.set(t, settings...)
	return r
}

// set changes the room's settings. Who waits there for no time in particular waits for as long as a test may
// take on an emulated machine.
func (r *room) set(t *testing.T, settings ...string) {
	t.Helper()
	text := ""
	if !slices.ContainsFunc(settings, func(s string) bool { return strings.Contains(s, "queue: ") }) {
		text = ", queue: {max_wait: 60s}"
	}
	for _, s := range settings {
		text += ", " + s
	}
	r.apply(t, fmt.Sprintf(roomPolicy, r.port-8000, r.port, text))
}

// slot is the number of the room.
func (r *room) slot(t *testing.T) uint32 {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(r.pin("maps", "service_slots"), nil)
	nettest.Check(t, err)
	defer m.Close()
	for i := range m.MaxEntries() {
		var name [64]byte
		nettest.Check(t, m.Lookup(i, &name))
		if strings.TrimRight(string(name[:]), "\x00") == r.tables.Services[0].Name {
			return i
		}
	}
	t.Fatal("the service has no slot")
	return 0
}

// change is what happens to all counters of the gate, those of the room and of reasons and
// what is used of the pool; what does not change is left out.
type change map[string]int

// and puts changes together.
func (c change) and(more ...change) change {
	all := maps.Clone(c)
	for _, m := range more {
		for name, n := range m {
			all[name] += n
		}
	}
	return all
}

// Changes that come often.
var (
	nothing  = change{}
	known    = change{"flows": 1}
	arrives  = change{"arrived": 1}
	serves   = arrives.and(change{"admitted": 1, "in service": 1})
	waits    = arrives.and(change{"held": 1, "waiting": 1, "slots": 1})
	releases = change{"released": 1, "waiting": -1, "slots": -1, "in service": 1}
	givesUp  = change{"gave up": 1, "waiting": -1, "slots": -1, "flows": -1}
	ends     = change{"in service": -1, "served": 1}
)

func dropsFor(why string) change  { return change{why + " dropped": 1} }
func passesFor(why string) change { return change{why + " passed": 1} }
func rejects(why string) change   { return change{"rejected " + why: 1} }

// reading is what the counters are.
func (r *room) reading(t *testing.T) change {
	t.Helper()
	all, err := r.Rooms()
	nettest.Check(t, err)
	use, err := r.Pool()
	nettest.Check(t, err)
	stats, err := r.Stats()
	nettest.Check(t, err)
	c := change{"slots": use.Slots - use.FreeSlots, "flows": use.UsedFlows}
	for name, n := range stats.Reasons {
		c[name+" passed"], c[name+" dropped"], c[name+" would drop"] = int(n.Passed), int(n.Dropped), int(n.WouldDrop)
	}
	inService, waiting := 0, 0
	for _, class := range all[0].Classes {
		inService, waiting = inService+class.InService, waiting+class.Waiting
		for name, n := range map[string]uint64{
			"arrived": class.Arrived, "admitted": class.Admitted, "would hold": class.WouldHold, "held": class.Held,
			"released": class.Released, "gave up": class.GaveUp, "served": class.Served, "lost": class.Lost,
			"paused": class.Paused, "ahead": class.Ahead,
		} {
			c[name] += int(n)
		}
		for why, n := range class.Rejected {
			c["rejected "+datapath.Reject(why).String()] += int(n)
		}
		if class.Service.Count() != class.Served-class.Lost || class.Wait.Count() != class.Released {
			t.Errorf("histograms have %d and %d requests, counted are %d served and %d released",
				class.Service.Count(), class.Wait.Count(), class.Served, class.Released)
		}
	}
	c["in service"], c["waiting"], c["gathering"] = all[0].InService, all[0].Waiting, all[0].Gathering
	if inService != all[0].InService || waiting != all[0].Waiting {
		t.Errorf("classes have %d in service and %d waiting, the room %d and %d", inService, waiting, all[0].InService, all[0].Waiting)
	}
	return c
}

// expects fails if do changes anything else than want.
func (r *room) expects(t *testing.T, want change, do func()) {
	t.Helper()
	before := r.reading(t)
	do()
	r.changed(t, before, want)
}

// changed fails if anything else has changed since a reading than want.
func (r *room) changed(t *testing.T, before, want change) {
	t.Helper()
	got := change{}
	for name, n := range r.reading(t) {
		if n != before[name] {
			got[name] = n - before[name]
		}
	}
	want = maps.Clone(want)
	maps.DeleteFunc(want, func(_ string, n int) bool { return n == 0 })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
}

// skb is the beginning of struct __sk_buff.
type skb struct {
	_, _, Mark, _, _, _, _, _, Priority, _, Ifindex uint32
	_                                               [38]uint32
}

// result is what a program made of a packet.
type result struct {
	verdict  uint32
	frame    []byte
	mark     uint32
	priority uint32
}

// run gives a frame to a program as one of the server's device.
func (g *gate) run(t *testing.T, p *ebpf.Program, frame []byte, mark uint32) result {
	t.Helper()
	var out skb
	opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, 20_000), Context: skb{Mark: mark, Ifindex: g.ifindex}, ContextOut: &out}
	var verdict uint32
	nettest.Check(t, g.rig.Server.Do(func() (err error) {
		verdict, err = p.Run(&opts)
		return err
	}))
	return result{verdict, opts.DataOut, out.Mark, out.Priority}
}

// client is a connection to a room that a test speaks for. What the gate lets pass of it gets
// to the kernel, and to a server.
type client struct {
	*lab.Peer
	t    *testing.T
	r    *room
	conn net.Conn // the server's, once there is one
	got  uint32   // sequence number behind what the server has got
}

// client opens a connection as far as the SYN-ACK: the kernel has a request socket for it.
func (r *room) client(t *testing.T, change ...func(*lab.PeerConfig)) *client {
	t.Helper()
	return r.clientAt(t, "10.77.2.0", change...)
}

var v6Base = "fd77::2:0"

const (
	highBase   = "10.77.64.0"
	exemptBase = "10.77.128.0"
)

// clientAt does the same with an address after another.
func (r *room) clientAt(t *testing.T, base string, change ...func(*lab.PeerConfig)) *client {
	t.Helper()
	n := peers.Add(1)
	a := netip.MustParseAddr(base).AsSlice()
	binary.BigEndian.PutUint16(a[len(a)-2:], binary.BigEndian.Uint16(a[len(a)-2:])+uint16(n))
	from, _ := netip.AddrFromSlice(a)
	to := r.rig.ServerV4
	if from.Is6() {
		to = r.rig.ServerV6
	}
	cfg := lab.PeerConfig{From: netip.AddrPortFrom(from, 4000), To: netip.AddrPortFrom(to, r.port), NoTimestamps: true}
	for _, c := range change {
		c(&cfg)
	}
	c := &client{Peer: nettest.Peer(t, r.rig, cfg), t: t, r: r}
	nettest.Check(t, c.SendSYN())
	_, err := c.AwaitSYNACK(patience)
	nettest.Check(t, err)
	c.got = c.Next
	return c
}

// ofOnePlace has the next n clients be of one IPv4 /24, which take turns in one line.
func ofOnePlace(n int) {
	a := netip.MustParseAddr(lowBase).As4()
	if at := (int(a[3]) + int(peers.Load()) + 1) % 256; at+n > 256 {
		peers.Add(uint32(256 - at))
	}
}

// says is the next segment of the client, with data.
func (c *client) says(data string) lab.Segment {
	return lab.Segment{Seq: c.Next, Ack: c.Ack, ACK: true, PSH: true, Window: 500, Payload: []byte(data)}
}

// after is the segment that comes after another one.
func after(s lab.Segment, data string) lab.Segment {
	s.Seq += uint32(len(s.Payload))
	s.Payload = []byte(data)
	return s
}

func (c *client) frame(s lab.Segment) []byte {
	c.t.Helper()
	f, err := c.Frame(s)
	nettest.Check(c.t, err)
	return f
}

// send gives a segment to the gate, which must change nothing else than is said.
func (c *client) send(s lab.Segment, want change) result {
	c.t.Helper()
	return c.sendFrame(c.frame(s), want)
}

func (c *client) sendFrame(f []byte, want change) (res result) {
	c.t.Helper()
	c.r.expects(c.t, want, func() { res = c.r.run(c.t, c.r.in, f, 0) })
	return res
}

// passes sends a segment that has to pass as it is.
func (c *client) passes(s lab.Segment, want change) {
	c.t.Helper()
	f := c.frame(s)
	res := c.sendFrame(f, want)
	res.is(c.t, tcxNext, f)
	if len(s.Payload) > 0 {
		c.lands(res)
	}
}

// passesAs sends a frame that has to pass as another one.
func (c *client) passesAs(in, out []byte, want change) {
	c.t.Helper()
	res := c.sendFrame(in, want)
	res.is(c.t, tcxNext, unpadded(out))
	c.lands(res)
}

// released kicks the room, which has to put a frame of the client before the stack.
func (c *client) released(frame []byte) {
	c.t.Helper()
	res := c.r.kick(c.t, releases)
	if res.mark != c.r.mark|markOurs {
		c.t.Errorf("mark %#x, want %#x", res.mark, c.r.mark|markOurs)
	}
	res.mark = 0
	res.is(c.t, tcxRedirect, unpadded(frame))
	c.lands(res)
}

// lands gives a frame that the gate has passed on to the kernel. The server has to get what
// is new in it. The lab has no devices for VLANs.
func (c *client) lands(res result) {
	c.t.Helper()
	_, tcp := sound(c.t, res.frame)
	end := tcp.Seq + uint32(len(tcp.Payload))
	if c.t.Failed() || binary.BigEndian.Uint16(res.frame[12:]) == uint16(layers.EthernetTypeDot1Q) {
		return
	}
	nettest.Check(c.t, c.SendFrame(res.frame))
	if n := int32(end - c.got); n > 0 {
		c.reads(string(tcp.Payload[len(tcp.Payload)-int(n):]))
	}
}

// accept takes the connection from the listener.
func (c *client) accept() {
	c.t.Helper()
	nettest.Check(c.t, c.r.listen.SetDeadline(time.Now().Add(patience)))
	conn, err := c.r.listen.Accept()
	nettest.Check(c.t, err)
	c.conn = conn
	c.t.Cleanup(func() { conn.Close() })
	if from := netip.MustParseAddrPort(conn.RemoteAddr().String()); from.Addr().Unmap() != c.From.Addr() {
		c.t.Fatalf("the server has a connection from %s, not from %s", from, c.From)
	}
}

// reads fails if the server does not get just that.
func (c *client) reads(data string) {
	c.t.Helper()
	if c.conn == nil {
		c.accept()
	}
	nettest.Check(c.t, c.conn.SetReadDeadline(time.Now().Add(patience)))
	b := make([]byte, len(data))
	if _, err := io.ReadFull(c.conn, b); err != nil || string(b) != data {
		c.t.Fatalf("the server got %q, %v; want %q", b, err, data)
	}
	c.got += uint32(len(data))
}

// drops sends a segment that has to be dropped.
func (c *client) drops(s lab.Segment, want change) {
	c.t.Helper()
	c.send(s, want).is(c.t, tcxDrop, nil)
}

// is fails if the result is another; what becomes of the bytes of a dropped packet is
// nobody's business.
func (r result) is(t *testing.T, verdict uint32, frame []byte) {
	t.Helper()
	if r.verdict != verdict {
		t.Errorf("verdict %d, want %d", int32(r.verdict), int32(verdict))
	}
	if frame == nil {
		return
	}
	if r.mark != 0 {
		t.Errorf("the packet has the mark %#x", r.mark)
	}
	sound(t, r.frame)
	if diff := cmp.Diff(decode(frame), decode(r.frame)); diff != "" {
		t.Errorf("frame (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(frame, r.frame); diff != "" {
		t.Errorf("bytes (-want +got):\n%s", diff)
	}
}

// decode returns a frame as text.
func decode(f []byte) []string {
	return strings.Split(gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default).String(), "\n")
}

// shortest are the bytes of the shortest frames that a device sends: shorter packets are
// padded.
const shortest = 60

// sound fails if lengths or checksums of a frame are wrong, and returns its segment.
func sound(t *testing.T, f []byte) (gopacket.NetworkLayer, *layers.TCP) {
	t.Helper()
	p := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default)
	tcp, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
	if !ok || p.ErrorLayer() != nil {
		t.Fatalf("no segment: %v", p)
	}
	size := len(f)
	for _, l := range p.Layers() {
		if l == gopacket.Layer(p.NetworkLayer()) {
			break
		}
		size -= len(l.LayerContents())
	}
	switch ip := p.NetworkLayer().(type) {
	case *layers.IPv4:
		if int(ip.Length) != size && len(f) != shortest {
			t.Errorf("IPv4 length %d, want %d", ip.Length, size)
		}
	case *layers.IPv6:
		if int(ip.Length) != size-40 {
			t.Errorf("IPv6 length %d, want %d", ip.Length, size-40)
		}
	}
	nettest.Check(t, tcp.SetNetworkLayerForChecksum(p.NetworkLayer()))
	err, wrong := p.VerifyChecksums()
	if err != nil || len(wrong) > 0 {
		t.Errorf("checksums: %v, %+v", err, wrong)
	}
	return p.NetworkLayer(), tcp
}

// answers gives a segment of the server to the gate, which may not change it.
func (c *client) answers(tcp layers.TCP, data string, want change) result {
	c.t.Helper()
	f := (&frame{from: c.To, to: c.From, tcp: tcp, payload: []byte(data)}).bytes(c.t)
	var res result
	c.r.expects(c.t, want, func() { res = c.r.run(c.t, c.r.out, f, 0) })
	if res.verdict == tcxNext && !cmp.Equal(f, res.frame) {
		c.t.Errorf("the answer was changed:\n%s", cmp.Diff(decode(f), decode(res.frame)))
	}
	return res
}

// replies has the server send data, as the answer to all that the client has said.
func (c *client) replies(data string, want change) {
	c.t.Helper()
	c.answers(layers.TCP{ACK: true, PSH: true, Seq: c.Ack, Ack: c.Next}, data, want).is(c.t, tcxNext, nil)
	c.Ack += uint32(len(data))
	if c.conn != nil {
		_, err := io.WriteString(c.conn, data)
		nettest.Check(c.t, err)
	}
}

// kick has the gate make of a packet what is due in the room.
func (r *room) kick(t *testing.T, want change) (res result) {
	t.Helper()
	r.expects(t, want, func() { res = r.kicked(t) })
	return res
}

func (r *room) kicked(t *testing.T) result {
	t.Helper()
	return r.run(t, r.out, syn("10.77.3.3:1", "10.77.0.1:1").bytes(t), r.mark|markKick|r.slot(t))
}

// outwaits waits for longer than a max_wait of 1 ms, and for the kernel's next tick; then somebody's packet finds
// out who is to be rejected, and a kick does it.
func (r *room) outwaits(t *testing.T, want change) (res result) {
	t.Helper()
	time.Sleep(20 * time.Millisecond)
	f := &frame{from: addrPort("10.77.3.4:1"), to: netip.AddrPortFrom(r.rig.ServerV4, r.port), tcp: layers.TCP{ACK: true, Window: 64240}}
	r.expects(t, want, func() {
		r.run(t, r.in, f.bytes(t), 0).is(t, tcxNext, nil)
		res = r.kicked(t)
	})
	return res
}

const (
	get      = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	ok       = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	rejected = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nCache-Control: no-store\r\nRefused-By: narthex\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)

// resets is the packet that ends at the stack what it has of a rejected connection whose
// request began there.
func (c *client) resets(seq uint32) []byte {
	c.t.Helper()
	tcp := layers.TCP{RST: true, ACK: true, Seq: seq, Ack: c.Ack, Window: 0xffff}
	for range 40 {
		tcp.Options = append(tcp.Options, layers.TCPOption{OptionType: layers.TCPOptionKindNop})
	}
	client, server := c.macs()
	f := &frame{from: c.From, to: c.To, tcp: tcp, ip4: layers.IPv4{Flags: layers.IPv4DontFragment}}
	return f.between(c.t, client, server)
}

// macs are the hardware addresses of the client and the server.
func (c *client) macs() (client, server net.HardwareAddr) {
	c.t.Helper()
	f := c.frame(lab.Segment{})
	return f[6:12], f[:6]
}

// told is the packet with which the gate answers in the server's place.
func (c *client) told(tcp layers.TCP, text string, options ...layers.TCPOption) []byte {
	c.t.Helper()
	tcp.Window = 0xffff
	return c.toldWindow(tcp, text, options...)
}

// toldWindow is told, with the window that the header says.
func (c *client) toldWindow(tcp layers.TCP, text string, options ...layers.TCPOption) []byte {
	c.t.Helper()
	tcp.ACK, tcp.Options = true, options
	client, server := c.macs()
	f := &frame{from: c.To, to: c.From, tcp: tcp, payload: []byte(text), ip4: layers.IPv4{Flags: layers.IPv4DontFragment}}
	return unpadded(f.between(c.t, server, client))
}

// framed is a segment in a packet that has something about it.
func (c *client) framed(s lab.Segment, change func(*frame)) []byte {
	c.t.Helper()
	f := &frame{from: c.From, to: c.To, payload: s.Payload, tcp: layers.TCP{
		Seq: s.Seq, Ack: s.Ack, ACK: s.ACK, PSH: s.PSH, FIN: s.FIN, Window: s.Window, Options: s.Options,
	}}
	change(f)
	client, server := c.macs()
	return f.between(c.t, client, server)
}

// unpadded returns a frame without what makes it as long as a device's shortest.
func unpadded(f []byte) []byte {
	at := 14
	for binary.BigEndian.Uint16(f[at-2:]) == uint16(layers.EthernetTypeDot1Q) {
		at += 4
	}
	if f[at]>>4 == 4 {
		return f[:at+int(binary.BigEndian.Uint16(f[at+2:]))]
	}
	return f
}

// isGone fails if the kernel still knows the connection.
func (c *client) isGone() {
	c.t.Helper()
	nettest.Check(c.t, c.SendACK())
	s, err := c.Await(patience, func(s *lab.Segment) bool { return s.RST || len(s.Payload) > 0 })
	nettest.Check(c.t, err)
	if !s.RST {
		c.t.Errorf("the kernel answers %v", s)
	}
}
