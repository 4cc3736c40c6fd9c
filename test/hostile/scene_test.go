// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/test/attack"
	"narthex/test/nettest"
)

// setting is what a scene is made of.
type setting struct {
	server    string
	v6        bool
	vlan      bool
	offloads  bool
	attackers int // by which of the two links they come
}

func (c setting) String() string {
	family, wire, offloads := "IPv4", "plain", "off"
	if c.v6 {
		family = "IPv6"
	}
	if c.vlan {
		wire = "VLAN"
	}
	if c.offloads {
		offloads = "on"
	}
	return fmt.Sprintf("%s/%s/%s/offloads=%s/link=%d", c.server, family, wire, offloads, c.attackers)
}

// rows meet each two values of two settings once. Any three of them meet each value.
var rows = []setting{
	{v6: false, vlan: false, offloads: true, attackers: 0},
	{v6: false, vlan: true, offloads: false, attackers: 1},
	{v6: true, vlan: false, offloads: false, attackers: 0},
	{v6: true, vlan: true, offloads: true, attackers: 1},
}

var servers = []string{"nginx", "apache-prefork", "go"}

// Limits of the policy.
const (
	concurrency = 4
	queueSize   = 64
)

// policy is what the gate goes by. Gold clients are those who work. Of the bronze ones one
// may be in service, so that a test can have more of them wait while gold ones are served.
// All others are the mob.
const policy = `
version: 1
services:
  - {name: web, listen: ["*:80"], concurrency: 4, queue: {size: 64, max_wait: 20s}}
  - {name: b5, listen: ["*:8005"], concurrency: 1, queue: {size: 8192, max_wait: 20s}}
  - {name: b128, listen: ["*:8128"], concurrency: 1, queue: {size: 8192, max_wait: 20s}}
  - {name: b4096, listen: ["*:12096"], concurrency: 1, queue: {size: 8192, max_wait: 20s}}
  - {name: tls, listen: ["*:443"], protocol: tls, concurrency: 4, queue: {max_wait: 20s}}
  - {name: tcp, listen: ["*:7007"], protocol: tcp, concurrency: 4, queue: {max_wait: 20s}}
classes:
  - {name: gold, priority: 1}
  - {name: bronze, priority: 2, max: 1}
  - {name: mob, priority: 3, max: 3}
connections:
  - {name: gold, from: [10.77.2.0/24, 10.78.2.0/24, "fd77::2:0/112", "fd78::2:0/112"], class: gold}
  - {name: bronze, from: [10.77.3.0/24, 10.78.3.0/24, "fd77::3:0/112", "fd78::3:0/112"], class: bronze}
`

// plain is the same where nothing matters of requests but how many are in service: flows have the short form.
var plain = strings.NewReplacer("concurrency: 4, queue: {size: 64", "concurrency: 64, queue: {size: 64", ", max: 1}", "}", ", max: 3}", "}").Replace(policy)

// who is a kind of client; its number is part of its addresses.
type who byte

const (
	gold   who = 2
	bronze who = 3
	mob    who = 5
)

// scene is a server with two interfaces, the namespaces of clients on the other end of each,
// and a daemon.
type scene struct {
	setting
	*instance
	t       *testing.T
	rig     *lab.Lab // of the first link
	ns      *lab.Namespace
	clients [2]*lab.Namespace
	devs    [2]string // of the server
	addrs   [2]netip.Addr
	tells   []netip.AddrPort // of origins, past the gate
	runs    int              // cases so far, to make names from
	started map[uint16]bool  // ports of more servers
	peers   []netip.Addr     // clients on the first link that no kernel knows
}

// newScene makes a scene, with everything in force.
func newScene(t *testing.T, c setting) *scene {
	t.Helper()
	s := &scene{setting: c, t: t, started: map[uint16]bool{}, rig: nettest.Lab(t, 1), devs: [2]string{lab.Dev, "eth1"}}
	s.ns = s.rig.Server
	s.clients = [2]*lab.Namespace{s.rig.Client, nettest.Namespace(t, "far")}
	nettest.Check(t, s.ns.Sysctl("ipv6/conf/all/keep_addr_on_down", "1"))
	nettest.Check(t, s.clients[1].PrepareClient())
	nettest.Check(t, lab.Connect(
		lab.End{NS: s.ns, Dev: "eth1", Addrs: []netip.Prefix{netip.MustParsePrefix("10.78.0.1/16"), netip.MustParsePrefix("fd78::1/64")}},
		lab.End{NS: s.clients[1], Dev: lab.Dev, Addrs: []netip.Prefix{netip.MustParsePrefix("10.78.1.1/16"), netip.MustParsePrefix("fd78::1:1/64")}},
	))
	for i, ns := range s.clients {
		for _, w := range []who{gold, bronze, mob} {
			nettest.Check(t, ns.AddAddr(lab.Dev, netip.PrefixFrom(s.addr(i, w, 1), s.bits())))
		}
		s.addrs[i] = s.addr(i, 0, 1)
		s.setOffloads(s.ns, s.devs[i])
		s.setOffloads(ns, lab.Dev)
	}
	s.serve(80, 0)
	s.instance = newInstance(t, s.ns, policy)
	s.start(binary)
	if c.vlan {
		for i, ns := range s.clients {
			nettest.Check(t, s.ns.TagFrames(s.devs[i], lab.VLANTag{ID: 10}))
			nettest.Check(t, ns.TagFrames(lab.Dev, lab.VLANTag{ID: 10}))
		}
	}
	return s
}

