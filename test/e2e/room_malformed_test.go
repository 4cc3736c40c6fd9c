// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"narthex/internal/lab/origin"
)

// malformed are heads that two readers could read differently (RFC 9112), or that are none.
var malformed = []string{
	"POST /bad HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
	"POST /bad HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"POST /bad HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
	"POST /bad HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"POST /bad HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
	"POST /bad HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
	"POST /bad HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
	"POST /bad HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunkedx\r\n\r\n0\r\n\r\n",
	"POST /bad HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
	"POST /bad HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"POST /bad HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\n\r\nabc",
	"POST /bad HTTP/1.1\r\nHost: x\r\nContent-Length: -3\r\n\r\nabc",
	"POST /bad HTTP/1.1\r\nHost: x\r\nContent-Length: 0x3\r\n\r\nabc",
	"POST /bad HTTP/1.1\r\nHost: x\r\nContent-Length: 3,3\r\n\r\nabc",
	"POST /bad HTTP/1.1\r\nHost: x\r\nContent-Length: 3 4\r\n\r\nabc",
	"POST /bad HTTP/1.1\r\nHost: x\r\nContent-Length: \r\n\r\nabc",
	"POST /bad HTTP/1.1\r\nHost: x\r\nContent-Length : 3\r\n\r\nabc",
	"POST /bad HTTP/1.1\r\nHost: x\r\n Content-Length: 3\r\n\r\nabc",
	"POST /bad HTTP/1.1\r\nHost: x\r\nX: y\r\n\tz\r\n\r\n",
	"GET /bad HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n",
	"GET /bad HTTP/1.1\r\nHost: x\r\n: no name\r\n\r\n",
	"GET /bad HTTP/1.1\r\nHost: x\r\nX\x00: y\r\n\r\n",
	"GET /bad HTTP/1.1\r\nHost: x\r\nX: \x00\r\n\r\n",
	"GET /bad HTTP/1.1\r\nHost: x\r\nX: a\rb\r\n\r\n",
	"GET /bad HTTP/1.1\r\nHost: x\r\nX\xa0: y\r\n\r\n",
	"GET  /bad HTTP/1.1\r\nHost: x\r\n\r\n",
	"GET /bad  HTTP/1.1\r\nHost: x\r\n\r\n",
	"GET\t/bad HTTP/1.1\r\nHost: x\r\n\r\n",
	" GET /bad HTTP/1.1\r\nHost: x\r\n\r\n",
	"GET /bad HTTP/1.2\r\nHost: x\r\n\r\n",
	"GET /bad HTTP/2.0\r\nHost: x\r\n\r\n",
	"GET /bad HTTP/0.9\r\nHost: x\r\n\r\n",
	"GET /bad http/1.1\r\nHost: x\r\n\r\n",
	"GET /bad HTTP/1.1 \r\nHost: x\r\n\r\n",
	"GET /bad\r\n\r\n",
	"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
	"G(T /bad HTTP/1.1\r\nHost: x\r\n\r\n",
	"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a ClientHello\r\n\r\n",
	"\x00\x01\x02\x03",
}

// What the server might read otherwise than the gate does not reach it, and nothing behind.
func TestRoomMalformed(t *testing.T) {
	t.Parallel()
	situations(t, func(t *testing.T, kept, held bool) {
		r, all, unblock := in(t, kept, held, 2*len(malformed), roomPolicy{service: "queue: {max_wait: 20s}"}, origin.Config{})
		for i, v := range all {
			bad := malformed[i/2]
			after := bad + getRequest(v.host, "/after")
			if i%2 == 0 {
				v.send(after)
			} else {
				v.pieces(after, 1, len(bad)/2, len(bad)-2)
			}
			resp, _, err := v.answer()
			if err != nil || resp.StatusCode != http.StatusBadRequest || !resp.Close {
				t.Errorf("%q: %v, error %v; want a 400 that closes", bad, resp, err)
				continue
			}
			v.isClosed()
			v.conn.Close()
			r.refused[gold]++
		}
		if n := r.class(gold).Rejected["malformed"]; n != r.refused[gold] {
			t.Errorf("%d rejected as malformed, want %d", n, r.refused[gold])
		}
		unblock()
		r.wasNew()
		r.calm()
	})
}

