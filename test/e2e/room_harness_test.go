// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"narthex/internal/api"
	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

// roomPolicy is a policy with one service that has a waiting room. Fields are fragments of
// YAML mappings.
type roomPolicy struct {
	// beside name and listen; "concurrency: 1" if empty. Nobody is rejected for max_wait in a
	// test that does not set it, however slow the machine is.
	service      string
	gold, bronze string // beside name and priority
}

func (p roomPolicy) String() string {
	service := p.service
	if !strings.Contains(service, "concurrency") {
		service = join("concurrency: 1", service)
	}
	switch {
	case strings.Contains(service, "max_wait"):
	case strings.Contains(service, "queue: {"):
		service = strings.Replace(service, "queue: {", "queue: {max_wait: 20s, ", 1)
	default:
		service = join(service, "queue: {max_wait: 20s}")
	}
	return fmt.Sprintf(`
version: 1
services: [{%s}]
classes:
  - {%s}
  - {%s}
connections:
  - {name: gold, from: [10.77.2.0/24, 127.0.2.0/24, "fd77::2:0/112"], class: gold}
  - {name: bronze, from: [10.77.3.0/24, 127.0.3.0/24, "fd77::3:0/112"], class: bronze}
  - {name: free, from: [10.77.4.0/24, 127.0.4.0/24, "fd77::4:0/112"], action: pass}
`,
		join(`name: web, listen: ["*:80"]`, service),
		join("name: gold, priority: 1", p.gold),
		join("name: bronze, priority: 2", p.bronze))
}

func join(a, b string) string {
	if b == "" {
		return a
	}
	return a + ", " + b
}

// who is a kind of client; its number is part of its addresses.
type who int

const (
	gold   who = 2
	bronze who = 3
	free   who = 4 // goes by every control
)

func (w who) String() string { return [...]string{gold: "gold", bronze: "bronze", free: "free"}[w] }

// wire is what lies between clients and server.
type wire string

const (
	plain wire = "plain"
	vlan  wire = "VLAN"
	lo    wire = "lo"
)

// scene is a server and its clients at a place.
type scene struct {
	*place
	network // of its clients
	t       *testing.T
	to      netip.AddrPort // of the service
	tell    netip.AddrPort // of the origin, past the gate
	cfg     config         // of the origin, if it is one
	servers []*lab.Server
	gone    []who // by vanishing
	changed bool  // something is not as it was before
}

// config is how an origin runs.
type config origin.Config

// speaks is what a client of the origin has to.
func (c config) speaks() string {
	switch {
	case c.Lines:
		return "lines"
	case c.TLS:
		return "tls"
	}
	return "http"
}

// counter reads a counter of the server's kernel.
func (s *scene) counter(name string) string {
	s.t.Helper()
	out, err := s.server.Command("nstat", "-asz", name).CombinedOutput()
	fields := strings.Fields(string(out))
	if err != nil || len(fields) < 3 {
		s.t.Fatalf("nstat: %q, %v", out, err)
	}
	return fields[len(fields)-2]
}

// sharedScene finds a place where others have been and will be. No server is there, but maybe a
// daemon, with the arguments.
func sharedScene(t *testing.T, w wire, v6 bool, args ...string) *scene {
	t.Helper()
	nettest.Root(t)
	p, err := takePlace(w, v6, args)
	nettest.Check(t, err)
	return sceneAt(t, p)
}

// newScene makes a place of its own. Nobody is there.
func newScene(t *testing.T, w wire, v6 bool) *scene {
	t.Helper()
	nettest.Root(t)
	p, err := newPlace(w, v6, nil)
	nettest.Check(t, err)
	s := sceneAt(t, p)
	s.changed = true
	return s
}

func sceneAt(t *testing.T, p *place) *scene {
	t.Helper()
	s := &scene{place: p, network: p.network, t: t, tell: netip.MustParseAddrPort("127.0.0.1:81")}
	server := netip.IPv6Loopback()
	switch {
	case p.wire == lo && !p.v6:
		server = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	case p.wire != lo && p.v6:
		server = p.rig.ServerV6
	case p.wire != lo:
		server = p.rig.ServerV4
	}
	s.to = netip.AddrPortFrom(server, 80)
	t.Cleanup(s.leave)
	capture(t, s.server)
	return s
}

