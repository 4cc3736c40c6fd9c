// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	be "encoding/binary"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

// Heads of one length; and one whose X servers do not read, if it is urgent: for them it is
// out of band.
var (
	innocent  = to("/innocent")
	forbidden = to("/noaccess")
	urgent    = to("/noXaccess")
	pointer   = strings.Index(urgent, "X") + 1
)

// segments is an evasion by what a client's kernel does not send.
type segments struct {
	name  string
	works bool // with a Go server that has no rules before it
	kept  bool // behind a request that was served
	sends func(*wireClient)
}

var segmentEvasions = []segments{
	{name: "other bytes again, while the head is gathered", sends: func(c *wireClient) {
		c.put(0, innocent[:20])
		c.put(0, forbidden)
		c.put(5, forbidden[5:])
		c.put(0, forbidden[:30])
		c.put(20, innocent[20:])
	}},
	{name: "other bytes again, behind the end of what was gathered", works: true, sends: func(c *wireClient) {
		c.put(0, forbidden[:6])
		c.put(4, innocent[4:6]+forbidden[6:])
	}},
	{name: "other bytes again, after the request was let in", sends: func(c *wireClient) {
		c.put(0, innocent)
		c.put(0, forbidden)
	}},
	{name: "other bytes again, the first with a wrong checksum", works: true, sends: func(c *wireClient) {
		c.put(0, innocent, spoil)
		c.put(0, forbidden)
	}},
	{name: "other bytes again, the first with a wrong checksum, kept", works: true, kept: true, sends: func(c *wireClient) {
		c.put(0, innocent, spoil)
		c.put(0, forbidden)
	}},
	{name: "other bytes again, the first with an old timestamp", works: true, sends: func(c *wireClient) {
		c.old(0, innocent)
		c.put(0, forbidden)
	}},
	{name: "other bytes again, the first with an old timestamp, kept", works: true, kept: true, sends: func(c *wireClient) {
		c.old(0, innocent)
		c.put(0, forbidden)
	}},
	{name: "other bytes again, the first in pieces with an old timestamp", works: true, sends: func(c *wireClient) {
		c.old(0, innocent[:10])
		c.old(10, innocent[10:])
		c.put(0, forbidden)
		c.put(10, forbidden[10:])
	}},
	{name: "segments out of order", works: true, sends: func(c *wireClient) {
		c.put(8, forbidden[8:])
		c.put(0, forbidden[:8])
		c.put(8, forbidden[8:])
	}},
	{name: "segments out of order, kept", works: true, kept: true, sends: func(c *wireClient) {
		c.put(8, forbidden[8:])
		c.put(0, forbidden[:8])
		c.put(8, forbidden[8:])
	}},
	{name: "segments that overlap, out of order", sends: func(c *wireClient) {
		c.put(5, innocent[5:])
		c.put(8, forbidden[8:])
		c.put(0, forbidden[:9])
		c.put(5, forbidden[5:])
	}},
	{name: "an urgent byte", works: true, sends: func(c *wireClient) { c.put(0, urgent, urgentAt(pointer)) }},
	{name: "an urgent byte, kept", works: true, kept: true, sends: func(c *wireClient) { c.put(0, urgent, urgentAt(pointer)) }},
	{name: "an urgent byte at the end of a piece", works: true, sends: func(c *wireClient) {
		c.put(0, urgent[:pointer], urgentAt(pointer))
		c.put(pointer, urgent[pointer:])
	}},
	{name: "an urgent byte behind a piece", works: true, kept: true, sends: func(c *wireClient) {
		c.put(0, urgent[:4], urgentAt(pointer))
		c.put(4, urgent[4:])
	}},
	{name: "a request with FIN", works: true, sends: func(c *wireClient) {
		c.put(0, forbidden, func(frame []byte, tcp int) []byte { return setFlag(frame, tcp, 0x01) })
	}},
	{name: "a request with SYN", sends: func(c *wireClient) {
		syn := func(frame []byte, tcp int) []byte { return setFlag(frame, tcp, 0x02) }
		c.put(-1, forbidden, syn)
		c.put(0, forbidden, syn)
	}},
	{name: "a request without ACK", sends: func(c *wireClient) {
		c.put(0, forbidden, func(frame []byte, tcp int) []byte { return setFlag(frame, tcp, 0x10) })
	}},
	{name: "a request that begins before what is expected", works: true, sends: func(c *wireClient) { c.put(-3, "GET"+forbidden) }},
	{name: "a request that begins before what is expected, kept", works: true, kept: true, sends: func(c *wireClient) { c.put(-3, "GET"+forbidden) }},
	{name: "fragments of IP", works: true, sends: func(c *wireClient) {
		for _, f := range fragments(c.frame(0, forbidden)) {
			nettest.Check(c.t, c.SendFrame(f))
		}
		pause()
	}},
	{name: "fragments of IP, kept", works: true, kept: true, sends: func(c *wireClient) {
		for _, f := range fragments(c.frame(0, forbidden)) {
			nettest.Check(c.t, c.SendFrame(f))
		}
		pause()
	}},
	{name: "options of IP", works: true, sends: func(c *wireClient) { c.put(0, forbidden, withOptions) }},
}

// wireClient is a client that makes each of its frames, over IPv4 and without options of TCP.
type wireClient struct {
	*lab.Peer
	t *testing.T
}

// pause has what was sent arrive before what comes next.
func pause() { time.Sleep(15 * time.Millisecond) }

// put sends a segment of the request after changes to its frame, whose TCP header begins at `tcp`.
func (c *wireClient) put(at int, text string, change ...func(frame []byte, tcp int) []byte) {
	c.t.Helper()
	frame := c.frame(at, text)
	for _, change := range change {
		frame = change(frame, 14+20)
	}
	nettest.Check(c.t, c.SendFrame(frame))
	pause()
}

