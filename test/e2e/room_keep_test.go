// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

// No SYN-ACK is to be sent again while a request may wait: if that fails the kernel gives the connection up.
func TestRoomKeepsConnectionsThatMayWait(t *testing.T) {
	t.Parallel()
	for wait, want := range map[string][2]time.Duration{"500ms": {0, time.Second}, "5s": {4 * time.Second, 6 * time.Second}, "30s": {25 * time.Second, 35 * time.Second}} {
		t.Run(wait, func(t *testing.T) {
			t.Parallel()
			rig := nettest.Lab(t, 1)
			to := netip.AddrPortFrom(rig.ServerV4, 80)
			_, err := origin.Start(rig.Server, origin.Config{Listen: []netip.AddrPort{to}})
			nettest.Check(t, err)
			start(t, rig.Server, "version: 1\nservices: [{name: shop, listen: \"*:80\", concurrency: 1, queue: {max_wait: "+wait+"}}]\n")
			eventually(t, fmt.Sprintf("no SYN-ACK is waited for by more than %v, and at most %v", want[0], want[1]), func() bool {
				nettest.Check(t, rig.Client.Do(func() error {
					conn, err := dial(netip.Addr{}, to, patience)
					if err == nil {
						t.Cleanup(func() { conn.Close() })
					}
					return err
				}))
				timer := synAckTimer(t, rig.Server.Do)
				return timer > want[0] && timer <= want[1]
			})
		})
	}
}

// synAckTimer is the longest time until the kernel sends a SYN-ACK again for the first time.
func synAckTimer(t *testing.T, do func(func() error) error) (most time.Duration) {
	t.Helper()
	var text string
	nettest.Check(t, do(func() error {
		for _, file := range []string{"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"} {
			more, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			text += string(more)
		}
		return nil
	}))
	for line := range strings.Lines(text) {
		const synReceived, notYet, hz = "03", "00000000", 100
		fields := strings.Fields(line)
		if len(fields) < 7 || fields[3] != synReceived || fields[6] != notYet {
			continue
		}
		var kind, ticks int
		_, err := fmt.Sscanf(fields[5], "%x:%x", &kind, &ticks)
		nettest.Check(t, err)
		most = max(most, time.Duration(ticks)*time.Second/hz)
	}
	return most
}