// leave ends the servers, and keeps the place for the next scene.
func (s *scene) leave() {
	for _, server := range s.servers {
		if err := server.Close(); err != nil {
			s.t.Error(err)
		}
	}
	for len(s.gone) > 0 {
		s.comesBack(s.gone[0])
	}
	if s.changed {
		s.place.endsWith(s.t)
		return
	}
	leavePlace(s.t, s.place)
}

// capture writes what the test's server sends and receives to a file below the folder that
// NARTHEX_PCAP names, if it does, for looking at a failure with tcpdump -r.
func capture(t *testing.T, ns *lab.Namespace) {
	t.Helper()
	dir := os.Getenv("NARTHEX_PCAP")
	if dir == "" {
		return
	}
	file := filepath.Join(dir, strings.NewReplacer("/", "-", " ", "-").Replace(t.Name())+".pcap")
	cmd := ns.Command("tcpdump", "-Z", "root", "-i", "any", "-n", "-U", "--immediate-mode", "-w", file)
	nettest.Check(t, cmd.Start())
	time.Sleep(300 * time.Millisecond) // until it listens
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		_ = cmd.Wait()
	})
}

// addr is where clients of the kind come from.
func (s *scene) addr(w who) netip.Addr { return s.numbered(w, 1) }

// room is a scene with a daemon in front of its server.
type room struct {
	*scene
	*instance
	t *testing.T
	// refused says how many of a class, at the end, were refused before their request had
	// come whole, or because of what it was: they have not arrived, and were not held.
	refused map[who]uint64
	loose   bool // refused is not known
	blocks  int  // how often block was called
}

// enforce has a policy in force.
func (s *scene) enforce(p roomPolicy) *room {
	s.t.Helper()
	if s.wire == lo {
		p.service = join("interfaces: [lo]", p.service)
	}
	r := &room{scene: s, t: s.t, instance: s.enforces(s.t, p.String()), refused: map[who]uint64{}}
	s.t.Cleanup(func() {
		if s.t.Failed() && r.cmd != nil {
			s.t.Logf("status at the end:\n%s", narthex(s.t, r.command("status")...).stdout)
		}
	})
	return r
}

// blocked starts an origin and the daemon, and has one request in service that the origin
// answers when told to go for "first".
func blocked(t *testing.T, p roomPolicy, cfg origin.Config) (r *room, first *visitor) {
	t.Helper()
	s := sharedScene(t, plain, false)
	s.origin(cfg)
	r = s.enforce(p)
	first = r.visit(bronze)
	first.get("/wait?for=first")
	r.await(1, 0)
	return r, first
}

// frees answers the first request of blocked.
func (r *room) frees(first *visitor) {
	r.t.Helper()
	r.letGo("first")
	first.wants(http.StatusOK)
	r.await(0, 0)
}

// origin starts the server that does as it is told.
func (s *scene) origin(cfg origin.Config) *lab.Server {
	s.t.Helper()
	cfg.Listen, cfg.Control = []netip.AddrPort{s.to}, []netip.AddrPort{s.tell}
	s.cfg = config(cfg)
	return s.serve(origin.Start(s.server, cfg))
}

// go lets the origin answer those who wait for the name.
func (s *scene) letGo(name string) {
	s.t.Helper()
	_, err := get(s.server, s.tell, "/go?for="+name, netip.Addr{}, patience)
	nettest.Check(s.t, err)
}

// asked returns what the origin was asked for, in order.
func (s *scene) asked() (uris []string) {
	s.t.Helper()
	body, err := get(s.server, s.tell, "/asked", netip.Addr{}, patience)
	nettest.Check(s.t, err)
	var requests []origin.Request
	nettest.Check(s.t, json.Unmarshal(body, &requests))
	for _, r := range requests {
		if r.From.Addr().Unmap() != s.to.Addr() || s.wire == lo { // else who waited for the listener
			uris = append(uris, r.URI)
		}
	}
	return uris
}

// wasAsked compares what the origin was asked for, when it has had the time to read as much.
func (s *scene) wasAsked(want ...string) {
	s.t.Helper()
	var got []string
	within(patience, func() bool {
		got = s.asked()
		return len(got) >= len(want)
	})
	if !slices.Equal(got, want) {
		s.t.Errorf("the server was asked for %q, want %q", got, want)
	}
}

// reading is the status of the waiting room and of the memory behind it.
type reading struct {
	api.RoomStatus
	pool api.PoolStatus
}

