// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"
)

// step is what the server sends: data, with flags, and what that changes.
type step struct {
	data string
	tcp  layers.TCP
	want change
}

func sends(data string, want change) step { return step{data, layers.TCP{ACK: true, PSH: true}, want} }

const (
	closing    = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
	connect    = "CONNECT / HTTP/1.1\r\nHost: x\r\n\r\n"
	closingGet = "GET / HTTP/1.1\r\nConnection: close\r\n\r\n"
	chunked    = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	// Servers differ in which of these they go by.
	bothWays = "GET / HTTP/1.1\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n"
)

// earlyHints are longer than what is read at once.
var earlyHints = "HTTP/1.1 103 Early Hints\r\nLink: </" + strings.Repeat("x", 1200) + ">\r\n\r\n"

// When a request leaves service.
var answers = []struct {
	name, ends, request string
	steps               []step
}{
	{"first byte", "first_byte", get, []step{sends("HTTP/1.1 200 OK\r\n", ends), sends("Content-Length: 0\r\n\r\n", nothing)}},
	{"head in pieces", "auto", get, []step{sends("HTTP/1.1 200 OK\r\n", nothing), sends("Content-Length: 0\r\n\r", nothing), sends("\n", ends)}},
	{"a byte alone", "first_byte", get, []step{sends("H", nothing), sends("TTP/1.1 20", nothing), sends("0", ends), sends(" OK\r\n", nothing)}},
	{"a byte alone, closing", "auto", get, []step{sends("H", nothing), sends("TTP/1.1 200 OK\r\nconnec", nothing), sends("tion: close\r\n\r\n", nothing), {"", layers.TCP{ACK: true, FIN: true}, ends}}},
	{"no HTTP", "auto", get, []step{sends("\x00\x01\x02", ends)}},
	{"pure acknowledgement", "auto", get, []step{{"", layers.TCP{ACK: true}, nothing}, sends(ok, ends)}},
	{"FIN without an answer", "auto", get, []step{{"", layers.TCP{ACK: true, FIN: true}, ends}}},
	{"answer with FIN", "auto", get, []step{{ok, layers.TCP{ACK: true, FIN: true}, ends}}},
	{"RST", "auto", get, []step{{"", layers.TCP{RST: true}, ends}}},
	{"RST with ACK", "close", get, []step{{"", layers.TCP{RST: true, ACK: true}, ends}}},
	{"100", "auto", get, []step{sends("HTTP/1.1 100 Continue\r\n\r\n", nothing), sends(ok, ends)}},
	{"103 twice", "first_byte", get, []step{sends("HTTP/1.1 103 Early Hints\r\n\r\n", nothing), sends("HTTP/1.1 103 Early Hints\r\n\r\n", nothing), sends(ok, ends)}},
	{"100 in pieces", "first_byte", get, []step{sends("HTTP", nothing), sends("/1.1", nothing), sends(" 100", nothing), sends(" Con", nothing), sends("tinue\r\n\r\n", nothing), sends(ok, ends)}},
	{"100 and the beginning of the answer", "auto", get, []step{sends("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1", nothing), sends(ok[8:], ends)}},
	{"long 103 with the answer", "auto", get, []step{sends(earlyHints+ok, ends)}},
	{"long 103 in pieces", "first_byte", get, []step{sends(earlyHints[:700], nothing), sends(earlyHints[700:]+"HTTP/1.1 2", nothing), sends(ok[10:], ends)}},
	{"101", "auto", get, []step{sends("HTTP/1.1 101 Switching Protocols\r\n\r\n", nothing), sends("anything", nothing), {"", layers.TCP{ACK: true, FIN: true}, ends}}},
	{"101, first byte", "first_byte", get, []step{sends("HTTP/1.1 101 Switching Protocols\r\n\r\n", nothing), {"", layers.TCP{RST: true}, ends}}},
	{"answer closes", "auto", get, []step{sends(closing, nothing), sends("more", nothing), {"end", layers.TCP{ACK: true, FIN: true}, ends}}},
	{"answer of HTTP/1.0", "auto", get, []step{sends("HTTP/1.0 200 OK\r\n\r\n", nothing), {"", layers.TCP{ACK: true, FIN: true}, ends}}},
	{"request closes", "auto", closingGet, []step{sends(ok[:len(ok)-2], nothing), sends("\r\n", ends), {"", layers.TCP{ACK: true, FIN: true}, nothing}}},
	{"request closes, length", "auto", closingGet, []step{sends("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", nothing), sends("12345678", nothing), sends("9", ends)}},
	{"request closes, no length", "auto", closingGet, []step{sends("HTTP/1.1 200 OK\r\n\r\n", nothing), sends("more", nothing), {"", layers.TCP{ACK: true, FIN: true}, ends}}},
	{"last byte", "last_byte", get, []step{sends("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n1", nothing), sends("2", nothing), sends("3", ends)}},
	{"last byte, chunks", "last_byte", get, []step{sends(chunked+"5\r\n0\r\n\r\n", nothing), sends("\r", nothing), sends("\nA;x=y\r\n0123456789", nothing), sends("\r\n0\r\nTrailer: x\r\n", nothing), sends("\r\n", ends)}},
	{"last byte, no body", "last_byte", "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", []step{sends("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", ends)}},
	{"last byte, 204", "last_byte", get, []step{sends("HTTP/1.1 204 No Content\r\n\r\n", ends)}},
	{"last byte, 304", "last_byte", get, []step{sends("HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", ends)}},
	{"last byte, no length", "last_byte", get, []step{sends("HTTP/1.1 200 OK\r\n\r\n", nothing), sends("all", nothing), {"", layers.TCP{ACK: true, FIN: true}, ends}}},
	{"last byte, no HTTP", "last_byte", get, []step{sends("\x00\x01\x02", nothing), {"", layers.TCP{ACK: true, FIN: true}, ends}}},
	{"CONNECT", "auto", connect, []step{sends("HTTP/1.1 200 Connected\r\n\r\n", nothing), sends("anything", nothing), {"", layers.TCP{ACK: true, FIN: true}, ends}}},
	{"CONNECT, answered by its length", "auto", connect, []step{sends("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", ends)}},
	{"CONNECT, answered by no content", "auto", connect, []step{sends("HTTP/1.1 204 No Content\r\nDate: x\r\n\r\n", ends)}},
	{"CONNECT, answered in chunks", "auto", connect, []step{sends("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", ends)}},
	{"CONNECT, answered by half a head", "auto", connect, []step{sends("HTTP/1.1 200 OK\r\n", nothing), sends("Content-Length: 0\r\n\r\n", ends)}},
	{"request says both, answer closes", "auto", bothWays, []step{sends(closing, nothing), {"", layers.TCP{ACK: true, FIN: true}, ends}}},
	{"request says both, answer lives on", "auto", bothWays, []step{sends("HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\n", ends)}},
	{"request says both, answer neither", "auto", bothWays, []step{sends("HTTP/1.1 200 OK\r\n\r\n", nothing), {"", layers.TCP{ACK: true, FIN: true}, ends}}},
	{"answer closes, first byte", "first_byte", get, []step{sends(closing, ends), {"", layers.TCP{ACK: true, FIN: true}, nothing}}},
	{"close", "close", get, []step{sends(ok, nothing), sends("more", nothing), {"", layers.TCP{ACK: true, FIN: true}, ends}}},
}

