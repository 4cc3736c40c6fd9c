// SPDX-License-Identifier: Apache-2.0

//go:build vm

package devices

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"narthex/internal/datapath"
	"narthex/internal/lab"
	"narthex/test/nettest"
)

// modes are what an interface is attached as.
type modes map[string]datapath.Mode

const (
	native = datapath.ModeNative
	tcx    = datapath.ModeTCX
)

// kinds are ways for frames from the client to the server's address.
var kinds = []struct {
	name    string
	build   func(s *scene)
	service string // beside the rest of the service
	want    modes
}{
	{name: "veth", build: plain, want: modes{"eth0": native}},
	// Behind generic XDP frames have no Ethernet header for tcx programs.
	{name: "veth, generic XDP", build: plain, service: ", xdp: generic", want: modes{"eth0": tcx}},
	{name: "veth, tcx", build: plain, service: ", xdp: off", want: modes{"eth0": tcx}},

	{name: "VLAN", build: vlan, want: modes{"eth0.10": tcx}},
	{name: "VLAN, tags in the frame", build: func(s *scene) {
		vlan(s)
		s.both("ethtool -K eth0 txvlan off rxvlan off")
	}, want: modes{"eth0.10": tcx}},
	{name: "VLAN above an address", build: func(s *scene) { vlan(s); s.below() }, want: modes{"eth0": native}},
	{name: "VLAN above an address, tcx", build: func(s *scene) { vlan(s); s.below() },
		service: ", xdp: off", want: modes{"eth0": tcx}},
	{name: "802.1ad and 802.1Q", build: vlans, want: modes{"eth0.20.10": tcx}},
	{name: "802.1ad and 802.1Q above an address", build: func(s *scene) { vlans(s); s.below() }, want: modes{"eth0": native}},
	{name: "802.1ad and 802.1Q above an address, tcx", build: func(s *scene) { vlans(s); s.below() },
		service: ", xdp: off", want: modes{"eth0": tcx}},

	{name: "bond, active-backup", build: bond("active-backup"), want: modes{"bond0": tcx}},
	{name: "bond, balance-rr", build: bond("balance-rr"), want: modes{"bond0": tcx}},
	{name: "bond, native XDP", build: bond("balance-rr"), service: ", xdp: native", want: modes{"bond0": native}},
	{name: "VLAN above a bond", build: func(s *scene) {
		bond("active-backup")(s)
		s.both("ip link add link bond0 name bond0.10 up type vlan id 10")
		s.serverDev, s.clientDev = "bond0.10", "bond0.10"
	}, want: modes{"bond0.10": tcx}},

	{name: "bridge", build: bridge, want: modes{"br0": tcx}},
	{name: "bridge, at its port", build: bridge, service: ", interfaces: [eth0]", want: modes{"eth0": native}},
	{name: "bridge, at its port by tcx", build: bridge, service: ", interfaces: [eth0], xdp: off", want: modes{"eth0": tcx}},
	{name: "VLAN of a bridge", build: func(s *scene) {
		bridge(s)
		s.run(s.server, "ip link set br0 type bridge vlan_filtering 1")
		s.run(s.server, "bridge vlan add dev eth0 vid 10")
		s.run(s.server, "bridge vlan add dev br0 vid 10 self")
		s.run(s.server, "ip link add link br0 name br0.10 up type vlan id 10")
		s.run(s.client, "ip link add link eth0 name eth0.10 up type vlan id 10")
		s.serverDev, s.clientDev = "br0.10", "eth0.10"
	}, want: modes{"br0.10": tcx}},

	{name: "team", build: team, want: modes{"team0": tcx}},

	{name: "macvlan", build: stacked("macvlan mode bridge"), want: modes{"up0": tcx}},
	{name: "macvlan beside an address", build: func(s *scene) { stacked("macvlan mode bridge")(s); s.below() },
		want: modes{"eth0": native, "up0": tcx}},
	{name: "ipvlan, L2", build: stacked("ipvlan mode l2"), want: modes{"up0": tcx}},
	{name: "ipvlan, L2, above an address", build: func(s *scene) { stacked("ipvlan mode l2")(s); s.below() },
		want: modes{"eth0": native}},
	{name: "ipvlan, L3", build: routed("ipvlan mode l3"), want: modes{"up0": tcx}},

	{name: "ingress by way of ifb", build: ifb("ingress", "ffff:"), want: modes{"eth0": native}},
	{name: "ingress by way of ifb, tcx", build: ifb("ingress", "ffff:"), service: ", xdp: off", want: modes{"eth0": tcx}},
	{name: "ingress by way of ifb, of clsact", build: ifb("clsact", "ffff:fff2"), want: modes{"eth0": native}},
	{name: "ingress by way of ifb, of clsact, tcx", build: ifb("clsact", "ffff:fff2"), service: ", xdp: off", want: modes{"eth0": tcx}},

	{name: "netkit, L2", build: netkit(netlink.NETKIT_MODE_L2), want: modes{"nk0": tcx}},
	{name: "netkit, L3", build: netkit(netlink.NETKIT_MODE_L3), want: modes{"nk0": tcx}},
}

