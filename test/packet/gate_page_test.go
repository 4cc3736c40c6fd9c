// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

// Bytes of a text in a segment, and segments that are sent at once at first: MAX_PIECE, MAX_FLIGHT.
const (
	mostPiece  = 1220
	mostFlight = 10
	keptBytes  = 12
	scale      = 7 // of a peer's windows
)

// refusal is a page that a client is being told.
type refusal struct {
	*client
	text string
	ask  lab.Segment
	base uint32 // sequence number of the text
	kept uint32 // bytes of the client that are not acknowledged
}

// page writes a page of so many bytes, no two pieces of which are alike, and returns its name and all that is
// said with it.
func page(t *testing.T, size int) (file, text string) {
	t.Helper()
	var b bytes.Buffer
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	body := b.String()[:size]
	file = filepath.Join(t.TempDir(), "busy.txt")
	nettest.Check(t, os.WriteFile(file, []byte(body), 0o600))
	const head = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nCache-Control: no-store\r\nRefused-By: narthex\r\n" +
		"Content-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
	return file, fmt.Sprintf(head, size) + body
}

// refuse has a client refused by a page, whose segments from the first to an offset come at once.
func refuse(t *testing.T, g *gate, base string, size int, window int, until int) *refusal {
	t.Helper()
	file, text := page(t, size)
	r, _ := g.busy(t, "queue: {size: 0}", "reject: {page: "+file+"}")
	c := r.clientAt(t, base)
	p := &refusal{client: c, text: text, ask: c.says(get), base: c.Ack, kept: keptBytes + 1}
	p.ask.Window = uint16(window >> scale)
	p.tells(p.ask, arrives.and(rejects("queue_full")), 0, until)
	c.isGone()
	return p
}

// tells sends a segment that has to lead to just those bytes of the text; to its end with a FIN.
func (p *refusal) tells(s lab.Segment, want change, from, until int) {
	p.t.Helper()
	res := p.send(s, want)
	end := until == len(p.text)+1
	if len(s.Payload) > 0 && s.End() == p.ask.End() { // it asks again
		p.kept--
	}
	for at := from; ; {
		n := min(until-at, mostPiece, len(p.text)-at)
		last := at+n >= min(until, len(p.text))
		fin := last && end
		ack := s.End()
		if !fin {
			ack -= p.kept // so that the client asks again if what comes is lost
		}
		if last {
			tcp := layers.TCP{Seq: p.base + uint32(at), Ack: ack, PSH: n > 0, FIN: fin}
			res.is(p.t, tcxRedirect, p.told(tcp, p.text[at:at+n]))
			return
		}
		got, err := p.Await(patience, func(s *lab.Segment) bool { return !s.SYN })
		nettest.Check(p.t, err)
		if got.Seq != p.base+uint32(at) || got.Ack != ack || got.FIN || got.PSH || string(got.Payload) != p.text[at:at+n] {
			p.t.Fatalf("%v, want %d bytes from %d, ack %d", got, n, p.base+uint32(at), ack)
		}
		at += n
	}
}

// acks is an acknowledgement of the text up to an offset.
func (p *refusal) acks(to int, window int) lab.Segment {
	return lab.Segment{Seq: p.ask.End(), Ack: p.base + uint32(to), ACK: true, Window: uint16(window >> scale)}
}

var farewell = dropsFor("farewell")

// A page goes in flights that grow with what its client acknowledges.
func TestGatePage(t *testing.T) {
	g := newGate(t)
	const flight = mostFlight * mostPiece
	for _, base := range []string{lowBase, v6Base} {
		for _, size := range []int{1500, 12_000, 16_384, 32_768} {
			t.Run(fmt.Sprintf("%s/%d", base, size), func(t *testing.T) {
				_, text := page(t, size)
				end := len(text) + 1
				p := refuse(t, g, base, size, 65536, min(flight, end))
				sent := min(flight, end)
				for got := mostPiece; sent < end; got += mostPiece {
					next := min(end, flight+2*got)
					p.tells(p.acks(got, 65536), farewell, sent, next)
					sent = next
				}
				p.drops(p.acks(len(text), 65536), farewell)
				p.drops(p.acks(end, 65536), farewell)
				fin := p.acks(end, 65536)
				fin.FIN = true
				p.send(fin, farewell).is(t, tcxRedirect, p.told(layers.TCP{Seq: p.base + uint32(end), Ack: fin.End()}, ""))
				p.drops(lab.Segment{Seq: fin.End(), RST: true}, farewell)
				p.passes(p.acks(end, 65536), nothing) // forgotten
			})
		}
	}
}

