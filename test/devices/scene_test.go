// SPDX-License-Identifier: Apache-2.0

//go:build vm

package devices

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

// who is a kind of client; its number is part of its addresses.
type who byte

const (
	gold   who = 2
	bronze who = 3
)

func (w who) String() string { return map[who]string{gold: "gold", bronze: "bronze"}[w] }

// burst is how many made-up SYNs pass; a minute has to go by for one more.
const burst = 10

// policy has a place for one request, and lets others wait for as long as a slow machine may need for what comes meanwhile.
func policy(service string) string {
	return fmt.Sprintf(`
version: 1
services: [{name: web, listen: ["*:80"], concurrency: 1, queue: {max_wait: 30s}%s}]
classes: [{name: gold, priority: 1}, {name: bronze, priority: 2}]
connections:
  - {name: made-up, from: [198.18.0.0/15, "2001:db8:18::/48"], rate: 1/m, burst: %d}
  - {name: gold, from: [10.78.2.0/24, "fd78::2:0/112"], class: gold}
  - {name: bronze, from: [10.78.3.0/24, "fd78::3:0/112"], class: bronze}
`, service, burst)
}

// scene is a server and its clients, with some devices between them.
type scene struct {
	t                    *testing.T
	server, client       *lab.Namespace
	serverDev, clientDev string // the devices with the addresses
	port                 uint16 // that clients ask for
	in                   *instance
	visits               map[who]uint64 // connections so far, while there is a daemon
}

// newScene makes both namespaces, which are not connected.
func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{t: t, server: nettest.Namespace(t, "server"), client: nettest.Namespace(t, "client"), visits: map[who]uint64{}}
	s.serverDev, s.clientDev, s.port = lab.Dev, lab.Dev, 80
	// Devices get the addresses that a test gives them, and no link-local one, which counts, too.
	nettest.Check(t, s.server.Sysctl("ipv6/conf/default/addr_gen_mode", "1"))
	return s
}

// connect joins the namespaces by a veth pair whose ends have one name.
func (s *scene) connect(dev string) {
	s.t.Helper()
	nettest.Check(s.t, lab.Connect(lab.End{NS: s.server, Dev: dev}, lab.End{NS: s.client, Dev: dev}))
}

// run runs a command in a namespace.
func (s *scene) run(ns *lab.Namespace, command string) {
	s.t.Helper()
	args := strings.Fields(command)
	if out, err := ns.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v: %s", command, err, out)
	}
}

// both runs commands on both sides.
func (s *scene) both(commands ...string) {
	s.t.Helper()
	for _, ns := range []*lab.Namespace{s.server, s.client} {
		for _, command := range commands {
			s.run(ns, command)
		}
	}
}

var (
	serverV4 = netip.MustParseAddr("10.78.0.1")
	serverV6 = netip.MustParseAddr("fd78::1")
	// control is where the origin takes orders, past any gate.
	control = netip.MustParseAddrPort("127.0.0.1:81")
)

// address returns a client's address in the family of another.
func (w who) address(like netip.Addr) netip.Addr {
	if like.Is4() {
		return netip.AddrFrom4([4]byte{10, 78, byte(w), 1})
	}
	return netip.AddrFrom16([16]byte{0xfd, 0x78, 13: byte(w), 15: 1})
}

// address gives the devices addresses.
func (s *scene) address() {
	s.t.Helper()
	for _, addr := range []netip.Addr{serverV4, serverV6} {
		bits := map[bool]int{true: 16, false: 64}[addr.Is4()]
		nettest.Check(s.t, s.server.AddAddr(s.serverDev, netip.PrefixFrom(addr, bits)))
		for _, w := range []who{gold, bronze} {
			nettest.Check(s.t, s.client.AddAddr(s.clientDev, netip.PrefixFrom(w.address(addr), bits)))
		}
	}
}

// settle gives the devices addresses, starts the server, and waits until it is reached.
func (s *scene) settle() {
	s.t.Helper()
	s.address()
	_, err := origin.Start(s.server, origin.Config{
		Listen: []netip.AddrPort{netip.MustParseAddrPort("[::]:80")}, Control: []netip.AddrPort{control},
	})
	nettest.Check(s.t, err)
	s.reached()
}

// families are the addresses of the server.
func (s *scene) families() []netip.AddrPort {
	return []netip.AddrPort{netip.AddrPortFrom(serverV4, s.port), netip.AddrPortFrom(serverV6, s.port)}
}