// read reads the status.
func (r *room) read() reading {
	r.t.Helper()
	s := r.status()
	if len(s.Services) != 1 || s.Services[0].RoomStatus == nil || len(s.Services[0].RoomStatus.Classes) != 2 {
		r.t.Fatalf("the status has no waiting room with the two classes: %+v", s.Services)
	}
	return reading{*s.Services[0].RoomStatus, s.WaitingRoom}
}

// class returns what the status says of a class.
func (r *room) class(w who) api.RoomClassStatus {
	r.t.Helper()
	return r.read().class(w)
}

func (got reading) class(w who) api.RoomClassStatus {
	for _, c := range got.Classes {
		if c.Name == w.String() {
			return c
		}
	}
	return api.RoomClassStatus{}
}

// sum adds the counters of both classes.
func (got reading) sum() (all tally) {
	for _, c := range got.Classes {
		all.Arrived += c.Arrived
		all.Admitted += c.Admitted
		all.Held += c.Held
		all.Released += c.Released
		all.Served += c.Served
		all.GaveUp += c.GaveUp
		all.Lost += c.Lost
		all.Paused += c.Paused
		all.WouldHold += c.WouldHold
		for _, n := range c.Rejected {
			all.Rejected += n
		}
	}
	return all
}

// tally is what became of requests.
type tally struct {
	Arrived, Admitted, Held, Released, Served, GaveUp, Lost, Paused, WouldHold, Rejected uint64
}

// await waits until so many are in service and wait.
func (r *room) await(inService, waiting int) {
	r.t.Helper()
	var got reading
	there := within(patience, func() bool {
		got = r.read()
		return got.InService == inService && got.Waiting == waiting
	})
	if !there {
		r.t.Fatalf("after %v %d are in service and %d wait, want %d and %d; in all: %+v", patience,
			got.InService, got.Waiting, inService, waiting, got.sum())
	}
}

// gathers waits until the requests of so many have come in part.
func (r *room) gathers(n int) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("%d gather", n), func() bool { return r.read().Gathering == n })
}

// calm waits until nobody is in service or waits and nothing of them is left, checks that
// the counters add up, and asks once more.
func (r *room) calm() {
	r.t.Helper()
	r.await(0, 0)
	var got reading
	eventually(r.t, "all slots are free and nobody gathers", func() bool {
		got = r.read()
		return got.Gathering == 0 && got.pool.Slots > 0 && got.pool.FreeSlots == got.pool.Slots
	})
	r.addsUp(got)
	began := time.Now()
	r.once(gold)
	if took := time.Since(began); took > 100*time.Millisecond {
		r.t.Logf("the request after it took %v", took)
	}
	r.await(0, 0)
	r.addsUp(r.read())
}

// once has somebody ask on a connection of its own.
func (r *room) once(w who) {
	r.t.Helper()
	v := r.visit(w)
	switch r.cfg.speaks() {
	case "lines":
		v.hears(r.cfg.Banner)
		v.says("once")
	case "tls":
		v.secure()
		fallthrough
	default:
		v.get("/")
		v.wants(http.StatusOK)
	}
	v.conn.Close()
}

// addsUp checks what holds of the counters when nobody is in service or waits.
func (r *room) addsUp(got reading) {
	r.t.Helper()
	for _, c := range got.Classes {
		var rejected uint64
		for _, n := range c.Rejected {
			rejected += n
		}
		sums := []sum{{"served", c.Served + c.Paused, c.Admitted + c.Released}}
		if !r.loose {
			sums = append(sums, sum{"rejected", rejected + c.Admitted + c.Released + c.GaveUp, c.Arrived + r.refused[named(c.Name)]})
		}
		if !r.loose && r.refused[named(c.Name)] == 0 {
			atOnce := c.Rejected["queue_full"] + c.Rejected["no_slot"] + c.Rejected["no_flow"]
			sums = append(sums,
				sum{"arrived", c.Arrived, c.Admitted + c.Held + atOnce},
				sum{"held", c.Held, c.Released + c.GaveUp + rejected - atOnce})
		}
		for _, s := range sums {
			if s.got != s.want {
				c.Wait, c.Service = api.Durations{}, api.Durations{} // long to read
				r.t.Errorf("%s: %s: %d, the other counters say %d (%d refused): %+v", c.Name, s.what, s.got, s.want, r.refused[named(c.Name)], c)
			}
		}
	}
}