func (c *wireClient) frame(at int, text string) []byte {
	c.t.Helper()
	s := lab.Segment{Seq: c.Next + uint32(at), Ack: c.Ack, ACK: true, PSH: true, Window: 64240, Payload: []byte(text)}
	s.Options = []layers.TCPOption{lab.Timestamps(uint32(time.Since(epochOfClients).Milliseconds()), 0)}
	frame, err := c.Frame(s)
	nettest.Check(c.t, err)
	return frame
}

// epochOfClients has their timestamps be ahead of those that a peer gives.
var epochOfClients = time.Now().Add(-time.Hour)

// old sends a segment that the stack refuses for its timestamp (PAWS, RFC 7323).
func (c *wireClient) old(at int, text string) {
	c.t.Helper()
	nettest.Check(c.t, c.SendSegment(lab.Segment{
		Seq: c.Next + uint32(at), Ack: c.Ack, ACK: true, PSH: true, Payload: []byte(text),
		Options: []layers.TCPOption{lab.Timestamps(1<<31+7200000, 0)},
	}))
	pause()
}

func spoil(frame []byte, tcp int) []byte {
	frame[tcp+16] ^= 0xff
	return frame
}

// change16 changes a word of the TCP header and its checksum with it (RFC 1624).
func change16(frame []byte, tcp, at int, to uint16) {
	word, sum := frame[tcp+at:], frame[tcp+16:]
	v := uint32(^be.BigEndian.Uint16(sum)) + uint32(^be.BigEndian.Uint16(word)) + uint32(to)
	v = v&0xffff + v>>16
	v = v&0xffff + v>>16
	be.BigEndian.PutUint16(word, to)
	be.BigEndian.PutUint16(sum, ^uint16(v))
}

// setFlag changes one of the flags.
func setFlag(frame []byte, tcp int, flag uint16) []byte {
	change16(frame, tcp, 12, be.BigEndian.Uint16(frame[tcp+12:])^flag)
	return frame
}

// urgentAt has the byte before so many of the segment's be urgent.
func urgentAt(pointer int) func(frame []byte, tcp int) []byte {
	return func(frame []byte, tcp int) []byte {
		change16(frame, tcp, 18, uint16(pointer))
		return setFlag(frame, tcp, 0x20)
	}
}

// sumIP sets the checksum of an IPv4 header.
func sumIP(frame []byte) []byte {
	ip := frame[14 : 14+4*int(frame[14]&15)]
	ip[10], ip[11] = 0, 0
	var sum uint32
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(be.BigEndian.Uint16(ip[i:]))
	}
	sum = sum&0xffff + sum>>16
	be.BigEndian.PutUint16(ip[10:], ^uint16(sum&0xffff+sum>>16))
	return frame
}

// fragments cuts an IPv4 packet in two, behind the beginning of what TCP carries.
func fragments(frame []byte) [][]byte {
	const head, cut = 14 + 20, 40
	one, two := slices.Clone(frame[:head+cut]), slices.Concat(frame[:head], frame[head+cut:])
	for i, f := range [][]byte{one, two} {
		be.BigEndian.PutUint16(f[14+2:], uint16(len(f)-14))
		be.BigEndian.PutUint16(f[14+4:], 4711)
		be.BigEndian.PutUint16(f[14+6:], []uint16{0x2000, cut / 8}[i])
		sumIP(f)
	}
	return [][]byte{one, two}
}

// withOptions adds four bytes of options that mean nothing to an IPv4 header.
func withOptions(frame []byte, tcp int) []byte {
	frame = slices.Insert(frame, tcp, 1, 1, 1, 0)
	frame[14]++
	be.BigEndian.PutUint16(frame[14+2:], uint16(len(frame)-14))
	return sumIP(frame)
}

// tryAll sends each of them to a service, and returns the clients' addresses.
func (r *ruled) tryAll(t *testing.T, service string, port uint16) (clients []string) {
	s := r.at(t, service, false)
	for _, e := range segmentEvasions {
		port++
		c := &wireClient{s.peer(bronze, port), t}
		nettest.Check(t, c.Connect(patience))
		if e.kept {
			before := to("/before")
			c.put(0, before)
			c.Next += uint32(len(before))
			_, err := c.Await(patience, func(s *lab.Segment) bool { return len(s.Payload) > 0 })
			nettest.Check(t, err)
			nettest.Check(t, c.SendSegment(lab.Segment{Seq: c.Next, Ack: c.Ack, ACK: true,
				Options: []layers.TCPOption{lab.Timestamps(uint32(time.Since(epochOfClients).Milliseconds()), 0)}}))
		}
		e.sends(c)
		clients = append(clients, c.From.String())
	}
	time.Sleep(quiet)
	return clients
}

// Nothing that can be done with segments has the server read another request than the rules.
func TestRulesSegments(t *testing.T) {
	t.Parallel()
	r := newRuled(t, map[string]uint16{"nginx": 80, "go": 8000})
	server := confide(t, r.v4.server, r.listen("go"))
	log := confideNginx(t, r.v4.server, r.listen("nginx"), "")
	check := func(port uint16, enforced bool) {
		for _, service := range []string{"go", "nginx"} {
			for i, client := range r.tryAll(t, service, port) {
				told := service == "go" && server.told(client) || service == "nginx" && wasTold(t, log, client)
				if e := segmentEvasions[i]; told != (e.works && !enforced) && (service == "go" || enforced) {
					t.Errorf("%s: rules %v, %s: the protected was asked for: %v", e.name, enforced, service, told)
				}
			}
			port += 100
		}
	}
	check(4000, false)
	r.enforce(evasionPolicy)
	check(5000, true)
}
