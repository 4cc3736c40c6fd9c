// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

// What the stack loses of chunks that the gate has read, its client sends again.
func TestRoomChunksThatTheStackLoses(t *testing.T) {
	t.Parallel()
	for _, kept := range []bool{false, true} {
		for _, behindHead := range []bool{false, true} {
			t.Run(fmt.Sprintf("kept=%v/behindHead=%v", kept, behindHead), func(t *testing.T) {
				r, all, _ := in(t, kept, false, 1, roomPolicy{service: "queue: {max_wait: 20s}"}, origin.Config{})
				v := all[0]
				// What comes from there is dropped where its route is looked up, behind the gate.
				lose := func(what string) {
					t.Helper()
					nettest.Check(t, r.server.Command("ip", "route", what, r.addr(gold).String()+"/32", "dev", "lo").Run())
				}
				r.changed = true
				nettest.Check(t, r.server.Sysctl("ipv4/conf/"+lab.Dev+"/rp_filter", "1"))
				if behindHead { // which the gate has acknowledged
					lose("add")
					v.pieces(chunkedHead, 10, 20)
					time.Sleep(20 * time.Millisecond)
					v.send("5\r\nhello\r\n")
					time.Sleep(2 * quiet)
				} else {
					v.send(chunkedHead)
					time.Sleep(20 * time.Millisecond)
					lose("add")
					v.send("5\r\nhello\r\n")
					time.Sleep(20 * time.Millisecond)
				}
				lose("del")
				v.send("6\r\n world\r\n0\r\n\r\n")
				v.echoed("hello world")
				r.calm()
			})
		}
	}
}
