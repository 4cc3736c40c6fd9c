// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

const slotSize = 16064

// uploader is a peer that sends a body no faster than it is told that it may.
type uploader struct {
	*lab.Peer
	t     *testing.T
	scale int
	text  []byte // all that it has to say
	sent  int
	told  int // it may send so many bytes of it
}

func (r *room) uploader(path string, size int) *uploader {
	r.t.Helper()
	p := r.peer(gold, 4000)
	nettest.Check(r.t, p.Connect(patience))
	body := bytes.Repeat([]byte("0123456789"), size/10)
	u := &uploader{Peer: p, t: r.t, told: int(p.SYNACK.Window)}
	u.text = append([]byte(postHead("x", path, len(body))), body...)
	if scale, ok := p.SYNACK.Option(layers.TCPOptionKindWindowScale); ok {
		u.scale = int(scale[0])
	}
	return u
}

// goOn sends what may be sent, in segments.
func (u *uploader) goOn() {
	u.t.Helper()
	for end := min(u.told, len(u.text)); u.sent < end; {
		n := min(1400, end-u.sent)
		nettest.Check(u.t, u.Send(u.text[u.sent:u.sent+n]))
		u.sent += n
	}
}

// hears waits for an acknowledgement of all that was sent.
func (u *uploader) hears() {
	u.t.Helper()
	s, err := u.Await(patience, func(s *lab.Segment) bool { return s.ACK && s.Ack == u.Next })
	nettest.Check(u.t, err)
	u.told = u.sent + int(s.Window)<<u.scale
}

// A body that is larger than what can wait of it waits where it is: its client is told how much more it may send,
// nothing at last, and is answered when it asks again. It goes on when the request enters service.
func TestRoomUploadWaits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		patient bool // it does nothing when it is told to go on
	}{{"at once", false}, {"when it is told twice", true}} {
		t.Run(c.name, func(t *testing.T) {
			r, first := blocked(t, roomPolicy{}, origin.Config{})
			u := r.uploader("/sum", 100_000)
			if u.told > slotSize {
				t.Errorf("the client may send %d bytes at first, more than what can wait", u.told)
			}
			nettest.Check(t, u.Send(u.text[:1000]))
			u.sent = 1000
			u.hears()
			r.await(1, 1)
			for u.told > u.sent {
				u.goOn()
				u.hears()
			}
			if u.told != u.sent || u.sent > slotSize || u.sent < slotSize-1<<u.scale-1000 {
				t.Errorf("%d bytes wait, and the client may send up to %d", u.sent, u.told)
			}
			// It asks whether it may go on, as stacks do.
			for _, probe := range []lab.Segment{
				{Seq: u.Next - 1, Ack: u.Ack, ACK: true},
				{Seq: u.Next - 1, Ack: u.Ack, ACK: true, Payload: u.text[u.sent-1 : u.sent]},
			} {
				nettest.Check(t, u.SendSegment(probe))
				u.hears()
				if u.told != u.sent {
					t.Errorf("who has sent %d bytes and asks may send up to %d", u.sent, u.told)
				}
			}
			r.await(1, 1)
			r.letGo("first")
			first.wants(http.StatusOK)
			for u.told <= u.sent {
				u.hears()
			}
			if c.patient { // or has not heard
				u.hears()
				if u.told <= u.sent {
					t.Errorf("who is told again, having sent %d bytes, may send up to %d", u.sent, u.told)
				}
			}
			for u.sent < len(u.text) {
				u.goOn()
				u.hears()
			}
			body := u.text[bytes.Index(u.text, []byte("\r\n\r\n"))+4:]
			want := origin.Sum(int64(len(body)), crc32.ChecksumIEEE(body))
			for data := []byte(nil); !strings.Contains(string(data), want); {
				s, err := u.Await(patience, func(s *lab.Segment) bool { return len(s.Payload) > 0 })
				if err != nil {
					t.Fatalf("%q, %v; want %q", data, err, want)
				}
				data = append(data, s.Payload...)
			}
			nettest.Check(t, u.SendFIN())
			r.wasAsked("/wait?for=first", "/sum")
			r.calm()
		})
	}
}

