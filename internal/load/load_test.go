// SPDX-License-Identifier: Apache-2.0

package load_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"narthex/internal/lab"
	"narthex/internal/load"
	"narthex/test/nettest"
)

// starter is a closed or an open loop.
type starter interface {
	Start(context.Context) (*load.Run, error)
}

// long is a duration that no test waits for.
const long = load.MaxDuration

// run runs clients until a request had the given outcome and some more could have, and
// checks that the report adds up.
func run(t *testing.T, s starter, until load.Outcome) *load.Report {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := s.Start(ctx)
	nettest.Check(t, err)
	for r.Total().Outcomes[until] == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond)
	cancel()
	report, err := r.Wait()
	nettest.Check(t, err)
	checkSums(t, report)
	return report
}

// checkSums holds that every request has one outcome.
func checkSums(t *testing.T, r *load.Report) {
	t.Helper()
	var ended uint64
	for _, n := range r.Outcomes {
		ended += n
	}
	if ended != r.Begun {
		t.Errorf("%d requests begun, %d ended: %v", r.Begun, ended, r.Outcomes)
	}
	if n := uint64(r.Times.TotalCount()); n != r.Outcomes[load.OK] {
		t.Errorf("%d times of %d requests that were OK", n, r.Outcomes[load.OK])
	}
}

// only fails the test if there are other outcomes than the given one, apart from
// requests that were under way at the end.
func only(t *testing.T, r *load.Report, want load.Outcome) {
	t.Helper()
	rest := r.Outcomes
	rest[want], rest[load.Unfinished] = 0, 0
	for o, n := range rest {
		if n > 0 {
			t.Errorf("%d requests were %q", n, load.Outcome(o))
		}
	}
}

// serve starts an HTTP server on loopback.
func serve(t *testing.T, h http.HandlerFunc) netip.AddrPort {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return netip.MustParseAddrPort(s.Listener.Addr().String())
}

// accept starts a server on loopback that does something with each connection and
// closes it.
func accept(t *testing.T, do func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	nettest.Check(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				do(conn.(*net.TCPConn))
				conn.Close()
			}()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}

func TestClosedLoop(t *testing.T) {
	t.Run("one request per connection", func(t *testing.T) {
		r := closedLoop(t, false)
		if r.Connected < r.Outcomes[load.OK] {
			t.Errorf("%d connections for %d requests", r.Connected, r.Outcomes[load.OK])
		}
	})
	t.Run("keep-alive", func(t *testing.T) {
		if r := closedLoop(t, true); r.Connected != 4 {
			t.Errorf("%d connections of 4 clients that keep theirs", r.Connected)
		}
	})
}

// closedLoop runs 4 clients against a server that answers only what they should ask.
func closedLoop(t *testing.T, keepAlive bool) *load.Report {
	t.Helper()
	var served atomic.Uint64
	target := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/file" || r.Header.Get("X-Class") != "gold" {
			w.WriteHeader(http.StatusNotFound)
		}
		served.Add(1)
		w.Header().Set("Content-Length", strconv.Itoa(lab.FileBytes))
		_, _ = w.Write(make([]byte, lab.FileBytes))
	})
	r := run(t, load.Closed{
		Client:    load.Client{Target: target, Path: "/file", Header: "X-Class: gold\r\n", Duration: long},
		Clients:   4,
		KeepAlive: keepAlive,
	}, load.OK)
	only(t, r, load.OK)
	if n := r.Statuses[200]; n != r.Outcomes[load.OK] {
		t.Errorf("%d answers 200 of %v", n, r.Outcomes)
	}
	if n, ok := served.Load(), r.Outcomes[load.OK]; n < ok || n > r.Begun {
		t.Errorf("served %d requests of %d begun and %d OK", n, r.Begun, ok)
	}
	if r.Median() <= 0 || r.Rate() <= 0 || r.Quantile(1) < r.Median() {
		t.Errorf("median %v, maximum %v, %v/s", r.Median(), r.Quantile(1), r.Rate())
	}
	return r
}

func TestServerThatClosesKeptConnections(t *testing.T) {
	target := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		_, _ = w.Write([]byte("x"))
	})
	r := run(t, load.Closed{Client: load.Client{Target: target, Duration: long}, Clients: 2, KeepAlive: true}, load.OK)
	only(t, r, load.OK)
	if r.Connected < r.Outcomes[load.OK] {
		t.Errorf("%d connections for %d requests", r.Connected, r.Outcomes[load.OK])
	}
}

