// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/http"
	"testing"

	"narthex/internal/lab"
)

// Requests that say both that their connection ends and that it goes on, in ways in which servers differ: whatever a server
// makes of them, the place is free once it has answered, and who keeps the connection open keeps no place.
func TestRoomConnectionTokens(t *testing.T) {
	t.Parallel()
	for _, server := range roomServers[:5] {
		t.Run(server.name, func(t *testing.T) {
			s := sharedScene(t, plain, false)
			server.start(s)
			r := s.enforce(roomPolicy{service: "queue: {max_service: 5m}"})
			for _, tokens := range []string{
				"1.1 close", "1.1 close, keep-alive", "1.1 keep-alive, close", "1.1 close\r\nConnection: keep-alive", "1.1 keep-alive\r\nConnection: close", "1.1 x-close, notclose",
				"1.0 keep-alive", "1.0 xkeep-alive", "1.0 close, keep-alive", "1.0 keep-alive\r\nConnection: close", "1.0 x",
			} {
				v := r.visit(gold)
				v.send("GET " + lab.File + " HTTP/" + tokens[:3] + "\r\nHost: x\r\nConnection: " + tokens[4:] + "\r\n\r\n")
				v.wants(http.StatusOK)
				r.await(0, 0)
				v.conn.Close()
			}
			r.calm()
		})
	}
}