func TestGateAnswers(t *testing.T) {
	g := newGate(t)
	for _, c := range answers {
		for _, base := range []string{lowBase, v6Base} {
			t.Run(c.name+" "+base, func(t *testing.T) {
				r := g.room(t, "concurrency: 1", "service_ends: "+c.ends)
				p := r.clientAt(t, base)
				p.asks(c.request, serves.and(known))
				for _, s := range c.steps {
					s.tcp.Seq, s.tcp.Ack = p.Ack, p.Next
					p.answers(s.tcp, s.data, s.want).is(t, tcxNext, nil)
					p.answers(s.tcp, s.data, nothing).is(t, tcxNext, nil) // sent again
					p.Ack += uint32(len(s.data))
				}
			})
		}
	}
}

// What the server says again of the answer before, or says to others, ends nothing.
func TestGateOldAnswers(t *testing.T) {
	g := newGate(t)
	r := g.room(t, "concurrency: 1")
	c := r.idle(t, lowBase)
	c.asks(get, serves)
	old := layers.TCP{ACK: true, PSH: true, Seq: c.Ack - uint32(len(ok)), Ack: c.Next}
	c.answers(old, ok, nothing).is(t, tcxNext, nil)
	c.answers(old, ok[:5], nothing).is(t, tcxNext, nil)
	other := r.client(t)
	other.answers(layers.TCP{ACK: true, PSH: true, Seq: other.Ack, Ack: other.Next}, ok, nothing).is(t, tcxNext, nil)
	other.answers(layers.TCP{SYN: true, ACK: true, Seq: other.Ack - 1, Ack: other.Next}, "", nothing).is(t, tcxNext, nil)
	c.answers(layers.TCP{ACK: true, PSH: true, Seq: c.Ack + 100, Ack: c.Next}, "its beginning went another way", ends).is(t, tcxNext, nil)
}