func TestDevices(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			s := newScene(t)
			k.build(s)
			s.settle()
			s.protects(policy(k.service), k.want)
		})
	}
}

// In a VRF SYNs are policed, and requests pass: the kernel does not find the sockets that they go to.
func TestVRF(t *testing.T) {
	for service, mode := range map[string]datapath.Mode{"": native, ", xdp: off": tcx} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			plain(s)
			s.run(s.server, "ip link add vrf0 up type vrf table 10")
			s.run(s.server, "ip link set eth0 master vrf0")
			nettest.Check(t, s.server.Sysctl("ipv4/tcp_l3mdev_accept", "1"))
			s.settle()
			s.enforce(policy(service), modes{"eth0": mode})
			s.syns()
			for _, to := range s.families() {
				s.visit(bronze, to, "/wait?for="+to.Addr().String())
				s.visit(bronze, to, "/").wants(http.StatusOK)
			}
			s.in.counted("bronze", datapath.Counts{Passed: s.visits[bronze]})
			note := `interface "eth0" is in VRF "vrf0": SYNs are policed there, but requests go by undecided`
			if notes := s.in.status().Notes; !slices.Contains(notes, note) {
				t.Errorf("the status says %q", notes)
			}
			s.in.stop()
			s.reached()
		})
	}
}

// What an ipvlan device in mode L3S receives passes no program: it is left out, and the status says so.
func TestIPVlanL3S(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	routed("ipvlan mode l3s")(s)
	s.settle()
	s.enforce(policy(""), modes{})
	note := `interface "up0" is an ipvlan in mode L3S, whose packets pass no program: it is left out; use mode L2 or L3`
	if notes := s.in.status().Notes; !slices.Contains(notes, note) {
		t.Errorf("the status says %q", notes)
	}
	s.reached()
}

func plain(s *scene) { s.connect(lab.Dev) }

// below gives the server's lowest device an address, too, so that it is policed there.
func (s *scene) below() {
	s.t.Helper()
	s.run(s.server, "ip addr add 10.79.0.1/24 dev eth0")
}

func vlan(s *scene) {
	plain(s)
	s.both("ip link add link eth0 name eth0.10 up type vlan id 10")
	s.serverDev, s.clientDev = "eth0.10", "eth0.10"
}

func vlans(s *scene) {
	plain(s)
	s.both("ip link add link eth0 name eth0.20 up type vlan proto 802.1ad id 20",
		"ip link add link eth0.20 name eth0.20.10 up type vlan id 10")
	s.serverDev, s.clientDev = "eth0.20.10", "eth0.20.10"
}

// bond joins the namespaces by two pairs, each side's bonded.
func bond(mode string) func(s *scene) {
	return func(s *scene) {
		s.connect("port0")
		s.connect("port1")
		s.both("ip link add bond0 type bond miimon 100 mode " + mode)
		for _, port := range []string{"port0", "port1"} {
			s.both("ip link set "+port+" down", "ip link set "+port+" master bond0", "ip link set "+port+" up")
		}
		s.both("ip link set bond0 up")
		s.serverDev, s.clientDev = "bond0", "bond0"
	}
}

