// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

const chunkedHead = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"

// inChunks is a body in chunks of a size.
func inChunks(body string, size int) string {
	var b strings.Builder
	for len(body) > 0 {
		n := min(size, len(body))
		fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	return b.String() + "0\r\n\r\n"
}

// A body in chunks is one request with its head, and the next on the connection takes its turn
// like any other.
func TestRoomChunked(t *testing.T) {
	t.Parallel()
	for _, held := range []bool{false, true} {
		t.Run(fmt.Sprintf("held=%v", held), func(t *testing.T) {
			r, first := blocked(t, roomPolicy{}, origin.Config{})
			if !held {
				r.frees(first)
			}
			v := r.visit(gold)
			v.send(chunkedHead + "5\r\nhello\r\n1\r\n \r\n")
			if held {
				r.await(1, 1)
				r.letGo("first")
				first.wants(http.StatusOK)
			}
			v.send("5;x=y\r\nwo")
			time.Sleep(50 * time.Millisecond)
			v.send("rld\r\n0\r\nX-Trailer: z\r\n\r")
			time.Sleep(50 * time.Millisecond)
			v.send("\n")
			v.echoed("hello world")
			r.await(0, 0)
			second := r.visit(bronze)
			second.get("/wait?for=second")
			r.await(1, 0)
			v.get("/next")
			r.await(1, 1)
			r.letGo("second")
			second.wants(http.StatusOK)
			v.wants(http.StatusOK)
			r.wasAsked("/wait?for=first", "/echo", "/wait?for=second", "/next")
			if got := r.class(gold); got.Arrived != 2 {
				t.Errorf("%+v, want 2 arrived", got)
			}
			r.calm()
		})
	}
	t.Run("pipelined", func(t *testing.T) {
		r, first := blocked(t, roomPolicy{}, origin.Config{})
		v := r.visit(gold)
		v.send(chunkedHead + "5\r\nhello\r\n0\r\n\r\n" + getRequest(v.host, "/next"))
		r.await(1, 1)
		r.letGo("first")
		first.wants(http.StatusOK)
		v.echoed("hello")
		v.wants(http.StatusOK)
		if got := r.class(gold); got.Arrived != 2 {
			t.Errorf("%+v, want 2 arrived", got)
		}
		r.calm()
	})
}

// Uploads in chunks of any size, twice on a connection, with data that looks like the end of
// one.
func TestRoomChunkedUploads(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 100, 1000, 40000} {
		for _, held := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d/held=%v", size, held), func(t *testing.T) {
				r, all, unblock := in(t, false, held, 1, roomPolicy{service: "queue: {max_wait: 20s}"}, origin.Config{})
				v := all[0]
				length := 1 << 20
				if size == 1 {
					length = 1 << 15
				}
				body := strings.Repeat("0\r\n\r\nGET / HTTP/1.1\r\n\r\n", length/23)
				sent := v.sendLater(chunkedHead + inChunks(body, size))
				if held {
					r.await(1, 1)
				}
				unblock()
				<-sent
				v.echoed(body)
				sent = v.sendLater(chunkedHead + inChunks(body, size) + getRequest(v.host, "/next"))
				v.echoed(body)
				<-sent
				v.wants(http.StatusOK)
				// The rest of what was held comes when the client tries again, after a pause maybe.
				if got := r.class(gold); got.Arrived-got.Paused != 3 {
					t.Errorf("%+v, want 3 arrived and not paused", got)
				}
				r.wasNew("/echo", "/echo", "/next")
				r.calm()
			})
		}
	}
}

