// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/tls"
	"io"
	"net/http"
	"testing"
	"time"

	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

// h2Frame is a frame of HTTP/2 (RFC 9113, 4.1).
func h2Frame(kind, flags, stream byte, payload string) string {
	return string([]byte{0, 0, byte(len(payload)), kind, flags, 0, 0, 0, stream}) + payload
}

// Frames and flags of HTTP/2.
const (
	h2Headers, h2Settings, h2Ping  = 1, 4, 6
	h2Ack, h2EndStream, h2EndHeads = 1, 1, 4
)

// A server that answers a PING speaks last while it works on a request: what is inside TLS nobody can tell. With
// service_ends: close a connection counts until it closes, whatever is said.
func TestRoomTLSPings(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, plain, false)
	s.origin(origin.Config{TLS: true})
	r := s.enforce(roomPolicy{service: "protocol: tls, service_ends: close"})
	v := r.visit(bronze)
	v.secure(func(c *tls.Config) { c.NextProtos = []string{"h2"} })
	const path = "/wait?for=first"
	request := "\x82\x87\x04" + string(rune(len(path))) + path + "\x01\x01x" // GET, https, :path, :authority
	v.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + h2Frame(h2Settings, 0, 0, "") +
		h2Frame(h2Headers, h2EndStream|h2EndHeads, 1, request) + h2Frame(h2Ping, 0, 0, "12345678"))
	for acked := false; !acked; {
		var head [9]byte
		_, err := io.ReadFull(v.r, head[:])
		nettest.Check(t, err)
		_, err = io.CopyN(io.Discard, v.r, int64(head[1])<<8|int64(head[2]))
		nettest.Check(t, err)
		acked = head[3] == h2Ping && head[4] == h2Ack
	}
	time.Sleep(time.Second) // several looks at who is silent
	r.await(1, 0)
	r.wasAsked(path)
	g := r.private(gold)
	done := g.later("/g")
	r.await(1, 1)
	r.letGo("first")
	v.conn.Close()
	if o := <-done; o.status != http.StatusOK {
		t.Errorf("status %d, error %v", o.status, o.err)
	}
	g.conn.Close()
	r.calm()
}
