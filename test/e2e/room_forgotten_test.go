// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net"
	"net/http"
	"testing"

	"narthex/internal/lab/origin"
	"narthex/test/attack"
	"narthex/test/nettest"
)

// forget has the client's kernel forget the connection, as one does that starts anew, and returns the port that
// it was from.
func (v *visitor) forget() uint16 {
	v.t.Helper()
	conn, err := tcpConn(v.conn)
	nettest.Check(v.t, err)
	port := conn.LocalAddr().(*net.TCPAddr).Port
	nettest.Check(v.t, attack.Forget(conn))
	return uint16(port)
}

// Who has forgotten a connection gets another from the same port, whatever the server and the gate have of the
// old one.
func TestRoomForgottenConnection(t *testing.T) {
	t.Parallel()
	for _, cookies := range []string{"1", "2"} {
		for _, said := range []string{"", "GET /", getRequest("x", "/old")} {
			t.Run(fmt.Sprintf("%s, %q", cookies, said), func(t *testing.T) {
				t.Parallel()
				r, first := blocked(t, roomPolicy{}, origin.Config{})
				r.changed = true // nobody else comes to this place
				nettest.Check(t, r.server.Sysctl("ipv4/tcp_syncookies", cookies))
				old := r.visit(bronze)
				old.send(said)
				port := old.forget()
				again, err := r.dialFrom(bronze, 1, port, 0)
				nettest.Check(t, err)
				defer again.conn.Close()
				again.get("/new")
				r.await(1, 1)
				r.letGo("first")
				first.wants(http.StatusOK)
				again.wants(http.StatusOK)
				r.await(0, 0)
				r.calm()
			})
		}
	}
}