// Wherever the network cuts a body in chunks, the gate finds its end.
func TestRoomChunksCutAnywhere(t *testing.T) {
	t.Parallel()
	situations(t, func(t *testing.T, kept, held bool) {
		const chunks = "5;x=\"y\"\r\nhello\r\n0006\r\n world\r\n0;z\r\nX-Trailer: z\r\n\r\n"
		const request = chunkedHead + chunks
		n := len(chunks)
		r, all, unblock := in(t, kept, held, n, roomPolicy{service: "queue: {max_wait: 20s}"}, origin.Config{})
		for i, v := range all {
			v.pieces(request+getRequest(v.host, fmt.Sprintf("/%d", i)), len(chunkedHead)+i)
			if held {
				r.await(1, i+1)
			} else {
				v.echoed("hello world")
				v.wants(http.StatusOK)
			}
		}
		before := r.class(gold).Arrived
		unblock()
		for _, v := range all {
			if held {
				v.echoed("hello world")
				v.wants(http.StatusOK)
			}
		}
		r.await(0, 0)
		if got := r.class(gold).Arrived - before; held && got != uint64(n) {
			t.Errorf("%d arrived behind the chunks, want %d", got, n)
		}
		r.calm()
	})
}

// badChunks are chunks that two readers could read differently.
var badChunks = []string{
	"x\r\n",
	"5\nhello\r\n",
	"5\r\nhello\n0\r\n\r\n",
	"5\r\nhelloo\r\n",
	"-5\r\nhello\r\n",
	"0x5\r\nhello\r\n",
	"\r\n5\r\nhello\r\n",
	" 5\r\nhello\r\n",
	"5 5\r\nhello\r\n",
	"123456789\r\n",
	"5;\x00\r\nhello\r\n",
	"5\r\nhello\r\n0\r\nContent-Length: 3\r\n\r\n",
	"5\r\nhello\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
	"5\r\nhello\r\n0\r\n folded\r\n\r\n",
}

// Where chunks cannot be followed the connection ends, with a 400, and the server hears
// nothing of what is behind.
func TestRoomBadChunks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name           string
		together, held bool
	}{
		{"with the head", true, false},
		{"with the head, held", true, true},
		{"later", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := sharedScene(t, plain, false)
			s.origin(origin.Config{})
			r := s.enforce(roomPolicy{service: "queue: {max_wait: 20s}"})
			for _, bad := range badChunks {
				r.breaksOff(bad, c.together, c.held)
			}
			for _, uri := range r.news() {
				if uri == "/behind" {
					t.Error("the server was asked for what is behind chunks that cannot be followed")
				}
			}
			r.loose = true // some have arrived before they were refused
			r.calm()
		})
	}
}

// breaksOff has somebody send a request with bad chunks, who has to be told so.
func (r *room) breaksOff(bad string, together, held bool) {
	r.t.Helper()
	unblock := func() {}
	if held {
		unblock = r.block(bronze)
	}
	v := r.visit(gold)
	text := bad + getRequest(v.host, "/behind")
	if together {
		text = chunkedHead + text
	} else {
		v.send(chunkedHead)
		if held {
			r.await(1, 1)
		} else {
			r.await(1, 0)
		}
	}
	v.send(text)
	time.Sleep(20 * time.Millisecond)
	unblock()
	// The server may have seen the same, and have answered so first.
	resp, _, err := v.answer()
	if err != nil || resp.StatusCode != http.StatusBadRequest {
		r.t.Errorf("%q: %v, error %v; want a 400", bad, resp, err)
	} else if _, err := io.Copy(io.Discard, v.r); err != nil && isTimeout(err) {
		r.t.Errorf("%q: the connection goes on", bad)
	}
	v.conn.Close()
	r.await(0, 0)
}

// Chunks that come a byte at a time, to somebody who waits for them.
func TestRoomChunksOfSingleBytes(t *testing.T) {
	t.Parallel()
	r, first := blocked(t, roomPolicy{}, origin.Config{})
	r.frees(first)
	v := r.visit(gold)
	conn, err := tcpConn(v.conn)
	nettest.Check(t, err)
	nettest.Check(t, conn.SetNoDelay(true))
	text := chunkedHead + inChunks("hello world", 4)
	for range 3 {
		v.pieces(text, everywhere(text)...)
		v.echoed("hello world")
	}
	if got := r.class(gold); got.Arrived != 3 {
		t.Errorf("%+v, want 3 arrived", got)
	}
	r.calm()
}
