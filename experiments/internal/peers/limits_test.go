// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"narthex/internal/lab"
	"narthex/internal/load"
	"narthex/test/nettest"
)

// classes are what limits are for: a path, a network, and a path asked for from a network.
var classes = map[string]Class{
	"path":    {Path: "/greedy"},
	"network": {From: greedy},
	"both":    {Path: "/greedy", From: greedy},
}

func TestRates(t *testing.T) {
	for kind, c := range classes {
		limit := []RateLimit{{c, limited, burst}}
		for name, start := range map[string]func(*rig){
			"nginx": func(l *rig) {
				keepalive := 0
				if kind == "both" {
					keepalive = 16
				}
				l.apache(Apache{Listen: []netip.AddrPort{l.behind}, Workers: 16})
				l.started(NginxLimit{Listen: []netip.AddrPort{l.web}, Origin: l.behind, LimitReq: limit, Keepalive: keepalive}.Start(l.Server))
			},
			"haproxy": func(l *rig) {
				l.apache(Apache{Listen: []netip.AddrPort{l.behind}})
				l.started(HAProxy{Listen: []netip.AddrPort{l.web}, Origin: l.behind, Deny: limit}.Start(l.Server))
			},
			"mod_qos": func(l *rig) { l.apache(Apache{QoS: &QoS{Deny: limit}}) },
		} {
			t.Run(name+"-"+kind, func(t *testing.T) {
				t.Parallel()
				l := newRig(t)
				start(l)
				l.mustLimit(c, load.OtherStatus)
			})
		}
	}
}

func TestFirewalls(t *testing.T) {
	for name, apply := range map[string]func(*lab.Namespace) (func() error, error){
		"nft-input":       NFTables{Port: 80, From: greedy, Rate: limited, Burst: burst}.Apply,
		"nft-ingress":     NFTables{Port: 80, From: greedy, Rate: limited, Burst: burst, Device: lab.Dev}.Apply,
		"nft-sources":     NFTables{Port: 80, From: greedy, Rate: limited, Burst: burst, PerSource: true}.Apply,
		"nft-early":       NFTables{Port: 80, From: greedy, Rate: limited, Burst: burst, PerSource: true, Device: lab.Dev}.Apply,
		"iptables":        IPTables{Port: 80, From: greedy, Rate: limited, Burst: burst}.Apply,
		"iptables-source": IPTables{Port: 80, From: greedy, Rate: limited, Burst: burst, PerSource: true}.Apply,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newRig(t)
			l.apache(Apache{})
			before := l.rules()
			stop, err := apply(l.Server)
			nettest.Check(t, err)
			l.mustLimit(Class{From: greedy}, load.NoConnection)
			nettest.Check(t, stop())
			r := l.until(func(r []*load.Report) bool { return r[0].Outcomes[load.OK] > 20 },
				load.Open{Rate: offered, Client: l.clients(l.other, File8K)})
			if !only(r[0], load.OK) {
				t.Errorf("after it was stopped: %s; want all ok", outcomes(r[0]))
			}
			if after := l.rules(); after != before {
				t.Errorf("rules are left behind:\n%s", after)
			}
		})
	}
}

// rules are all of nftables' and those of iptables' INPUT chain.
func (l *rig) rules() (all string) {
	for _, command := range []string{"nft list ruleset", "iptables-save -t filter"} {
		f := strings.Fields(command)
		out, err := l.Server.Command(f[0], f[1:]...).Output()
		nettest.Check(l.t, err)
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "hashlimit") || strings.Contains(line, nftTable) || strings.Contains(line, "drop") {
				all += line
			}
		}
	}
	return all
}

// Of two rates per source each source has its own.
func TestPerSource(t *testing.T) {
	t.Parallel()
	l := newRig(t)
	l.apache(Apache{})
	stop, err := NFTables{Port: 80, Rate: 1, Burst: burst, PerSource: true}.Apply(l.Server)
	nettest.Check(t, err)
	for _, sources := range [][]netip.Addr{l.ours, l.other} {
		r := l.until(func(r []*load.Report) bool { return r[0].Outcomes[load.NoConnection] > 20 },
			load.Open{Rate: offered, Client: l.clients(sources, File8K)})
		if r[0].Outcomes[load.OK] < burst {
			t.Errorf("%v may have bursts of %d: %s", sources, burst, outcomes(r[0]))
		}
	}
	nettest.Check(t, stop())
}