// sum is a sum of counters that has to be another one.
type sum struct {
	what      string
	got, want uint64
}

// named returns the kind of clients that a class is for.
func named(class string) who {
	if class == gold.String() {
		return gold
	}
	return bronze
}

// visitor is a client with one connection.
type visitor struct {
	t      *testing.T
	who    who
	host   string
	conn   net.Conn
	r      *bufio.Reader
	tunnel bool // what follows the head of an answer is no body
}

// visit connects.
func (s *scene) visit(w who) *visitor {
	s.t.Helper()
	return s.visitAs(w, 1)
}

// visitAs connects from the n-th address of a kind, which has to be there.
func (s *scene) visitAs(w who, n byte) *visitor {
	s.t.Helper()
	v, err := s.dialFrom(w, n, 0, 0)
	nettest.Check(s.t, err)
	s.t.Cleanup(func() { v.conn.Close() })
	return v
}

// tryVisit connects with a protocol; 0 is plain TCP.
func (s *scene) tryVisit(w who, proto int) (*visitor, error) { return s.dialFrom(w, 1, 0, proto) }

// dialFrom connects from a port of an address; 0 is any.
func (s *scene) dialFrom(w who, n byte, port uint16, proto int) (*visitor, error) {
	v := &visitor{t: s.t, who: w, host: s.to.String()}
	err := s.client.Do(func() (err error) {
		v.conn, err = dialProto(proto, netip.AddrPortFrom(s.numbered(w, n), port), s.to, patience)
		return err
	})
	if err != nil {
		return nil, err
	}
	_ = v.conn.SetDeadline(time.Now().Add(2 * patience))
	v.r = bufio.NewReader(v.conn)
	return v, nil
}

// send sends bytes as they are.
func (v *visitor) send(text string) {
	v.t.Helper()
	if _, err := io.WriteString(v.conn, text); err != nil {
		v.t.Fatalf("%s: send %.40q: %v", v.who, text, err)
	}
}

// get asks for a path and keeps the connection.
func (v *visitor) get(path string) {
	v.t.Helper()
	v.send(getRequest(v.host, path))
}

func getRequest(host, path string) string {
	return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, host)
}

// post sends a request with a body of known length.
func (v *visitor) post(path, body string) {
	v.t.Helper()
	v.send(postHead(v.host, path, len(body)) + body)
}

func postHead(host, path string, length int) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n", path, host, length)
}

// answer reads one answer.
func (v *visitor) answer() (*http.Response, []byte, error) {
	resp, err := http.ReadResponse(v.r, nil)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	if v.tunnel {
		return resp, nil, nil
	}
	body, err := io.ReadAll(resp.Body)
	return resp, body, err
}

// wants reads one answer, which must have the status, and returns it.
func (v *visitor) wants(status int) (*http.Response, []byte) {
	v.t.Helper()
	resp, body, err := v.answer()
	if err != nil {
		v.t.Fatalf("%s: no answer: %v", v.who, err)
	}
	if resp.StatusCode != status {
		v.t.Fatalf("%s: %s, want %d", v.who, resp.Status, status)
	}
	return resp, body
}

// isRejected reads the rejection, which says what to do and ends the connection cleanly.
func (v *visitor) isRejected() {
	v.t.Helper()
	resp, _ := v.wants(http.StatusServiceUnavailable)
	if resp.Header.Get("Retry-After") == "" || !resp.Close {
		v.t.Errorf("%s: the 503 has %v, close: %v; want Retry-After and Connection: close", v.who, resp.Header, resp.Close)
	}
	v.isClosed()
}

// isClosed waits for the end of the connection by a FIN.
func (v *visitor) isClosed() {
	v.t.Helper()
	if b, err := v.r.ReadByte(); err != io.EOF {
		v.t.Errorf("%s: byte %#x, error %v; want the connection closed", v.who, b, err)
	}
}

// isReset waits for the end of the connection by an RST.
func (v *visitor) isReset() {
	v.t.Helper()
	if _, _, err := v.answer(); !errors.Is(err, syscall.ECONNRESET) {
		v.t.Errorf("%s: %v, want the connection reset", v.who, err)
	}
}

