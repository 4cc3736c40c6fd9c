// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"narthex/internal/api"
	"narthex/internal/lab"
	"narthex/test/nettest"
)

// fullPolicy bounds connections at once to services of every kind: one whose requests wait, one whose connections do, and
// one without a waiting room.
const fullPolicy = `
version: 1
services:
  - {name: web, listen: "*:80"}
  - {name: lines, listen: "*:8080", protocol: tcp, concurrency: 500}
  - {name: bare, listen: "*:8081", protocol: tcp, concurrency: unlimited}
connections:
  - {name: web, to: web, limits: [{at_once: %[1]d, per: {v4: 24, v6: 48}}, {rate: 100000/s}]}
  - {name: lines, to: lines, limits: [{rate: 100000/s}, {at_once: %[1]d, per: {v4: 24, v6: 48}}, {at_once: 1000}]}
  - {name: bare, to: bare, limits: [{at_once: %[1]d, per: {v4: 24, v6: 48}}]}
`

var fullPorts = map[string]uint16{"web": 80, "lines": 8080, "bare": 8081}

// shortly is how long who is let in may wait for that.
const shortly = 10 * time.Second

// full is nginx behind one of the services.
type full struct {
	*crowd
	service string
	nginx   *lab.Server
}

func newFull(t *testing.T, most int) *full {
	t.Helper()
	r := newRuled(t, fullPorts)
	f := &full{crowd: &crowd{r, r.at(t, "web", false), fmt.Sprintf(fullPolicy, most)}}
	f.serve()
	r.enforce(f.policy)
	return f
}

// counter is a server that knows how many connections it has.
type counter struct{ open, most atomic.Int64 }

// count serves the address. Nobody is counted who is not accepted, and nobody is any more whose connection is closed next.
func (f *full) count() *counter {
	f.scene.t.Helper()
	var listener net.Listener
	nettest.Check(f.scene.t, f.v4.server.Do(func() (err error) {
		listener, err = net.Listen("tcp4", f.to.String())
		return err
	}))
	f.scene.t.Cleanup(func() { listener.Close() })
	c := &counter{}
	go func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			n := c.open.Add(1)
			c.most.Store(max(c.most.Load(), n))
			go c.serve(conn)
		}
	}()
	return c
}

func (c *counter) serve(conn net.Conn) {
	for r := bufio.NewReader(conn); ; {
		if q, err := http.ReadRequest(r); err != nil {
			break
		} else if err := q.Body.Close(); err != nil {
			break
		}
		if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine"); err != nil {
			break
		}
	}
	time.Sleep(5 * time.Millisecond) // works on, also for who has gone
	c.open.Add(-1)
	conn.Close()
}

func (f *full) serve() {
	f.ruled.t.Helper()
	cfg := lab.NginxConfig{Server: "location / { return 200 fine; }"}
	for service := range fullPorts {
		cfg.Listen = append(cfg.Listen, f.at(f.ruled.t, service, false).to)
	}
	var err error
	f.nginx, err = f.v4.server.StartNginx(cfg)
	nettest.Check(f.ruled.t, err)
	f.ruled.t.Cleanup(func() { _ = f.nginx.Close() })
}

// of is the same as a subtest has it, of one service.
func (f *full) of(t *testing.T, service string) *full {
	return &full{&crowd{f.ruled, f.at(t, service, false), f.policy}, service, f.nginx}
}

// eachService runs a subtest for each service.
func eachService(t *testing.T, f *full, run func(*full)) {
	for _, service := range []string{"web", "lines", "bare"} {
		t.Run(service, func(t *testing.T) { run(f.of(t, service)) })
	}
}

// holds is how many places explain says the clients of a kind have.
func (f *full) holds(w who) int {
	f.scene.t.Helper()
	args := f.command("explain", "--json", "--from", f.addr(w).String(), "--to", f.to.String())
	var e api.ExplainResult
	if err := json.Unmarshal([]byte(must(f.scene.t, args...)), &e); err != nil {
		f.scene.t.Fatal(err)
	}
	for _, d := range e.Decisions {
		for _, l := range d.Limits {
			if l.AtOnce > 0 && l.Per != "rule" && d.Service == f.service {
				return int(l.AtOnce) - int(l.Bucket.Tokens)
			}
		}
	}
	f.scene.t.Fatalf("explain says of no such limit: %+v", e)
	return 0
}

