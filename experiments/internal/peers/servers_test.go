// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

// answers checks what a server answers at a path.
func (l *rig) answers(path string, status, length int) {
	l.t.Helper()
	got, body, err := get(l.Server, l.web, path)
	nettest.Check(l.t, err)
	if got != status || status == 200 && len(body) != length {
		l.t.Errorf("%s: %d with %d bytes, want %d with %d", path, got, len(body), status, length)
	}
}

func TestPaths(t *testing.T) {
	for _, characters := range []int{8, 10, 11, 80, 160} {
		if path := LongPath(characters); len(path) != characters || !strings.HasSuffix(path, File8K) {
			t.Errorf("path of %d characters: %q", characters, path)
		}
	}
	if path := In("/high", File1K); path != "/high/1k.html" {
		t.Error(path)
	}
	defer func() {
		if recover() == nil {
			t.Error("there is no path of 9 characters")
		}
	}()
	LongPath(9)
}

func TestServers(t *testing.T) {
	for name, start := range map[string]func(l *rig) (*lab.Server, error){
		"apache": func(l *rig) (*lab.Server, error) {
			return Apache{Listen: []netip.AddrPort{l.web}, Workers: 4, CGI: DynamicScript}.Start(l.Server)
		},
		"nginx": func(l *rig) (*lab.Server, error) {
			return Nginx{Listen: []netip.AddrPort{l.web}}.Start(l.Server)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newRig(t)
			l.started(start(l))
			for _, path := range []string{File8K, LongPath(11), LongPath(160), In("/a/b", File8K)} {
				l.answers(path, 200, 8192)
			}
			l.answers(File1K, 200, 1024)
			l.answers(In("/low", File1K), 200, 1024)
			l.answers("/nothing.html", 404, 0)
			if name == "apache" {
				l.answers(Dynamic, 200, DynamicBytes)
				l.answers(Dynamic+"/more", 200, DynamicBytes)
			}
		})
	}
}

// spent is how much of a core a request costs the processes of a server.
func (l *rig) spent(s *lab.Server, path string) time.Duration {
	l.t.Helper()
	const requests = 40
	total := func() (sum time.Duration) {
		pids, err := s.PIDs()
		nettest.Check(l.t, err)
		for _, pid := range pids {
			cpu, err := lab.ProcessCPU(pid)
			nettest.Check(l.t, err)
			sum += cpu
		}
		return sum
	}
	before := total()
	for range requests {
		_, _, err := get(l.Server, l.web, path)
		nettest.Check(l.t, err)
	}
	return (total() - before) / requests
}

// A file costs the work that was asked for, whatever it costs to serve, and what is denied does not.
func TestWork(t *testing.T) {
	const work = 4 * time.Millisecond
	for name, start := range map[string]func(l *rig, work time.Duration) (*lab.Server, error){
		"apache": func(l *rig, work time.Duration) (*lab.Server, error) {
			return Apache{Listen: []netip.AddrPort{l.web}, Workers: 2, Work: work,
				QoS: &QoS{Deny: []RateLimit{{Class: Class{Path: "/denied"}, Rate: 1}}}}.Start(l.Server)
		},
		"nginx": func(l *rig, work time.Duration) (*lab.Server, error) {
			return Nginx{Listen: []netip.AddrPort{l.web}, Work: work}.Start(l.Server)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var costs []time.Duration
			for _, w := range []time.Duration{0, work} {
				l := newRig(t)
				s, err := start(l, w)
				nettest.Check(t, err)
				costs = append(costs, l.spent(s, File8K))
				t.Logf("work %v: %v", w, costs[len(costs)-1])
				if name != "apache" {
					continue
				}
				denied := l.spent(s, In("/denied", File8K))
				t.Logf("work %v: denied %v", w, denied)
				if denied > work/4 {
					t.Errorf("a request that is denied costs %v", denied)
				}
			}
			if more := costs[1] - costs[0]; more < work/2 || more > 3*work {
				t.Errorf("with work of %v a request costs %v more", work, more)
			}
		})
	}
}
