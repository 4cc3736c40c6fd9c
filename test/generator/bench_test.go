// SPDX-License-Identifier: Apache-2.0

package generator_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"narthex/internal/lab"
	"narthex/test/busy"
	"narthex/test/nettest"
)

// The benchmarks say what a generator reaches and costs, with the server's receive path on another
// core (RPS): go test -run - -bench . -benchtime 1500000000x ./test/generator
// They report frames per second, and in percent of a core's time how busy both cores were and what
// this process took in user mode.

func BenchmarkSYNsNobodyListens(b *testing.B) { measure(b, newScene(b), "", 0) }

func BenchmarkSYNsListener(b *testing.B) {
	s := newScene(b)
	nettest.Nginx(b, s.Server, s.to)
	measure(b, s, "", 0)
}

func BenchmarkExchanges(b *testing.B) {
	for name, request := range map[string]string{"close": closing, "keep-alive": keeping} {
		for _, rate := range []int{1000, 10_000, 20_000, 40_000, 0} {
			b.Run(fmt.Sprintf("%s/%d", name, rate), func(b *testing.B) {
				s := newScene(b)
				cpus, err := lab.CPUs()
				nettest.Check(b, err)
				_, err = s.Server.StartNginx(lab.NginxConfig{Listen: []netip.AddrPort{s.to}, Backlog: 4096, CPUs: cpus[:1]})
				nettest.Check(b, err)
				measure(b, s, request, rate)
			})
		}
	}
}

// measure has b.N be nanoseconds of sending.
func measure(b *testing.B, s *scene, request string, rate int) {
	cfg := s.config(request, rate)
	cpus, err := lab.CPUs()
	nettest.Check(b, err)
	nettest.Check(b, s.Server.SetRPS(lab.Dev, cpus[0]))
	servers, clients := meter(b, cpus[0]), meter(b, cfg.CPU)
	g := start(b, cfg)
	time.Sleep(200 * time.Millisecond)
	before, began, cpu := counts(b, g), time.Now(), userTime(b)
	server, client := servers.Busy(), clients.Busy()
	b.ResetTimer()
	time.Sleep(time.Duration(b.N))
	b.StopTimer()
	seconds := time.Since(began).Seconds()
	c := counts(b, g).Minus(before)
	for name, v := range map[string]float64{
		"SYN/s": float64(c.SYNs), "unsent/s": float64(c.Unsent), "lost/s": float64(c.Lost), "SYNACK/s": float64(c.SYNACKs),
		"answers/s": float64(c.Answered()), "resets/s": float64(c.Resets), "repeated/s": float64(c.Repeated),
		"%server-core": 100 * (servers.Busy() - server).Seconds(), "%client-core": 100 * (clients.Busy() - client).Seconds(),
		"%user": 100 * (userTime(b) - cpu).Seconds(),
	} {
		b.ReportMetric(v/seconds, name)
	}
	b.ReportMetric(0, "ns/op")
	nettest.Check(b, g.Stop())
}

func meter(b *testing.B, cpu int) *busy.Meter {
	b.Helper()
	m, err := busy.Start(cpu)
	nettest.Check(b, err)
	b.Cleanup(func() {
		if err := m.Close(); err != nil {
			b.Error(err)
		}
	})
	return m
}

// userTime is this process's time in user mode.
func userTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	nettest.Check(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano())
}