// silent makes sure that no answer comes for a while.
func (v *visitor) silent(d time.Duration) {
	v.t.Helper()
	_ = v.conn.SetReadDeadline(time.Now().Add(d))
	if b, err := v.r.Peek(1); !errors.Is(err, unix.EAGAIN) && !isTimeout(err) {
		v.t.Errorf("%s: %q, error %v; want no answer yet", v.who, b, err)
	}
	_ = v.conn.SetReadDeadline(time.Now().Add(2 * patience))
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// reset closes with an RST.
func (v *visitor) reset() {
	v.t.Helper()
	conn, err := tcpConn(v.conn)
	nettest.Check(v.t, err)
	nettest.Check(v.t, conn.SetLinger(0))
	nettest.Check(v.t, conn.Close())
}

// halfClose sends a FIN and keeps reading.
func (v *visitor) halfClose() {
	v.t.Helper()
	conn, err := tcpConn(v.conn)
	nettest.Check(v.t, err)
	nettest.Check(v.t, conn.CloseWrite())
}

func tcpConn(c net.Conn) (*net.TCPConn, error) {
	for {
		under, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = under.NetConn()
	}
	conn, ok := c.(*net.TCPConn)
	if !ok {
		return nil, fmt.Errorf("%T is no TCP connection", c)
	}
	return conn, nil
}

// vanish takes the address of a kind of clients away: nothing that they send comes any
// more, and nothing reaches them.
func (s *scene) vanish(w who) {
	s.t.Helper()
	s.gone = append(s.gone, w)
	nettest.Check(s.t, s.client.RemoveAddr(lab.Dev, s.prefix(w)))
}

// comesBack gives a kind of clients its address again, if it has left by vanishing.
func (s *scene) comesBack(w who) {
	s.t.Helper()
	if i := slices.Index(s.gone, w); i >= 0 {
		s.gone = slices.Delete(s.gone, i, i+1)
		nettest.Check(s.t, s.client.AddAddr(lab.Dev, s.prefix(w)))
	}
}

// pause has a server answer nobody until it is resumed, which the end of the test does.
func (s *scene) pause(server *lab.Server) (resume func()) {
	s.t.Helper()
	nettest.Check(s.t, server.Signal(syscall.SIGSTOP))
	resume = sync.OnceFunc(func() {
		if err := server.Signal(syscall.SIGCONT); err != nil {
			s.t.Error(err)
		}
	})
	s.t.Cleanup(resume)
	return resume
}

// queue has somebody ask, and waits until so many wait.
func (r *room) queue(w who, path string, waiting int) *visitor {
	r.t.Helper()
	v := r.visit(w)
	v.get(path)
	r.await(1, waiting)
	return v
}

// roomServer is a server for tests that work with any.
type roomServer struct {
	name  string
	start func(s *scene) *lab.Server
}

// apacheWorkers is more than there are connections in the tests. With less, the event MPM
// closes idle connections just when they are used, and the prefork MPM serves them in turns.
const apacheWorkers = 48

// roomServers accept connections in different ways.
var roomServers = []roomServer{
	{"nginx", func(s *scene) *lab.Server {
		return s.serve(s.server.StartNginx(lab.NginxConfig{Listen: s.listen()}))
	}},
	{"apache-prefork", func(s *scene) *lab.Server {
		return s.serve(s.server.StartApache(lab.ApacheConfig{Listen: s.listen(), MPM: lab.Prefork, Workers: apacheWorkers}))
	}},
	{"apache-event", func(s *scene) *lab.Server {
		return s.serve(s.server.StartApache(lab.ApacheConfig{Listen: s.listen(), Workers: apacheWorkers}))
	}},
	{"haproxy", func(s *scene) *lab.Server {
		return s.serve(s.server.StartHAProxy(lab.HAProxyConfig{Listen: s.listen()}))
	}},
	{"go", func(s *scene) *lab.Server { return s.origin(origin.Config{}) }},
	{"python-1.1", func(s *scene) *lab.Server {
		return s.serve(s.server.StartPython(lab.PythonConfig{Listen: s.listen(), HTTP11: true}))
	}},
	{"python-1.0", func(s *scene) *lab.Server {
		return s.serve(s.server.StartPython(lab.PythonConfig{Listen: s.listen()}))
	}},
}

func (s *scene) listen() []netip.AddrPort { return []netip.AddrPort{s.to} }

func (s *scene) serve(server *lab.Server, err error) *lab.Server {
	s.t.Helper()
	nettest.Check(s.t, err)
	s.servers = append(s.servers, server)
	return server
}