func bridge(s *scene) {
	plain(s)
	nettest.Check(s.t, s.server.AddBridge("br0", lab.Dev))
	s.serverDev = "br0"
}

// stacked puts a device above the server's that gets its frames from it.
func stacked(kind string) func(s *scene) {
	return func(s *scene) {
		plain(s)
		s.run(s.server, "ip link add link eth0 name up0 up type "+kind)
		s.serverDev = "up0"
	}
}

// routed has the server in a container: its device gets packets, not frames, from that of the host.
func routed(kind string) func(s *scene) {
	return func(s *scene) {
		host := nettest.Namespace(s.t, "host")
		nettest.Check(s.t, lab.Connect(lab.End{NS: host, Dev: lab.Dev}, lab.End{NS: s.client, Dev: lab.Dev}))
		s.run(host, "ip link add link eth0 name up0 type "+kind)
		s.run(host, "ip link set up0 netns "+s.server.Name())
		s.run(s.server, "ip link set up0 up")
		s.run(host, "ip route add 10.78.0.0/16 dev eth0")
		s.run(host, "ip route add fd78::/64 dev eth0")
		// The device does not speak ARP, nor does the host for it.
		hostMAC, err := host.MAC(lab.Dev)
		nettest.Check(s.t, err)
		clientMAC, err := s.client.MAC(lab.Dev)
		nettest.Check(s.t, err)
		for _, addr := range []netip.Addr{serverV4, serverV6} {
			nettest.Check(s.t, s.client.AddNeighbour(lab.Dev, addr, hostMAC))
			for _, w := range []who{gold, bronze} {
				nettest.Check(s.t, host.AddNeighbour(lab.Dev, w.address(addr), clientMAC))
			}
		}
		s.serverDev = "up0"
	}
}

// ifb has what the server receives take a turn by another device, where it could be shaped.
func ifb(qdisc, parent string) func(s *scene) {
	return func(s *scene) {
		if qdisc == "ingress" && !hasTCX() {
			s.t.Skip("the kernel has no tcx, which came with 6.6, and an ingress qdisc leaves no place for filters that see what goes out")
		}
		plain(s)
		s.run(s.server, "ip link add ifb0 up type ifb")
		s.run(s.server, "ip addr add fe80::1/64 dev ifb0") // as it has on most machines
		s.run(s.server, "tc qdisc add dev eth0 handle ffff: "+qdisc)
		s.run(s.server, "tc filter add dev eth0 parent "+parent+" matchall action mirred egress redirect dev ifb0")
	}
}

// hasTCX reports whether the kernel can say what is attached to lo by tcx.
func hasTCX() bool {
	_, err := link.QueryPrograms(link.QueryOptions{Target: 1, Attach: ebpf.AttachTCXIngress})
	return err == nil
}

// netkit joins the namespaces by a pair of netkit devices, as containers are.
func netkit(mode netlink.NetkitMode) func(s *scene) {
	return func(s *scene) {
		err := s.server.Do(func() error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = "nk0"
			pair := &netlink.Netkit{LinkAttrs: attrs, Mode: mode, Policy: netlink.NETKIT_POLICY_FORWARD, PeerPolicy: netlink.NETKIT_POLICY_FORWARD}
			peer := netlink.NewLinkAttrs()
			peer.Name = "nk1"
			pair.SetPeerAttrs(&peer)
			return netlink.LinkAdd(pair)
		})
		if errors.Is(err, unix.EOPNOTSUPP) {
			s.t.Skip("the kernel has no netkit devices, which came with 6.7")
		}
		nettest.Check(s.t, err)
		s.run(s.server, "ip link set nk1 netns "+s.client.Name())
		s.run(s.server, "ip link set nk0 up")
		s.run(s.client, "ip link set nk1 up")
		s.serverDev, s.clientDev = "nk0", "nk1"
	}
}