// reached waits until the server answers without Narthex; a device may take a moment to forward.
func (s *scene) reached() {
	s.t.Helper()
	for _, to := range s.families() {
		var err error
		if !within(patience, func() bool {
			_, err = fetch(s.client, bronze.address(to.Addr()), to, "/", 2*time.Second)
			return err == nil
		}) {
			s.t.Fatalf("the server is not reached: %v", err)
		}
	}
}

// enforce starts the daemon, which has to police just these interfaces. A kernel without tcx has filters
// of traffic control in its place.
func (s *scene) enforce(text string, want map[string]datapath.Mode) {
	s.t.Helper()
	s.in = start(s.t, s.server, text)
	got := s.in.modes()
	for name, mode := range got {
		if mode == datapath.ModeTC {
			got[name] = datapath.ModeTCX
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		s.t.Errorf("attached to %v, want %v", got, want)
	}
}

// mac returns a device's hardware address, zeroes if it has none.
func (s *scene) mac(ns *lab.Namespace, dev string) net.HardwareAddr {
	s.t.Helper()
	mac, err := ns.MAC(dev)
	nettest.Check(s.t, err)
	if len(mac) == 0 {
		mac = make(net.HardwareAddr, 6)
	}
	return mac
}

// syns sends made-up SYNs over both families, of which a burst may pass.
func (s *scene) syns() {
	s.t.Helper()
	const each = 40
	src, dst := s.mac(s.client, s.clientDev), s.mac(s.server, s.serverDev)
	raw := nettest.Sender(s.t, s.client, s.clientDev)
	for _, to := range s.families() {
		for i := range byte(each) {
			from := netip.AddrFrom4([4]byte{198, 18, 0, i})
			if to.Addr().Is6() {
				from = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, 0x18, 14: i, 15: 1})
			}
			frame, err := lab.SYN{SrcMAC: src, DstMAC: dst, From: netip.AddrPortFrom(from, 4000), To: to, Seq: 1}.Frame()
			nettest.Check(s.t, err)
			nettest.Check(s.t, raw.Send(frame))
		}
	}
	s.in.counted("made-up", datapath.Counts{Passed: burst, Dropped: 2*each - burst})
}

// visitor is a client with one connection.
type visitor struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

// visit connects and asks for a path.
func (s *scene) visit(w who, to netip.AddrPort, path string) *visitor {
	s.t.Helper()
	conn, err := dial(s.client, w.address(to.Addr()), to, patience)
	nettest.Check(s.t, err)
	s.t.Cleanup(func() { conn.Close() })
	s.visits[w]++
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: devices\r\n\r\n", path)
	nettest.Check(s.t, err)
	nettest.Check(s.t, conn.SetReadDeadline(time.Now().Add(patience)))
	return &visitor{s.t, conn, bufio.NewReader(conn)}
}

