// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"net/http"
	"strings"
	"testing"
	"time"

	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

// at is a segment with data at an offset of what the peer has said.
func at(p *lab.Peer, offset int, data string) lab.Segment {
	return lab.Segment{Seq: p.Next + uint32(offset), Ack: p.Ack, ACK: true, PSH: true, Payload: []byte(data)}
}

// chunkedPeer is a peer whose request is in service, up to the end of its head.
func chunkedPeer(t *testing.T, r *room) *lab.Peer {
	t.Helper()
	p := r.peer(gold, 4000)
	nettest.Check(t, p.Connect(patience))
	nettest.Check(t, p.Send([]byte(strings.Replace(chunkedHead, "/echo", "/sum", 1))))
	_, err := p.Await(patience, func(s *lab.Segment) bool { return s.ACK && s.Ack == p.Next })
	nettest.Check(t, err)
	return p
}

// deceptiveChunks are the data of a chunk that look like the end of the body and a request, and the body of that
// chunk and of another one with "hello".
func deceptiveChunks() (data, chunks string) {
	data = strings.Repeat("0\r\n\r\nGET / HTTP/1.1\r\n\r\n", 20)
	return data, fmt.Sprintf("%x\r\n%s\r\n5\r\nhello\r\n0\r\n\r\n", len(data), data)
}

// summed waits for the answer to the peer's request, whose body it has sent in so many bytes.
func summed(t *testing.T, p *lab.Peer, sent int, body string) {
	t.Helper()
	p.Next += uint32(sent)
	answer, err := p.Await(patience, func(s *lab.Segment) bool { return len(s.Payload) > 0 || s.RST })
	nettest.Check(t, err)
	if want := origin.Sum(int64(len(body)), crc32.ChecksumIEEE([]byte(body))); !bytes.HasSuffix(answer.Payload, []byte(want)) {
		t.Errorf("answered %q, RST: %v; want %q", answer.Payload, answer.RST, want)
	}
	p.Ack = answer.End()
}

// What comes behind bytes that are lost goes to the stack, which says so to the client, where nothing but data of
// a chunk is missing. The rest has to come again, and the gate says so.
func TestRoomChunksBehindGap(t *testing.T) {
	t.Parallel()
	data, chunks := deceptiveChunks()
	end := len(chunks)
	size := strings.Index(chunks, "\n") + 1
	for _, c := range []struct {
		name           string
		lost, from, to int // lost are the bytes from here up to from
		kept           bool
	}{
		{"in the data", 100, 200, 300, true},
		{"up to their end", 100, size + len(data), end, true},
		{"in the data, the rest behind", 100, 200, end, true},
		{"the chunk's end", 100, size + len(data) + 2, end, false},
		{"a size", size + len(data) + 2, size + len(data) + 5, end, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := sharedScene(t, plain, false)
			s.origin(origin.Config{})
			r := s.enforce(roomPolicy{})
			p := chunkedPeer(t, r)
			nettest.Check(t, p.SendSegment(at(p, 0, chunks[:c.lost])))
			nettest.Check(t, p.SendSegment(at(p, c.from, chunks[c.from:c.to])))
			_, err := p.Await(quiet, func(s *lab.Segment) bool {
				sack, ok := s.Option(5)
				return ok && len(sack) > 0
			})
			if err != nil {
				t.Errorf("nothing says what is missing: %v", err)
			}
			if c.kept { // in two pieces
				middle := (c.lost + c.from) / 2
				nettest.Check(t, p.SendSegment(at(p, c.lost, chunks[c.lost:middle])))
				nettest.Check(t, p.SendSegment(at(p, middle, chunks[middle:c.from])))
			} else {
				nettest.Check(t, p.SendSegment(at(p, c.lost, chunks[c.lost:c.to])))
			}
			if c.to < end {
				nettest.Check(t, p.SendSegment(at(p, c.to, chunks[c.to:])))
			}
			summed(t, p, end, data+"hello")
			nettest.Check(t, p.Send(ask("/next")))
			concludes(t, p, http.StatusOK)
			nettest.Check(t, p.SendFIN())
			r.wasAsked("/sum", "/next")
			r.calm()
		})
	}
}