func TestThink(t *testing.T) {
	target := serve(t, func(http.ResponseWriter, *http.Request) {})
	r := run(t, load.Closed{Client: load.Client{Target: target, Duration: long}, Clients: 3, Think: time.Hour}, load.OK)
	if r.Begun != 3 {
		t.Errorf("%d requests of 3 clients that think for an hour", r.Begun)
	}
}

func TestOpenLoop(t *testing.T) {
	target := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("x")) })
	c := load.Client{Target: target, Duration: long, Record: true}
	r := run(t, load.Open{Client: c, Rate: 500, Burst: 10}, load.OK)
	only(t, r, load.OK)
	// One burst at the start and one every 20 ms; a busy machine can only be late.
	if most := uint64(r.Elapsed/(20*time.Millisecond)+1) * 10; r.Begun > most || r.Begun%10 != 0 {
		t.Errorf("%d connections begun, want bursts of 10 and at most %d", r.Begun, most)
	}
	if len(r.Events) != int(r.Begun) {
		t.Errorf("%d events of %d connections", len(r.Events), r.Begun)
	}
	for _, e := range r.Events {
		if e.Outcome == load.OK && (e.Status != 200 || e.Begun < 0 || e.Connected < e.Begun || e.Ended < e.Connected) {
			t.Errorf("impossible event: %+v", e)
		}
	}

	r = run(t, load.Open{Client: c, Rate: 500, ConnectOnly: true}, load.OK)
	only(t, r, load.OK)
	if r.Connected != r.Outcomes[load.OK] || len(r.Statuses) != 0 {
		t.Errorf("connected %d of %v, answers %v; want no answers", r.Connected, r.Outcomes, r.Statuses)
	}
}

func TestOpenLoopIsBounded(t *testing.T) {
	target := accept(t, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
	r := run(t, load.Open{Client: load.Client{Target: target, Duration: long}, Rate: 500, MaxOpen: 5}, load.Unsent)
	if r.Outcomes[load.Unfinished] != 5 || r.Outcomes[load.Unsent] != r.Begun-5 {
		t.Errorf("outcomes %v, want 5 unfinished and the rest unsent", r.Outcomes)
	}
}

func TestOutcomes(t *testing.T) {
	silent := func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) }
	says := func(text string) func(*net.TCPConn) {
		return func(c *net.TCPConn) {
			_, _ = c.Read(make([]byte, 4096))
			_, _ = c.Write([]byte(text))
		}
	}
	reset := func(c *net.TCPConn) {
		_, _ = c.Read(make([]byte, 4096))
		_ = c.SetLinger(0)
	}
	for _, c := range []struct {
		want   load.Outcome
		server func(*net.TCPConn)
	}{
		{load.NoAnswer, silent},
		{load.Reset, reset},
		{load.Cut, says("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfour")},
		{load.Cut, says("HTTP/1.1 200 OK\r\n")},
		{load.OK, says("HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n")},
		{load.OtherStatus, says("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")},
		{load.Failed, says("SSH-2.0-OpenSSH_9.2\r\n\r\n")},
	} {
		t.Run(c.want.String(), func(t *testing.T) {
			client := load.Client{Target: accept(t, c.server), Duration: long, Timeout: 50 * time.Millisecond}
			if c.want != load.NoAnswer {
				client.Timeout = time.Minute
			}
			only(t, run(t, load.Closed{Client: client, Clients: 2}, c.want), c.want)
		})
	}
}

func TestRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	nettest.Check(t, err)
	target := netip.MustParseAddrPort(l.Addr().String())
	nettest.Check(t, l.Close())
	r := run(t, load.Closed{Client: load.Client{Target: target, Duration: long}, Clients: 2}, load.Refused)
	only(t, r, load.Refused)
	if r.Connected != 0 {
		t.Errorf("%d connections to a closed port", r.Connected)
	}
}