// What was lost is sent again: by one acknowledgement that comes twice, or by what its client sends again.
func TestGatePageLost(t *testing.T) {
	g := newGate(t)
	const flight = mostFlight * mostPiece
	_, text := page(t, 16_384)
	end := len(text) + 1
	// The last byte, as a client sends it again of which the rest was acknowledged.
	again := func(p *refusal, to int) lab.Segment {
		s := p.acks(to, 65536)
		s.Seq, s.Payload = s.Seq-1, []byte("\n")
		return s
	}
	t.Run("all", func(t *testing.T) {
		p := refuse(t, g, lowBase, 16_384, 65536, flight)
		p.tells(p.ask, farewell, 0, mostPiece)
		p.tells(again(p, 0), farewell, 0, mostPiece)
		p.tells(p.acks(mostPiece, 65536), farewell, mostPiece, 3*mostPiece)
		p.tells(p.acks(3*mostPiece, 65536), farewell, 3*mostPiece, 7*mostPiece)
		p.tells(p.acks(7*mostPiece, 65536), farewell, 7*mostPiece, end)
		p.drops(p.acks(end, 65536), farewell)
	})
	t.Run("one in the midst", func(t *testing.T) {
		p := refuse(t, g, lowBase, 16_384, 65536, flight)
		p.tells(p.acks(2*mostPiece, 65536), farewell, flight, end)
		p.tells(p.acks(2*mostPiece, 65536), farewell, 2*mostPiece, 3*mostPiece)
		for range 3 {
			p.drops(p.acks(2*mostPiece, 65536), farewell) // the others behind it
		}
		p.drops(p.acks(end, 65536), farewell)
	})
	t.Run("two", func(t *testing.T) {
		p := refuse(t, g, lowBase, 16_384, 65536, flight)
		p.tells(p.acks(0, 65536), farewell, 0, mostPiece)
		p.drops(p.acks(0, 65536), farewell)
		p.tells(p.acks(5*mostPiece, 65536), farewell, 5*mostPiece, 11*mostPiece)
		p.tells(p.acks(11*mostPiece, 65536), farewell, 11*mostPiece, end)
	})
	t.Run("tail", func(t *testing.T) {
		p := refuse(t, g, lowBase, 16_384, 65536, flight)
		p.tells(p.acks(flight, 65536), farewell, flight, end)
		p.tells(again(p, flight), farewell, flight, flight+mostPiece)
		p.tells(again(p, len(text)), farewell, len(text), end)
		p.drops(p.acks(end, 65536), farewell)
	})
}

// No more is sent than the client has room for.
func TestGatePageWindow(t *testing.T) {
	g := newGate(t)
	const unit = 1 << scale
	p := refuse(t, g, lowBase, 16_384, 24*unit, 24*unit)
	end := len(p.text) + 1
	at := 24 * unit
	p.drops(p.acks(mostPiece, at-mostPiece-unit), farewell)
	p.drops(p.acks(at, 0), farewell)
	p.tells(p.acks(at, unit), farewell, at, at+unit)
	at += unit
	p.drops(p.acks(at, 0), farewell)
	// It asks whether there is more: not while it has no room.
	probe := p.acks(at, 0)
	probe.Seq, probe.Payload = probe.Seq-1, []byte("\n")
	p.send(probe, farewell).is(t, tcxRedirect, p.told(layers.TCP{Seq: p.base + uint32(at), Ack: probe.End() - p.kept + 1}, ""))
	p.kept--
	p.tells(p.acks(at, 100*unit), farewell, at, at+mostPiece)
	at += mostPiece
	p.tells(p.acks(at, 100*unit), farewell, at, at+2*mostPiece)
	at += 2 * mostPiece
	p.tells(p.acks(at, 3*unit), farewell, at, at+3*unit)
	at += 3 * unit
	p.tells(p.acks(at, 100*unit), farewell, at, at+4*mostPiece+3*unit)
	at += 4*mostPiece + 3*unit
	p.tells(p.acks(at, 100*unit), farewell, at, end)
}

// Where its window leaves room for the last byte and no more, the FIN comes alone.
func TestGatePageFIN(t *testing.T) {
	g := newGate(t)
	const unit = 1 << scale
	_, text := page(t, 1500)
	size := 1500 + (unit - len(text)%unit)
	p := refuse(t, g, lowBase, size, size/unit*unit+2*unit, len(text)+unit-len(text)%unit)
	p.drops(p.acks(len(p.text), 0), farewell)
	p.tells(p.acks(len(p.text), unit), farewell, len(p.text), len(p.text)+1)
}

// A client that goes on sending is told no less, and its bytes are acknowledged but for the last.
func TestGatePageWhileSending(t *testing.T) {
	g := newGate(t)
	const flight = mostFlight * mostPiece
	p := refuse(t, g, lowBase, 16_384, 65536, flight)
	more := p.acks(0, 65536)
	more.PSH, more.Payload = true, []byte(strings.Repeat("x", 1000))
	p.send(more, farewell).is(t, tcxRedirect, p.told(layers.TCP{Seq: p.base + flight, Ack: more.End() - p.kept}, ""))
	p.ask = more
	p.tells(more, farewell, 0, mostPiece)
	p.tells(p.acks(flight, 65536), farewell, flight, len(p.text)+1)
}

// Who resets the connection is told nothing any more; a reset that is not of this connection changes nothing.
func TestGatePageReset(t *testing.T) {
	g := newGate(t)
	const flight = mostFlight * mostPiece
	p := refuse(t, g, lowBase, 16_384, 65536, flight)
	p.drops(lab.Segment{Seq: p.ask.End() + 1<<20, RST: true}, farewell)
	p.tells(p.acks(flight, 65536), farewell, flight, len(p.text)+1)
	p.drops(lab.Segment{Seq: p.ask.End(), RST: true}, farewell)
	p.passes(p.acks(flight, 65536), nothing)
}