// slow is how long a request takes where several are to meet.
const slow = 3 * time.Millisecond

func TestConcurrency(t *testing.T) {
	for kind, c := range classes {
		limit := []ConcurrencyLimit{{c, 1}}
		for name, start := range map[string]func(*rig){
			"nginx": func(l *rig) {
				l.apache(Apache{Listen: []netip.AddrPort{l.behind}, Work: slow})
				l.started(NginxLimit{Listen: []netip.AddrPort{l.web}, Origin: l.behind, LimitConn: limit}.Start(l.Server))
			},
			"mod_qos": func(l *rig) { l.apache(Apache{Work: slow, QoS: &QoS{Concurrency: limit}}) },
		} {
			t.Run(name+"-"+kind, func(t *testing.T) {
				t.Parallel()
				l := newRig(t)
				start(l)
				sources := l.ours
				if c.From.IsValid() {
					sources = l.other
				}
				r := l.until(func(r []*load.Report) bool {
					return r[0].Outcomes[load.OK] > 5 && r[0].Outcomes[load.OtherStatus] > 5 && (c.Path == "" || r[1].Outcomes[load.OK] > 5)
				}, l.crowd(sources, "/greedy"), l.crowd(l.ours, "/free"))
				if !only(r[0], load.OK, load.OtherStatus) || r[0].Statuses[503] == 0 || r[0].Statuses[503] != r[0].Outcomes[load.OtherStatus] {
					t.Errorf("limited to one at once: %s", outcomes(r[0]))
				}
				if !only(r[1], load.OK) {
					t.Errorf("not limited: %s", outcomes(r[1]))
				}
			})
		}
	}
}

// What mod_qos delays it denies too, beyond the number that its documentation wants beside the rate.
func TestDelayed(t *testing.T) {
	t.Parallel()
	l := newRig(t)
	l.apache(Apache{Work: slow, QoS: &QoS{Delay: []DelayLimit{{Path: "/greedy", Rate: 100, Requests: 1}}}})
	r := l.until(func(r []*load.Report) bool {
		return r[0].Outcomes[load.OK] > 5 && r[0].Statuses[503] > 5
	}, l.crowd(l.ours, "/greedy"))
	if !only(r[0], load.OK, load.OtherStatus) || r[0].Statuses[503] == 0 {
		t.Error(outcomes(r[0]))
	}
}

// crowd is three clients that ask again as soon as they have an answer.
func (l *rig) crowd(sources []netip.Addr, folder string) loop {
	return load.Closed{Clients: 3, Client: l.clients(sources, In(folder, File8K))}
}

func TestPriorities(t *testing.T) {
	for kind, c := range classes {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			l := newRig(t)
			l.apache(Apache{Listen: []netip.AddrPort{l.behind}, Work: slow})
			l.started(HAProxy{Listen: []netip.AddrPort{l.web}, Origin: l.behind, MaxConn: 1,
				Priorities: []Priority{{c, -1}, {Class{}, 1}}}.Start(l.Server))
			r := l.until(func(r []*load.Report) bool { return r[0].Outcomes[load.OK] > 50 },
				l.crowd(l.other, "/greedy"), l.crowd(l.ours, "/low"))
			if r[0].Outcomes[load.OK] < 5*max(1, r[1].Outcomes[load.OK]) {
				t.Errorf("with priority: %s; without: %s", outcomes(r[0]), outcomes(r[1]))
			}
		})
	}
}

func TestTooManyRates(t *testing.T) {
	if _, err := (HAProxy{Deny: make([]RateLimit, trackers+1)}).Start(nil); err == nil {
		t.Error("four rates in HAProxy: no error")
	}
}

// Apache with mod_qos ends in the midst of requests, with all its processes: another can take its place.
func TestModQoSEnds(t *testing.T) {
	t.Parallel()
	l := newRig(t)
	for range 3 {
		s := l.apache(Apache{Workers: 16, QoS: &QoS{Deny: []RateLimit{{Class{Path: "/greedy"}, limited, burst}}}})
		r := l.until(func(r []*load.Report) bool {
			if r[0].Outcomes[load.OtherStatus] < 100 {
				return false
			}
			nettest.Check(t, s.Close())
			return true
		}, load.Closed{Clients: 32, Client: l.clients(l.ours, In("/greedy", File8K))})
		if r[0].Statuses[503] < 100 {
			t.Errorf("before it ended: %s", outcomes(r[0]))
		}
	}
}
