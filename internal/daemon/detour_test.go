// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net/netip"
	"strings"
	"testing"

	"narthex/internal/datapath"
	"narthex/internal/netif"
	"narthex/internal/policy"
)

func TestDetours(t *testing.T) {
	services := []policy.ServiceTable{{Name: "web", Listen: []policy.Listen{{Port: 80}}}}
	listening := netif.Listeners{netip.MustParseAddrPort("0.0.0.0:80")}
	stats := func(syns, connections, strays uint64) datapath.Stats {
		return datapath.Stats{
			Services: []datapath.Counts{{Passed: syns}}, Connections: []uint64{connections},
			Reasons: map[string]datapath.Counts{"no_socket": {Passed: strays}},
		}
	}
	var d detours
	for _, step := range []struct {
		what      string
		stats     datapath.Stats
		listeners netif.Listeners
		news      int
		note      string
	}{
		{"nothing has come", stats(0, 0, 0), listening, 0, ""},
		{"all passes", stats(10, 10, 0), listening, 0, ""},
		{"SYNs were before the start", stats(10, 12, 0), listening, 0, ""},
		{"connections come another way", stats(10, 20, 0), listening, 1, "8 connections were established"},
		{"and so they go on", stats(10, 30, 0), listening, 0, "10 connections were established"},
		{"nothing more comes", stats(10, 30, 0), listening, 0, "10 connections were established"},
		{"all passes again", stats(20, 40, 0), listening, 0, ""},
		{"the server is down", stats(30, 40, 0), nil, 0, ""},
		{"its requests go elsewhere", stats(40, 40, 10), nil, 1, "requests for *:80 of service web come"},
		{"counters begin anew", stats(5, 5, 0), listening, 0, ""},
	} {
		notes := strings.Join(d.notes(services, step.stats, step.listeners), "\n")
		if news := d.look(services, step.stats, step.listeners); len(news) != step.news {
			t.Errorf("%s: %q is news", step.what, news)
		}
		if after := strings.Join(d.notes(services, step.stats, step.listeners), "\n"); !strings.Contains(after, step.note) || step.note == "" && after != "" {
			t.Errorf("%s: %q, then %q; want %q", step.what, notes, after, step.note)
		}
	}
}