// comesTo waits until the clients of a kind have so many places.
func (f *full) comesTo(w who, want int) {
	f.scene.t.Helper()
	got := 0
	if !within(patience, func() bool { got = f.holds(w); return got == want }) {
		f.scene.t.Errorf("%s: %d places are taken, want %d", w, got, want)
	}
}

// sockets is how many connections the server's stack has for it, accepted or not.
func (f *full) sockets() int {
	out, err := f.scene.server.Command("ss", "-Htn", "state", "established", "state", "close-wait", "sport", "=", fmt.Sprint(":", f.to.Port())).Output()
	if err != nil {
		return -1
	}
	return strings.Count(string(out), "\n")
}

// watch looks at the number of connections until the function that it returns is called, which says the most there were.
func (f *full) watch() func() int {
	most, done := 0, make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				most = max(most, f.sockets())
			}
		}
	})
	return func() int { close(done); watching.Wait(); return most }
}

// dials connects. Nil: nobody answers the SYN.
func (f *full) dials(w who, timeout time.Duration) (conn net.Conn) {
	_ = f.scene.client.Do(func() (err error) {
		conn, err = dial(f.addr(w), f.to, timeout)
		return err
	})
	return conn
}

// opens connects and asks. Nil: nobody answers for a while.
func (f *full) opens(w who, timeout time.Duration) net.Conn {
	conn := f.dials(w, timeout)
	if conn == nil {
		return nil
	}
	_ = conn.SetDeadline(time.Now().Add(timeout))
	_, err := io.WriteString(conn, getRequest(f.to.String(), "/"))
	if err == nil {
		var answer *http.Response
		if answer, err = http.ReadResponse(bufio.NewReader(conn), nil); err == nil && answer.StatusCode == http.StatusOK {
			return conn
		}
	}
	reset(conn)
	return nil
}

func reset(conn net.Conn) {
	if c, err := tcpConn(conn); err == nil {
		_ = c.SetLinger(0)
	}
	_ = conn.Close()
}