// What is missing of a chunk's data comes in any pieces and in any order, and with bytes that have been read
// already.
func TestRoomChunksInAnyPieces(t *testing.T) {
	t.Parallel()
	data, chunks := deceptiveChunks()
	end, size := len(chunks), strings.Index(chunks, "\n")+1
	for name, pieces := range map[string][][2]int{
		"the last first":             {{0, 100}, {300, end}, {200, 300}, {100, 200}},
		"the middle first":           {{0, 100}, {400, end}, {200, 300}, {300, 400}, {100, 200}},
		"over the end of the chunk":  {{0, 100}, {200, end}, {100, size + len(data) + 3}},
		"over what is behind":        {{0, 100}, {200, 300}, {300, end}, {100, end - 2}},
		"from the end of the middle": {{0, 100}, {400, end}, {200, 300}, {100, 200}, {300, size + len(data) + 1}},
		"after the sizes":            {{0, 100}, {size + len(data), end - 3}, {size + len(data) - 20, end}, {100, size + len(data) + 4}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sharedScene(t, plain, false)
			s.origin(origin.Config{})
			r := s.enforce(roomPolicy{})
			p := chunkedPeer(t, r)
			for _, piece := range pieces {
				nettest.Check(t, p.SendSegment(at(p, piece[0], chunks[piece[0]:piece[1]])))
				time.Sleep(20 * time.Millisecond)
			}
			nettest.Check(t, p.SendSegment(at(p, end-3, chunks[end-3:])))
			summed(t, p, end, data+"hello")
			nettest.Check(t, p.SendFIN())
			r.wasAsked("/sum")
			r.calm()
		})
	}
}

// A request that has paused because bytes in its middle are missing goes on when they come.
func TestRoomChunksPausedInGap(t *testing.T) {
	t.Parallel()
	data, chunks := deceptiveChunks()
	end := len(chunks)
	for name, c := range map[string]struct{ until, filled int }{ // filled: where the missing piece ends
		"in the data":           {300, 200},
		"behind it":             {end - 8, 200},
		"behind it, and more":   {end - 8, end - 10},
		"at the end":            {end, 200},
		"at the end, and more":  {end, end - 3},
		"at the end, and whole": {end, end},
	} {
		for _, busy := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, %v", name, busy), func(t *testing.T) {
				t.Parallel()
				s := sharedScene(t, plain, false)
				s.origin(origin.Config{})
				r := s.enforce(roomPolicy{})
				p := chunkedPeer(t, r)
				nettest.Check(t, p.SendSegment(at(p, 0, chunks[:100])))
				nettest.Check(t, p.SendSegment(at(p, 200, chunks[200:c.until])))
				r.await(0, 0)
				var first *visitor
				if busy {
					first = r.visit(bronze)
					first.get("/wait?for=first")
					r.await(1, 0)
				}
				nettest.Check(t, p.SendSegment(at(p, 100, chunks[100:c.filled])))
				time.Sleep(20 * time.Millisecond)
				if c.until < end {
					nettest.Check(t, p.SendSegment(at(p, c.until, chunks[c.until:])))
				}
				if busy {
					r.await(1, 1)
					r.letGo("first")
					first.wants(http.StatusOK)
				}
				summed(t, p, end, data+"hello")
				nettest.Check(t, p.SendFIN())
				r.calm()
			})
		}
	}
}

