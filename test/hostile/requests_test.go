// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"time"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

// requests are such that a gate and a server might read them in two ways.
var requests = []hostile{
	{name: "pipelined requests", begin: func(r *round) {
		const burst = 4 // each but the first costs the client a timeout, twice as long as the one before
		for i := range 4 {
			v := r.visit(i%2, mob, 80)
			var all strings.Builder
			for n := range burst {
				all.WriteString(request("x", r.file(100*i+n)))
			}
			_, err := v.conn.Write([]byte(all.String()))
			nettest.Check(r.t, err)
			for range burst {
				nettest.Check(r.t, whole(v.answer()))
			}
			v.conn.Close()
		}
	}},
	{name: "heads cut anywhere, in any order, said twice", begin: func(r *round) {
		for i := range 12 {
			r.cut(i)
		}
	}},
	{name: "framing in two ways", inexact: true, begin: func(r *round) {
		const smuggled = "GET /forged HTTP/1.1\r\nHost: x\r\n\r\n"
		for i, head := range []string{
			"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
			"Transfer-Encoding: chunked\r\nContent-Length: 40\r\n\r\n0\r\n\r\n",
			"Content-Length: 0\r\nContent-Length: 34\r\n\r\n",
			"Content-Length: 0, 34\r\n\r\n",
			"Content-Length: +0\r\n\r\n",
			"Content-Length : 0\r\n\r\n",
			"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
			"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
			"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
			"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
			"X: y\r\n Content-Length: 3\r\n\r\n",
			"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
			"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
			"Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
			"Transfer-Encoding: chunked\r\n\r\n3\r\nabcde\r\n0\r\n\r\n",
			"Transfer-Encoding: chunked\r\n\r\n3\nabc\n0\n\n",
		} {
			v := r.visit(i%2, mob, 80)
			_, err := fmt.Fprintf(v.conn, "POST %s HTTP/1.1\r\nHost: x\r\n%s%s", r.file(i), head, smuggled)
			nettest.Check(r.t, err)
			answers := 0
			for {
				status, _, err := v.answer()
				if err != nil {
					break
				}
				answers++
				if answers > 1 && status < 400 {
					r.t.Errorf("%q has more than one answer, the last with status %d", head, status)
				}
				_ = v.conn.SetDeadline(time.Now().Add(300 * time.Millisecond))
			}
			v.conn.Close()
		}
	}},
	{name: "chunks said in two ways", inexact: true, begin: func(r *round) {
		for i := range 4 {
			r.twice(i)
		}
	}},
	{name: "other protocols", inexact: true, begin: func(r *round) {
		for i, c := range []struct {
			text    string
			refused bool
		}{
			{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", true},
			{"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n", false},
			{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", true},
			{"CONNECT x:80 HTTP/1.1\r\nHost: x:80\r\n\r\n", false},
			{"GET /upgrade HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", false},
		} {
			v := r.visit(i%2, mob, 80)
			_, err := v.conn.Write([]byte(c.text))
			nettest.Check(r.t, err)
			status, _, err := r.begins(v)
			if c.refused && (err != nil || status != http.StatusBadRequest) {
				r.t.Errorf("%.40q: status %d, error %v; want 400", c.text, status, err)
			}
			if status == http.StatusSwitchingProtocols || status == http.StatusOK && strings.HasPrefix(c.text, "CONNECT") {
				// In a tunnel a request is just bytes.
				_, err := v.conn.Write([]byte("GET /forged HTTP/1.1\r\n\r\n"))
				nettest.Check(r.t, err)
				time.Sleep(50 * time.Millisecond)
			}
			v.conn.Close()
		}
	}},
}

// begins reads an answer's head.
func (r *round) begins(v *visitor) (status int, proto string, err error) {
	line, err := v.r.ReadString('\n')
	if err != nil {
		return 0, "", err
	}
	_, err = fmt.Sscanf(line, "%s %d", &proto, &status)
	return status, proto, err
}

// cut sends a request in pieces in a strange order, with what was sent already said once more
// in other words. What the server reads is what was said first.
func (r *round) cut(i int) {
	r.t.Helper()
	p := r.connect(1, mob)[0]
	text := []byte(closing("x", r.file(200+i)))
	first, second := 1+i*(len(text)-8)/12, 4+i*(len(text)-8)/12
	begin := p.Next
	send := func(from, to int, data []byte) {
		nettest.Check(r.t, p.SendSegment(lab.Segment{Seq: begin + uint32(from), Ack: p.Ack, ACK: true, PSH: true, Payload: data[from:to]}))
	}
	other := bytes.Repeat([]byte("forged "), len(text))
	send(0, first, text)
	send(second, len(text), text) // too early
	send(0, first, other)
	send(first, second, text)
	send(0, second, other)
	p.Next += uint32(len(text))
	r.conclude([]*lab.Peer{p}, func(int) string { return string(text) })
}

// twice sends chunks with a wrong checksum first, and then other ones.
func (r *round) twice(i int) {
	r.t.Helper()
	p := r.connect(1, mob)[0]
	head := []byte("POST " + r.file(300+i) + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
	nettest.Check(r.t, p.Send(head))
	time.Sleep(20 * time.Millisecond)
	one := []byte("40\r\n" + strings.Repeat("a", 0x40) + "\r\n")
	two := []byte("0\r\n\r\nGET /forged HTTP/1.1\r\nHost: x\r\n\r\n")
	wrong := lab.Segment{Seq: p.Next, Ack: p.Ack, ACK: true, PSH: true, Payload: one, Window: 64240}
	frame, err := p.Frame(wrong)
	nettest.Check(r.t, err)
	at := 14 + 20 + 16 // the checksum
	if r.v6 {
		at += 20
	}
	frame[at] ^= 0xff
	nettest.Check(r.t, p.SendFrame(frame))
	nettest.Check(r.t, p.SendSegment(lab.Segment{Seq: p.Next, Ack: p.Ack, ACK: true, PSH: true, Payload: two}))
	time.Sleep(20 * time.Millisecond)
	nettest.Check(r.t, p.SendSegment(lab.Segment{Seq: p.Next, Ack: p.Ack, ACK: true, PSH: true, Payload: one}))
	time.Sleep(50 * time.Millisecond)
	p.Next += uint32(len(two))
	nettest.Check(r.t, p.SendRST())
	p.Next += uint32(len(one) - len(two))
	nettest.Check(r.t, p.SendRST())
	p.Next -= uint32(len(one))
	nettest.Check(r.t, p.SendRST())
}
