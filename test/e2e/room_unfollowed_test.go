// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/http"
	"testing"

	"narthex/internal/lab/origin"
)

// A body of which nobody knows where it ends occupies nobody when it does not come.
func TestRoomEndlessBodies(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, plain, false)
	s.origin(origin.Config{})
	r := s.enforce(roomPolicy{service: "queue: {max_wait: 20s}"})
	const head = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2147483648\r\n\r\n"
	for _, body := range []string{"", "its beginning"} {
		v := r.visit(bronze)
		v.send(head + body)
		r.await(0, 0)
		g := r.visit(gold)
		g.get("/")
		g.wants(http.StatusOK)
		v.reset()
	}
	r.calm()
}

// Chunks that cannot be followed and come while their request waits end it like any others.
func TestRoomBadChunksWhileHeld(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, plain, false)
	s.origin(origin.Config{})
	r := s.enforce(roomPolicy{service: "queue: {max_wait: 20s}"})
	for _, bad := range badChunks {
		r.breaksOff(bad, false, true)
	}
	r.loose = true
	r.calm()
}