func TestNoConnection(t *testing.T) {
	rig := nettest.Lab(t, 1)
	// The server does not forward and says nothing about it.
	nettest.Check(t, rig.Client.AddRoute(netip.MustParsePrefix("198.18.0.0/15"), rig.ServerV4))
	r := run(t, load.Closed{
		Client: load.Client{
			NS:             rig.Client,
			Target:         netip.MustParseAddrPort("198.18.0.1:80"),
			Duration:       long,
			ConnectTimeout: load.OneSYN,
		},
		Clients: 2,
	}, load.NoConnection)
	only(t, r, load.NoConnection)
}

func TestSourcesTakeTurns(t *testing.T) {
	rig := nettest.Lab(t, 3)
	s4, s6 := netip.AddrPortFrom(rig.ServerV4, 80), netip.AddrPortFrom(rig.ServerV6, 80)
	nettest.Nginx(t, rig.Server, s4, s6)
	for _, c := range []load.Client{
		{Target: s4, Sources: rig.ClientsV4},
		{Target: s6, Sources: rig.ClientsV6},
	} {
		c.NS, c.Duration, c.Record, c.Path = rig.Client, long, true, lab.NginxFile
		r := run(t, load.Closed{Client: c, Clients: 6}, load.OK)
		only(t, r, load.OK)
		used := map[netip.Addr]int{}
		for _, e := range r.Events {
			used[e.Source]++
		}
		for _, s := range c.Sources {
			// Requests take sources in turn, so that they differ by no more than one.
			if n := used[s]; n < int(r.Begun)/3 || n > int(r.Begun)/3+1 {
				t.Errorf("%s made %d of %d requests", s, n, r.Begun)
			}
		}
	}
}

func TestIntervalsAddUpToTheTotal(t *testing.T) {
	target := serve(t, func(http.ResponseWriter, *http.Request) {})
	r, err := load.Closed{Client: load.Client{Target: target, Duration: 200 * time.Millisecond}, Clients: 2}.Start(t.Context())
	nettest.Check(t, err)
	sum := r.Interval()
	for ended := false; !ended; {
		select {
		case <-r.Done():
			ended = true
		case <-time.After(20 * time.Millisecond):
		}
		sum.Add(r.Interval())
	}
	total, err := r.Wait()
	nettest.Check(t, err)
	checkSums(t, total)
	if sum.Begun != total.Begun || sum.Outcomes != total.Outcomes || sum.Times.TotalCount() != total.Times.TotalCount() {
		t.Errorf("intervals add up to %d begun, %v; the total is %d, %v", sum.Begun, sum.Outcomes, total.Begun, total.Outcomes)
	}
	if sum.Elapsed != total.Elapsed {
		t.Errorf("intervals add up to %v, the total to %v", sum.Elapsed, total.Elapsed)
	}
}

func TestContextEndsTheRun(t *testing.T) {
	target := accept(t, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
	ctx, cancel := context.WithCancel(t.Context())
	r, err := load.Closed{Client: load.Client{Target: target, Duration: load.MaxDuration}, Clients: 2}.Start(ctx)
	nettest.Check(t, err)
	cancel()
	report, err := r.Wait()
	nettest.Check(t, err)
	checkSums(t, report)
}

func TestRefusesWhatIsNotSafe(t *testing.T) {
	loopback := netip.MustParseAddrPort("127.0.0.1:80")
	good := load.Client{Target: loopback, Duration: long}
	elsewhere, endless, mixed, nowhere := good, good, good, good
	elsewhere.Target = netip.MustParseAddrPort("192.0.2.1:80")
	endless.Duration = load.MaxDuration + 1
	mixed.Sources = []netip.Addr{netip.IPv6Loopback()}
	nowhere.Target = netip.AddrPort{}
	for _, c := range []struct {
		clients starter
		want    string
	}{
		{load.Closed{Client: elsewhere, Clients: 1}, "not a loopback address"},
		{load.Closed{Client: endless, Clients: 1}, "cannot run for"},
		{load.Closed{Client: mixed, Clients: 1}, "cannot reach"},
		{load.Closed{Client: nowhere, Clients: 1}, "no target"},
		{load.Closed{Client: good}, "at least one"},
		{load.Open{Client: good}, "no rate"},
		{load.Open{Client: elsewhere, Rate: 1}, "not a loopback address"},
	} {
		if _, err := c.clients.Start(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q in it", c.clients, err, c.want)
		}
	}
}
