// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"narthex/internal/adapt"
	"narthex/internal/netif"
)

// TestUnread asks for each port and family once, not more often than a share of the processor allows, and not
// where nothing can queue.
func TestUnread(t *testing.T) {
	b := newBench(t)
	var asked []string
	var failing error
	b.unread = func(port uint16, v6 bool) (netif.Unread, error) {
		asked = append(asked, fmt.Sprint(port, v6))
		return netif.Unread{Accepted: 3, Queued: 2, QueuedFor: time.Second}, failing
	}
	spent := time.Duration(0)
	b.spent = func() time.Duration { spent += time.Millisecond; return spent }
	w := &whereabouts{}
	for _, at := range []string{"10.0.0.1:80", "10.0.0.2:80", "[::]:80", "[::]:81"} {
		w.add(&netif.Listening{At: netip.MustParseAddrPort(at)})
	}
	s := &steered{place: w, adaptive: true}
	look := func(at time.Duration, inService int) adapt.Sample {
		asked = nil
		out := adapt.Sample{At: at, InService: inService}
		b.addUnread(s, &out)
		return out
	}
	for _, tt := range []struct {
		at        time.Duration
		inService int
		asked     string
		unread    int
	}{
		{1 * time.Second, 1, "[]", -1},
		{1 * time.Second, 2, "[80 false 80 true 81 true]", 9},
		{1099 * time.Millisecond, 2, "[]", -1},
		{1100 * time.Millisecond, 2, "[80 false 80 true 81 true]", 9},
	} {
		got := look(tt.at, tt.inService)
		if fmt.Sprint(asked) != tt.asked || got.Unread != tt.unread || got.Unread > 0 && got.QueuedFor != 0.5 {
			t.Errorf("at %v with %d in service: asked %v, got %+v", tt.at, tt.inService, asked, got)
		}
	}
	failing = errors.New("no")
	if got := look(2*time.Second, 2); got.Unread != -1 || len(asked) != 1 {
		t.Errorf("after a fault: asked %v, got %+v", asked, got)
	}
	if got := look(11*time.Second, 2); got.Unread != -1 || len(asked) != 0 {
		t.Errorf("soon after a fault: asked %v, got %+v", asked, got)
	}
	s.adaptive = false
	if look(time.Minute, 2); len(asked) != 0 {
		t.Errorf("asked %v for a service whose limit is fixed", asked)
	}
}