// What is unusual but clear is passed on.
func TestRoomOddHeads(t *testing.T) {
	t.Parallel()
	odd := []string{
		"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET http://x/%d HTTP/1.1\r\nHost: x\r\n\r\n",
		"PROPFIND /%d HTTP/1.1\r\nhOsT:x\r\n\r\n",
		"PATCH /%d HTTP/1.1\r\nHost: x\r\ncontent-length:\t3 \r\n\r\nabc",
		"PUT /%d HTTP/1.1\r\nHost: x\r\ntransfer-encoding: CHUNKED\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"GET /%d HTTP/1.1\r\nHost: x\r\nX: \xe4\xf6\xfc\t\"\\\"\r\nY:\r\n\r\n",
		"GET /%d HTTP/1.1\r\nHost: x\r\nConnection: , foo,keep-alive ,\r\n\r\n",
		"GET /%d?a=b&c=%%20d;[] HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST /%d HTTP/1.1\r\nHost: x\r\nContent-Length: 0000\r\n\r\n",
	}
	situations(t, func(t *testing.T, kept, held bool) {
		r, all, unblock := in(t, kept, held, len(odd), roomPolicy{service: "queue: {max_wait: 20s}"}, origin.Config{})
		for i, v := range all {
			request := fmt.Sprintf(odd[i], i)
			v.pieces(request, len(request)/2)
			if held {
				r.await(1, i+1)
			} else {
				v.wants(http.StatusOK)
			}
		}
		unblock()
		for i, v := range all {
			if held {
				v.wants(http.StatusOK)
			}
			v.get("/next")
			v.wants(http.StatusOK)
			if got := r.news()[i]; !strings.Contains(got, fmt.Sprintf("/%d", i)) {
				t.Errorf("the server was asked for %q, want /%d", got, i)
			}
		}
		r.calm()
	})
}

const (
	preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	h2c     = "GET /h2c HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n"
)

// HTTP/2 without TLS is refused, unless it is to pass.
func TestRoomH2C(t *testing.T) {
	t.Parallel()
	t.Run("refused", func(t *testing.T) {
		situations(t, func(t *testing.T, kept, held bool) {
			requests := []string{preface, h2c, strings.Replace(h2c, "Upgrade: h2c", "upgrade: foo, H2C", 1)}
			r, all, unblock := in(t, kept, held, len(requests), roomPolicy{service: "h2c: reject"}, origin.Config{H2C: true})
			for i, v := range all {
				v.pieces(requests[i]+getRequest(v.host, "/after"), 3, len(requests[i])-1)
				v.wants(http.StatusBadRequest)
				v.isClosed()
				r.refused[gold]++
			}
			if n := r.class(gold).Rejected["h2c"]; n != uint64(len(requests)) {
				t.Errorf("%d rejected as h2c, want %d", n, len(requests))
			}
			unblock()
			r.wasNew()
			r.calm()
		})
	})
	for _, c := range []struct {
		name, service string
		server        origin.Config
		cuts          []int
	}{
		// The server could go on in HTTP/2, and is not shown that its client could.
		{"upgrade ignored", "", origin.Config{H2C: true}, []int{3, len(h2c) - 5}},
		// The server does not know the upgrade, and answers as if it had not been asked for.
		{"upgrade passes", "h2c: pass", origin.Config{}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			situations(t, func(t *testing.T, kept, held bool) {
				r, all, unblock := in(t, kept, held, 1, roomPolicy{service: c.service}, c.server)
				all[0].pieces(h2c, c.cuts...)
				if held {
					r.await(1, 1)
				}
				unblock()
				all[0].wants(http.StatusOK)
				all[0].get("/next")
				all[0].wants(http.StatusOK)
				r.wasNew("/h2c", "/next")
				r.calm()
			})
		})
	}
	t.Run("prior knowledge", func(t *testing.T) {
		for _, pass := range []bool{false, true} {
			p, want := roomPolicy{}, ""
			if pass {
				p.service, want = "h2c: pass", "200 2"
			}
			r, unblock := blockedBy(t, p, origin.Config{H2C: true})
			done := make(chan string, 1)
			go func() {
				out, _ := r.client.Command("curl", "-s", "--http2-prior-knowledge", "--max-time", "20", "--interface", r.addr(gold).String(),
					"-o", "/dev/null", "-w", "%{http_code} %{http_version}", "http://"+r.to.String()+"/h2").CombinedOutput()
				done <- string(out)
			}()
			if pass {
				r.await(1, 1)
			} else {
				eventually(t, "it is refused", func() bool { return r.class(gold).Rejected["h2c"] == 1 })
				r.refused[gold]++
			}
			unblock()
			if got := <-done; pass && got != want || !pass && strings.HasPrefix(got, "200") {
				t.Errorf("pass=%v: curl says %q, want %q", pass, got, want)
			}
			r.calm()
		}
	})
	// A connection that speaks HTTP/2 is one request, until it ends.
	t.Run("tunnel", func(t *testing.T) {
		s := sharedScene(t, plain, false)
		s.origin(origin.Config{H2C: true})
		r := s.enforce(roomPolicy{service: "h2c: pass"})
		v := r.visit(gold)
		v.send(preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00") // and its settings
		if _, err := v.r.Peek(9); err != nil {
			t.Fatal(err)
		}
		r.await(1, 0)
		b := r.queue(bronze, "/b", 1)
		b.silent(2 * quiet)
		v.conn.Close()
		b.wants(http.StatusOK)
		r.calm()
	})
}