// wants reads the answer, which must have the status.
func (v *visitor) wants(status int) *http.Response {
	v.t.Helper()
	resp, err := http.ReadResponse(v.r, nil)
	if err != nil {
		v.t.Fatalf("no answer from %s to %s: %v", v.conn.RemoteAddr(), v.conn.LocalAddr(), err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		v.t.Fatalf("half an answer: %v", err)
	}
	if resp.StatusCode != status {
		v.t.Fatalf("%s, want %d", resp.Status, status)
	}
	return resp
}

// isRejected reads the gate's answer, which ends the connection.
func (v *visitor) isRejected() {
	v.t.Helper()
	resp := v.wants(http.StatusServiceUnavailable)
	if resp.Header.Get("Retry-After") == "" {
		v.t.Errorf("the 503 has %v, not Retry-After", resp.Header)
	}
	if _, err := v.r.ReadByte(); err != io.EOF {
		v.t.Errorf("%v, want the connection closed", err)
	}
}

func dial(ns *lab.Namespace, from netip.Addr, to netip.AddrPort, timeout time.Duration) (conn net.Conn, err error) {
	d := net.Dialer{Timeout: timeout}
	if from.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	err = ns.Do(func() (err error) {
		conn, err = d.Dial("tcp", to.String())
		return err
	})
	return conn, err
}

// fetch asks for a path on a connection of its own.
func fetch(ns *lab.Namespace, from netip.Addr, to netip.AddrPort, path string, timeout time.Duration) ([]byte, error) {
	conn, err := dial(ns, from, to, timeout)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(timeout))
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: devices\r\nConnection: close\r\n\r\n", path); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// order tells the origin something.
func (s *scene) order(path string) []byte {
	s.t.Helper()
	body, err := fetch(s.server, netip.Addr{}, control, path, patience)
	nettest.Check(s.t, err)
	return body
}

// wasAsked compares what the origin has been asked for since the last time.
func (s *scene) wasAsked(want ...string) {
	s.t.Helper()
	var got []string
	within(patience, func() bool {
		var requests []origin.Request
		nettest.Check(s.t, json.Unmarshal(s.order("/asked"), &requests))
		got = nil
		for _, r := range requests {
			got = append(got, r.URI)
		}
		return len(got) >= len(want)
	})
	if !slices.Equal(got, want) {
		s.t.Errorf("the server was asked for %q, want %q", got, want)
	}
	s.order("/forget")
}

// await waits until so many are in service and wait.
func (s *scene) await(inService, waiting int) {
	s.t.Helper()
	var got api.ServiceStatus
	if !within(patience, func() bool {
		got = s.in.status().Services[0]
		return got.InService == inService && got.Waiting == waiting
	}) {
		s.t.Fatalf("%d are in service and %d wait, want %d and %d; %+v", got.InService, got.Waiting, inService, waiting, got)
	}
}

// queue has one request in service, one that waits, one of a better class that goes first, and one
// that waits for too long.
func (s *scene) queue(to netip.AddrPort) {
	s.t.Helper()
	name := strings.NewReplacer("[", "", "]", "", ":", "-").Replace(to.String())
	s.order("/forget")
	first := s.visit(bronze, to, "/wait?for="+name)
	s.await(1, 0)
	const maxWait = "services.web.queue.max_wait"
	s.in.set(maxWait, "2s")
	s.visit(bronze, to, "/late").isRejected()
	s.in.set(maxWait, "30s")
	second := s.visit(bronze, to, "/second")
	s.await(1, 1)
	better := s.visit(gold, to, "/better")
	s.await(1, 2)
	s.order("/go?for=" + name)
	first.wants(http.StatusOK)
	better.wants(http.StatusOK)
	second.wants(http.StatusOK)
	s.await(0, 0)
	s.wasAsked("/wait?for="+name, "/better", "/second")
}

// counts checks what queue leaves behind, over so many families.
func (s *scene) counts(families uint64) {
	s.t.Helper()
	var status api.Status
	if !within(patience, func() bool {
		status = s.in.status()
		return status.WaitingRoom.FreeSlots == status.WaitingRoom.Slots
	}) {
		s.t.Errorf("slots are left: %+v", status.WaitingRoom)
	}
	// A request that comes again while it is decided, as on a machine that is slow, may wait beside itself until
	// its answer begins.
	twice, gaveUp := status.Reasons["pipelined"].Passed, uint64(0)
	type counts struct{ Arrived, Admitted, Held, Released, Served, Rejected uint64 }
	for class, want := range map[string]counts{
		"gold":   {Arrived: 1, Held: 1, Released: 1, Served: 1},
		"bronze": {Arrived: 3, Admitted: 1, Held: 2, Released: 1, Served: 2, Rejected: 1},
	} {
		want = counts{
			want.Arrived * families, want.Admitted * families, want.Held * families,
			want.Released * families, want.Served * families, want.Rejected * families,
		}
		for _, c := range status.Services[0].Classes {
			if c.Name != class {
				continue
			}
			gaveUp += c.GaveUp
			got := counts{c.Arrived - c.GaveUp, c.Admitted, c.Held - c.GaveUp, c.Released, c.Served, 0}
			for _, n := range c.Rejected {
				got.Rejected += n
			}
			if got != want {
				s.t.Errorf("%s: %+v, want %+v", class, got, want)
			}
		}
	}
	if gaveUp != twice {
		s.t.Errorf("%d requests gave up, and %d waited beside themselves", gaveUp, twice)
	}
	for _, w := range []who{gold, bronze} {
		s.in.counted(w.String(), datapath.Counts{Passed: s.visits[w]})
	}
}

// protects checks that everything works, and that nothing is left of it.
func (s *scene) protects(text string, want map[string]datapath.Mode) {
	s.t.Helper()
	s.enforce(text, want)
	s.syns()
	for _, to := range s.families() {
		s.queue(to)
	}
	s.counts(uint64(len(s.families())))
	s.in.stop()
	s.reached()
}