// Of 150 clients of a network that connect at the same time 100 are let in, no more at any moment, and each that leaves
// makes room for another.
func TestConnectionsAtOnce(t *testing.T) {
	t.Parallel()
	const most, clients = 100, 150
	f := newFull(t, most)
	eachService(t, f, func(f *full) {
		t := f.scene.t
		peak := f.watch()
		var mu sync.Mutex
		var open []net.Conn
		var all sync.WaitGroup
		for range clients {
			all.Go(func() {
				if conn := f.opens(gold, shortly); conn != nil {
					mu.Lock()
					open = append(open, conn)
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if len(open) != most {
			t.Errorf("%d of %d clients were answered, want %d", len(open), clients, most)
		}
		f.comesTo(gold, most)
		if f.opens(gold, time.Second) != nil {
			t.Error("one more was answered")
		}
		other := f.opens(bronze, shortly)
		if other == nil {
			t.Fatal("nobody of another network was answered")
		}
		f.comesTo(bronze, 1)
		if got := peak(); got > most+1 {
			t.Errorf("the server had %d connections at once, of %d of one network and one of another", got, most)
		}
		_ = other.Close()
		f.comesTo(bronze, 0)
		for i, conn := range open {
			if i%2 == 0 {
				reset(conn)
			} else {
				_ = conn.Close()
			}
			if i == 0 {
				f.comesTo(gold, most-1)
				again := f.opens(gold, shortly)
				if again == nil {
					t.Error("who came after one had left was not answered")
					continue
				}
				_ = again.Close()
			}
		}
		f.comesTo(gold, 0)
	})
	if status := must(t, f.command("status")...); !strings.Contains(status, "100 at once") {
		t.Errorf("status says:\n%s", status)
	}
}

// Who only seems to connect has no place, and who goes without a word has none for long.
func TestConnectionsAtOnceOfHandshakes(t *testing.T) {
	t.Parallel()
	f := newFull(t, 2)
	raw := nettest.Sender(t, f.v4.client, lab.Dev)
	eachService(t, f, func(f *full) {
		t := f.scene.t
		port := uint16(20000)
		sendSYNs(t, f.rig, raw, f.to, 300, func(syn *lab.SYN) {
			port++
			syn.From = netip.AddrPortFrom(f.numbered(gold, 77), port)
		})
		half, forged, whole := f.peer(gold, 5000), f.peer(gold, 5001), f.peer(gold, 5002)
		for _, p := range []*lab.Peer{half, forged, whole} {
			nettest.Check(t, p.SendSYN())
			_, err := p.AwaitSYNACK(patience)
			nettest.Check(t, err)
		}
		nettest.Check(t, forged.SendSegment(lab.Segment{Seq: forged.Next, Ack: forged.Ack + 9, ACK: true}))
		for range 3 {
			nettest.Check(t, whole.SendACK())
		}
		f.comesTo(gold, 1)
		nettest.Check(t, half.SendACK())
		f.comesTo(gold, 2)
		if conn := f.opens(gold, time.Second); conn != nil {
			t.Error("a third was answered")
		}
		for _, p := range []*lab.Peer{half, whole} {
			nettest.Check(t, p.SendRST())
		}
		f.comesTo(gold, 0)
	})
}

// Places outlive the daemon, reloads and the server.
func TestConnectionsAtOnceOutliveTheDaemon(t *testing.T) {
	t.Parallel()
	f := newFull(t, 4)
	var open [3][]net.Conn
	services := []string{"web", "lines", "bare"}
	each := func(run func(i int, f *full)) {
		for i, service := range services {
			run(i, f.of(t, service))
		}
	}
	enters := func(i int, f *full) {
		conn := f.opens(gold, shortly)
		if conn == nil {
			t.Fatalf("%s: nobody is answered", f.service)
		}
		open[i] = append(open[i], conn)
	}
	each(func(i int, f *full) {
		for range 4 {
			enters(i, f)
		}
		f.comesTo(gold, 4)
	})
	f.stop(syscall.SIGKILL)
	each(func(i int, f *full) {
		if f.opens(gold, time.Second) != nil {
			t.Errorf("%s: without the daemon one more was answered", f.service)
		}
		_ = open[i][0].Close()
		reset(open[i][1])
		open[i] = open[i][2:]
		enters(i, f)
	})
	f.start()
	each(func(_ int, f *full) { f.comesTo(gold, 3) })
	f.reload(fmt.Sprintf(fullPolicy, 3))
	each(func(i int, f *full) {
		f.comesTo(gold, 3)
		if f.opens(gold, time.Second) != nil {
			t.Errorf("%s: one more was answered than are allowed since", f.service)
		}
		_ = open[i][0].Close()
		open[i] = open[i][1:]
		f.comesTo(gold, 2)
		enters(i, f)
	})
	f.reload("version: 1\nservices: [{name: bare, listen: \"*:8081\", protocol: tcp, concurrency: unlimited}]\n")
	each(func(i int, _ *full) { reset(open[i][0]) })
	f.reload(f.policy) // whose rules are new ones: they know of nobody
	each(func(i int, f *full) {
		f.comesTo(gold, 0)
		for _, conn := range open[i][1:] { // which gives back the places of before, and no others
			_ = conn.Close()
		}
		open[i] = nil
		enters(i, f)
		f.comesTo(gold, 1)
	})
	must(t, f.command("set", "connections.bare.limits.1.at_once", "1")...)
	if f.of(t, "bare").opens(gold, time.Second) != nil {
		t.Error("one was answered in spite of the override")
	}
	nettest.Check(t, f.nginx.Close())
	each(func(_ int, f *full) { f.comesTo(gold, 0) })
	f.serve()
	each(enters)
}

// Clients that do what they can to gain places, or to lose some, never are more at once.
func TestConnectionsAtOnceOfHostileClients(t *testing.T) {
	t.Parallel()
	const most = 3
	f := newFull(t, most)
	nettest.Check(t, f.nginx.Close())
	eachService(t, f, func(f *full) {
		server := f.count()
		var all sync.WaitGroup
		var answered atomic.Int64
		for i := range 16 {
			all.Go(func() {
				dice := rand.New(rand.NewPCG(uint64(i), 2))
				for range 25 {
					conn := f.dials(gold, 1500*time.Millisecond)
					if conn == nil {
						continue
					}
					text := getRequest(f.to.String(), "/")
					patience := 5 * time.Second
					if dice.IntN(8) > 0 { // its request is never whole
						text, patience = text[:len(text)/2+dice.IntN(len(text)/2)], 50*time.Millisecond
					}
					_, _ = io.WriteString(conn, text)
					time.Sleep(time.Duration(dice.IntN(20)) * time.Millisecond)
					if dice.IntN(2) == 0 {
						_ = conn.SetReadDeadline(time.Now().Add(patience))
						if n, _ := conn.Read(make([]byte, 9)); n > 0 {
							answered.Add(1)
						}
					}
					if dice.IntN(2) == 0 {
						reset(conn)
					}
					conn.Close()
				}
			})
		}
		all.Wait()
		if got := server.most.Load(); got > most || answered.Load() == 0 {
			f.scene.t.Errorf("the server had %d connections at once, of %d that it may, and answered %d times", got, most, answered.Load())
		}
		f.comesTo(gold, 0)
	})
}

// placesTable is what `narthex table list at_once` says, a line for each who has places.
func (c *crowd) placesTable(args ...string) (lines []string) {
	c.scene.t.Helper()
	args = append([]string{"table", "list", "at_once", "--json"}, args...)
	var t api.Table
	if err := json.Unmarshal([]byte(narthex(c.scene.t, c.command(args...)...).stdout), &t); err != nil {
		c.scene.t.Fatal(err)
	}
	for _, p := range t.AtOnce {
		lines = append(lines, fmt.Sprintf("%s %s: %d of %d of %q", p.Of, p.Rule, p.Taken, p.AtOnce, p.Client))
	}
	slices.Sort(lines)
	return lines
}

// lists fails unless the table comes to say what it should.
func (c *crowd) lists(want []string, args ...string) {
	c.scene.t.Helper()
	var got []string
	if !within(patience, func() bool {
		got = c.placesTable(args...)
		return slices.Equal(got, want)
	}) {
		c.scene.t.Errorf("narthex table list at_once %q says %q, want %q", args, got, want)
	}
}

// `narthex table list at_once` says who has how many of what there may be at once.
func TestTableAtOnce(t *testing.T) {
	t.Parallel()
	t.Run("requests", func(t *testing.T) {
		t.Parallel()
		c := newCrowd(t, "unlimited", "60s")
		c.lists(nil)
		all := []*visitor{c.asks(gold, "/wait?for=a"), c.asks(gold, "/wait?for=a"), c.asks(bronze, "/wait?for=a")}
		g, b := c.addr(gold).String(), c.addr(bronze).String()
		of := func(n int, client string) string {
			return fmt.Sprintf("requests heavy.limits.1: %d of 2 of %q", n, client)
		}
		c.lists([]string{of(1, b), of(2, g), `requests heavy.limits.2: 3 of 3 of ""`})
		c.lists([]string{of(1, b), `requests heavy.limits.2: 3 of 3 of ""`}, b)
		c.letGo("a")
		for _, v := range all {
			v.wants(http.StatusOK)
		}
		c.lists(nil)
		if r := narthex(t, c.command("table", "clear", "at_once", "--all")...); r.code == 0 || !strings.Contains(r.stderr, "come back") {
			t.Errorf("places were cleared: %+v", r)
		}
	})
	t.Run("connections", func(t *testing.T) {
		t.Parallel()
		f := newFull(t, 3)
		f.lists(nil)
		var all []net.Conn
		for _, service := range []string{"web", "bare", "bare"} {
			v := f.at(t, service, false).visit(gold)
			v.get("/")
			v.wants(http.StatusOK)
			all = append(all, v.conn)
		}
		prefix, _ := f.addr(gold).Prefix(24)
		f.lists([]string{fmt.Sprintf("connections bare.limits.1: 2 of 3 of %q", prefix), fmt.Sprintf("connections web.limits.1: 1 of 3 of %q", prefix)})
		for _, c := range all {
			c.Close()
		}
		f.lists(nil)
	})
}