// Chunks that come again because the stack has dropped them cannot change what chunks behind them say that the
// stack has already.
func TestRoomChunksThatChange(t *testing.T) {
	t.Parallel()
	const first = "5\r\nhello\r\n"
	const changed = "f\r\n1234567" // and eight bytes of what is behind
	behind := "XXXX\r\n0\r\n\r\n" + string(ask("/behind"))
	behind = fmt.Sprintf("%02x\r\n%s\r\n", len(behind), behind)
	for _, withHead := range []bool{false, true} {
		for _, longer := range []int{0, 3} {
			for _, pause := range []time.Duration{0, quiet} {
				t.Run(fmt.Sprintf("withHead=%v/longer=%d/pause=%v", withHead, longer, pause), func(t *testing.T) {
					s := sharedScene(t, plain, false)
					s.origin(origin.Config{})
					r := s.enforce(roomPolicy{})
					r.loose = true // a request is ended that the server has begun to read
					p := r.peer(gold, 4000)
					nettest.Check(t, p.Connect(patience))
					head := ""
					if withHead { // of a further request: the connection is established
						nettest.Check(t, p.Send([]byte("GET /first HTTP/1.1\r\nHost: x\r\n\r\n")))
						answer, err := p.Await(patience, func(s *lab.Segment) bool { return len(s.Payload) > 0 })
						nettest.Check(t, err)
						p.Ack = answer.End()
						head = chunkedHead
					} else {
						nettest.Check(t, p.Send([]byte(chunkedHead)))
						time.Sleep(20 * time.Millisecond)
					}
					frame, err := p.Frame(at(p, 0, head+first))
					nettest.Check(t, err)
					frame[len(frame)-3] ^= 1 // its checksum is wrong
					nettest.Check(t, p.SendFrame(frame))
					n := len(head + first)
					nettest.Check(t, p.SendSegment(at(p, n, behind)))
					time.Sleep(pause)
					nettest.Check(t, p.SendSegment(at(p, 0, head+changed+behind[:longer])))
					time.Sleep(quiet)
					nettest.Check(t, p.SendSegment(at(p, 0, head+changed+behind[:longer])))
					time.Sleep(quiet)
					for _, uri := range r.asked() {
						if uri == "/behind" {
							t.Error("the server has got a request that was read as data of a chunk")
						}
					}
				})
			}
		}
	}
}

// The client of a further request whose first segment is lost is told so, as a stack would tell it, and what came
// behind it has to come again.
func TestRoomFirstSegmentLost(t *testing.T) {
	t.Parallel()
	for _, noSACK := range []bool{false, true} {
		t.Run(fmt.Sprintf("noSACK=%v", noSACK), func(t *testing.T) { loseFirst(t, noSACK) })
	}
}

func loseFirst(t *testing.T, noSACK bool) {
	body := strings.Repeat("0123456789", 300)
	text := fmt.Sprintf("POST /sum HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	s := sharedScene(t, plain, false)
	s.origin(origin.Config{})
	r := s.enforce(roomPolicy{})
	p := r.peer(gold, 4000, func(c *lab.PeerConfig) { c.NoSACK = noSACK })
	nettest.Check(t, p.Connect(patience))
	nettest.Check(t, p.Send([]byte("GET /sum HTTP/1.1\r\nHost: x\r\n\r\n")))
	answer, err := p.Await(patience, func(s *lab.Segment) bool { return len(s.Payload) > 0 })
	nettest.Check(t, err)
	p.Ack = answer.End()
	nettest.Check(t, p.SendSegment(at(p, 1000, text[1000:2000])))
	told, err := p.Await(patience, func(s *lab.Segment) bool { return len(s.Payload) == 0 })
	nettest.Check(t, err)
	want := fmt.Sprintf("%08x%08x", p.Next+1000, p.Next+2000)
	if noSACK {
		want = ""
	}
	if sack, _ := told.Option(5); told.Ack != p.Next || told.Seq != p.Ack || fmt.Sprintf("%x", sack) != want {
		t.Errorf("told %d, SACK %x; want %d, %s", told.Ack, sack, p.Next, want)
	}
	for from := 0; from < len(text); from += 1000 {
		nettest.Check(t, p.SendSegment(at(p, from, text[from:min(from+1000, len(text))])))
	}
	p.Next += uint32(len(text))
	answer, err = p.Await(patience, func(s *lab.Segment) bool { return len(s.Payload) > 0 })
	nettest.Check(t, err)
	if sum := origin.Sum(int64(len(body)), crc32.ChecksumIEEE([]byte(body))); !bytes.HasSuffix(answer.Payload, []byte(sum)) {
		t.Errorf("answered %q, want %q", answer.Payload, sum)
	}
	p.Ack = answer.End()
	nettest.Check(t, p.SendFIN())
	r.wasAsked("/sum", "/sum")
	r.calm()
}
