// SPDX-License-Identifier: Apache-2.0

package netif

import (
	"net/netip"
	"testing"
	"time"
)

// What is gone is kept for a while, and no longer; what comes back is as it was.
func TestLinger(t *testing.T) {
	v4, v6 := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::1/128")
	whole := Snapshot{Links: []Link{{Index: 2, Name: "eth0", Up: true, HasAddress: true}}, Locals: []netip.Prefix{v4, v6}}
	down := Snapshot{Links: []Link{{Index: 2, Name: "eth0"}}, Locals: []netip.Prefix{v4}}
	kept := Snapshot{Links: []Link{{Index: 2, Name: "eth0", HasAddress: true}}, Locals: []netip.Prefix{v4, v6}}
	noLink := Snapshot{Locals: []netip.Prefix{v4}}
	steps := []struct {
		at      time.Duration
		is      Snapshot
		want    Snapshot
		pending bool
	}{
		{0, whole, whole, false},
		{time.Second, down, kept, true},
		{2 * time.Second, whole, whole, false},
		{3 * time.Second, down, kept, true},
		{3*time.Second + lingerFor - 1, down, kept, true},
		{3*time.Second + lingerFor, down, down, false},
		{20 * time.Second, down, down, false},
		{30 * time.Second, whole, whole, false},
		{31 * time.Second, noLink, Snapshot{Locals: []netip.Prefix{v4, v6}}, true},
		{31*time.Second + lingerFor, noLink, noLink, false},
		{40 * time.Second, whole, whole, false},
		{41 * time.Second, Snapshot{Links: down.Links, Locals: whole.Locals}, kept, true},
		{42 * time.Second, Snapshot{Locals: whole.Locals}, Snapshot{Locals: whole.Locals}, false},
	}
	var l Linger
	start := time.Now()
	for _, s := range steps {
		got := l.Add(s.is, start.Add(s.at))
		if !got.Equal(s.want) || l.Pending() != s.pending {
			t.Errorf("at %v: %+v, pending %v; want %+v, %v", s.at, got, l.Pending(), s.want, s.pending)
		}
	}
}