// retransmissions are the segments that the clients' kernel has sent again.
func (s *scene) retransmissions() int {
	s.t.Helper()
	out, err := s.client.Command("nstat", "-asz", "TcpRetransSegs").CombinedOutput()
	fields := strings.Fields(string(out))
	if err != nil || len(fields) < 3 {
		s.t.Fatalf("nstat: %q, %v", out, err)
	}
	n, err := strconv.Atoi(fields[len(fields)-2])
	nettest.Check(s.t, err)
	return n
}

// Uploads that wait for long are not sent again, whatever they are framed by.
func TestRoomUploadsAreNotSentAgain(t *testing.T) {
	t.Parallel()
	const clients = 8
	body := strings.Repeat("0123456789", 20_000)
	for _, chunked := range []bool{false, true} {
		t.Run(fmt.Sprintf("chunked=%v", chunked), func(t *testing.T) {
			r, first := blocked(t, roomPolicy{}, origin.Config{})
			before := r.retransmissions()
			text := postHead("x", "/echo", len(body)) + body
			if chunked {
				text = chunkedHead + inChunks(body, 30_000)
			}
			var all []*visitor
			var sent []<-chan struct{}
			for i := range clients {
				v := r.visit(gold)
				all = append(all, v)
				sent = append(sent, v.sendLater(text))
				r.await(1, 1+i)
			}
			time.Sleep(2 * time.Second) // in which their timers would expire more than once
			r.letGo("first")
			first.wants(http.StatusOK)
			for i, v := range all {
				v.echoed(body)
				<-sent[i]
			}
			if got := r.retransmissions() - before; got > 2*clients { // one to ask, and what the machine delays
				t.Errorf("%d segments were sent again", got)
			}
			r.calm()
		})
	}
}

// What goes on on a connection that the server knows goes ahead, but for its beginning, while it waits: when it
// is released nothing is sent again, and who is not served is told.
func TestRoomUploadGoesAhead(t *testing.T) {
	t.Parallel()
	const clients = 6
	body := strings.Repeat("0123456789", 20_000)
	for _, c := range []struct {
		name, text string
		rejected   bool
	}{
		{"plain", postHead("x", "/echo", len(body)) + body, false},
		{"chunks", chunkedHead + inChunks(body, 30_000), false},
		{"small chunks", chunkedHead + inChunks(body, 700), false},
		{"a long head", "POST /echo HTTP/1.1\r\nHost: x\r\nCookie: " + strings.Repeat("b", 5000) + fmt.Sprintf("\r\nContent-Length: %d\r\n\r\n", len(body)) + body, false},
		{"rejected", postHead("x", "/echo", len(body)) + body, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := roomPolicy{}
			if c.rejected {
				p.service = "queue: {max_wait: 1s}"
			}
			r, unblock := blockedBy(t, p, origin.Config{})
			unblock()
			var all []*visitor
			for range clients {
				v := r.visit(gold)
				v.get("/")
				v.wants(http.StatusOK)
				all = append(all, v)
			}
			r.await(0, 0)
			unblock = r.block(bronze)
			var sent []<-chan struct{}
			for i, v := range all {
				sent = append(sent, v.sendLater(c.text))
				if !c.rejected {
					r.await(1, 1+i)
				}
			}
			if c.rejected {
				for _, v := range all {
					v.isTurnedAway()
				}
				unblock()
				r.calm()
				return
			}
			before := r.retransmissions()
			unblock()
			for i, v := range all {
				v.echoed(body)
				<-sent[i]
			}
			if got := r.retransmissions() - before; got > clients {
				t.Errorf("%d segments were sent again", got)
			}
			r.calm()
		})
	}
}

// isTurnedAway reads the rejection; the connection may be reset behind it, for more was under way.
func (v *visitor) isTurnedAway() {
	v.t.Helper()
	if resp, _, err := v.answer(); err != nil || resp.StatusCode != http.StatusServiceUnavailable {
		v.t.Errorf("%s: %v, %v; want a 503", v.who, resp, err)
	}
}