// Where nobody knows where an answer ends, its place is free when the client, who has got all that was said,
// asks for something else. If it is not known either where the next answer begins, the connection ends.
func TestGateEndlessAnswers(t *testing.T) {
	g := newGate(t)
	r := g.room(t, "concurrency: 1", "service_ends: last_byte")
	t.Run("no HTTP", func(t *testing.T) {
		c := r.client(t)
		c.asks(get, serves.and(known))
		c.replies("\x00\x01\x02", nothing)
		next := c.says(get)
		next.Ack--
		c.drops(next, dropsFor("pipelined"))
		c.asks(get, ends.and(serves))
		c.replies("\x03", nothing)
		c.answers(layers.TCP{ACK: true, FIN: true, Seq: c.Ack, Ack: c.Next}, "", ends)
	})
	t.Run("too long", func(t *testing.T) {
		c := r.client(t)
		c.asks(get, serves.and(known))
		c.replies("HTTP/1.1 200 OK\r\nContent-Length: 2000000000\r\n\r\n", nothing)
		next := c.says(get)
		next.Ack--
		c.drops(next, dropsFor("pipelined"))
		c.send(c.says(get), dropsFor("unfollowed").and(ends, change{"flows": -1}))
	})
}

// A tunnel is one request until it ends.
func TestGateTunnel(t *testing.T) {
	g := newGate(t)
	r := g.room(t, "concurrency: 1")
	c := r.client(t)
	c.asks("GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", serves.and(known))
	c.replies("HTTP/1.1 101 Switching Protocols\r\n\r\n", nothing)
	c.asks("\x01\x02\x03", nothing)
	c.asks(get, nothing)
	c.replies("\x04\x05", nothing)
	c.asks(get, nothing)
	c.answers(layers.TCP{ACK: true, FIN: true, Seq: c.Ack, Ack: c.Next}, "", ends)
}

// What the server sends has the priority of the client's class.
func TestGatePriorities(t *testing.T) {
	g := newGate(t)
	r := g.room(t, "concurrency: 2")
	seen := map[uint32]bool{}
	for class, base := range map[int]string{0: highBase, 1: lowBase} {
		c := r.clientAt(t, base)
		c.asks(get, serves.and(known))
		res := c.answers(layers.TCP{ACK: true, PSH: true, Seq: c.Ack, Ack: c.Next}, ok, ends)
		if want := uint32(r.tables.Classes[class].SocketPriority); res.priority != want {
			t.Errorf("class %s: priority %d, want %d", r.tables.Classes[class].Name, res.priority, want)
		}
		seen[res.priority] = true
	}
	if len(seen) != 2 {
		t.Errorf("priorities %v: two classes have two", seen)
	}
}