func (s *scene) setOffloads(ns *lab.Namespace, dev string) {
	s.t.Helper()
	for _, o := range []lab.Offload{lab.RxChecksum, lab.TxChecksum, lab.TSO, lab.GSO, lab.GRO, lab.TxVLAN, lab.RxVLAN} {
		nettest.Check(s.t, ns.SetOffload(dev, o, s.offloads))
	}
}

// addr is an address of a kind of clients on a link. Clients' kernels have number 1.
func (s *scene) addr(link int, w who, number byte) netip.Addr {
	if s.v6 {
		return netip.AddrFrom16([16]byte{0xfd, byte(0x77 + link), 13: byte(w), 15: number})
	}
	return netip.AddrFrom4([4]byte{10, byte(77 + link), byte(w), number})
}

func (s *scene) bits() int {
	if s.v6 {
		return 64
	}
	return 16
}

// link is what attackers come by.
func (s *scene) link(i int) attack.Link {
	l := attack.Link{Attacker: s.clients[i], Target: s.ns, TargetDev: s.devs[i]}
	l.Via4, l.Via6 = netip.AddrFrom4([4]byte{10, byte(77 + i), 1, 1}), netip.MustParseAddr(fmt.Sprintf("fd7%d::1:1", 7+i))
	return l
}

// to is the address of a service on a link.
func (s *scene) to(link int, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(s.addrs[link], port)
}

// madeUp are sources that no kernel has.
func (s *scene) madeUp() netip.Prefix {
	if s.v6 {
		return netip.MustParsePrefix("2001:db8:18::/64")
	}
	return netip.MustParsePrefix("198.18.0.0/15")
}

// apacheWorkers is more than there are connections that get to it: one that is in service no
// more because its client is silent has its worker still.
const apacheWorkers = 100

// backend answers what nginx and Apache pass on: requests for /wait.
const backend = "127.0.0.1:82"

// serve starts the scene's server on a port, with a listen backlog; 0 is its own.
func (s *scene) serve(port uint16, backlog int) {
	s.t.Helper()
	listen := []netip.AddrPort{s.to(0, port), s.to(1, port)}
	var err error
	switch s.server {
	case "go":
		_, err = origin.Start(s.ns, origin.Config{Listen: listen, Backlog: backlog, Control: s.control(), TLS: port == 443})
	case "nginx":
		_, err = s.ns.StartNginx(lab.NginxConfig{Listen: listen, Backlog: backlog, Backend: backend, TLS: port == 443})
	case "apache-prefork":
		_, err = s.ns.StartApache(lab.ApacheConfig{
			Listen: listen, MPM: lab.Prefork, Workers: apacheWorkers, Backlog: backlog, Backend: backend, IdleTimeout: time.Minute,
		})
	}
	nettest.Check(s.t, err)
	if s.server != "go" && len(s.tells) == 0 {
		_, err := origin.Start(s.ns, origin.Config{Listen: []netip.AddrPort{netip.MustParseAddrPort(backend)}, Control: s.control()})
		nettest.Check(s.t, err)
	}
}

// control is a new address of an origin past the gate.
func (s *scene) control() []netip.AddrPort {
	const first = 9000
	s.tells = append(s.tells, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(first+len(s.tells))))
	return s.tells[len(s.tells)-1:]
}

// ask asks the origins past the gate.
func (s *scene) ask(path string) (answers [][]byte) {
	s.t.Helper()
	for _, tell := range s.tells {
		v, err := s.dialIn(s.ns, netip.Addr{}, tell)
		nettest.Check(s.t, err)
		_, body, err := v.fetch(path)
		nettest.Check(s.t, err)
		answers = append(answers, body)
		v.conn.Close()
	}
	return answers
}

// letGo has those be answered who wait for the name.
func (s *scene) letGo(name string) {
	s.t.Helper()
	s.ask("/go?for=" + name)
}

// asked returns what the origins were asked for. Where another server is in front of one, that
// is only what this passes on.
func (s *scene) asked() (uris []string) {
	s.t.Helper()
	for _, answer := range s.ask("/asked") {
		var requests []origin.Request
		nettest.Check(s.t, json.Unmarshal(answer, &requests))
		for _, r := range requests {
			uris = append(uris, r.URI)
		}
	}
	return uris
}

// acquaint has the server know where the peers are.
func (s *scene) acquaint() {
	s.t.Helper()
	mac, err := s.clients[0].MAC(lab.Dev)
	nettest.Check(s.t, err)
	for _, a := range s.peers {
		nettest.Check(s.t, s.ns.AddNeighbour(s.devs[0], a, mac))
	}
}
