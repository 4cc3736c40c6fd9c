// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"narthex/internal/datapath"
	"narthex/internal/lab"
	"narthex/test/nettest"
)

// blockMadeUp drops what sendSYNs sends and lets others through, of whom it counts each.
const blockMadeUp = `
version: 1
services: [{name: shop, listen: ["*:80"], xdp: %s}]
connections:
  - {name: made-up, from: [198.18.0.0/15, "2001:db8:18::/48"], action: drop}
  - {name: others, rate: 1000/s, burst: 1000, per: source}
`

// tags are the VLAN tags that frames carry on the wire.
var wires = []struct {
	name string
	tags []lab.VLANTag
}{
	{"plain", nil},
	{"VLAN", []lab.VLANTag{{ID: 10}}},
	{"QinQ", []lab.VLANTag{{ID: 20, Proto: unix.ETH_P_8021AD}, {ID: 10}}},
}

// modes are how an interface can be policed. Generic XDP is for services without a waiting room.
var modes = []struct {
	xdp  string
	want datapath.Mode
}{{"auto", datapath.ModeNative}, {"generic, concurrency: unlimited", datapath.ModeGeneric}, {"off", datapath.ModeTCX}}

// Real requests come through whole and made-up SYNs are counted exactly, in every mode,
// over every wire, with offloads on and off. Each mode is one to start in, and one to change to.
func TestTraffic(t *testing.T) {
	t.Parallel()
	for i, wire := range wires {
		for j, offloads := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/offloads=%v", wire.name, offloads), func(t *testing.T) {
				t.Parallel()
				rig := nettest.Lab(t, 1)
				setOffloads(t, rig, offloads)
				var in *instance
				for k := range modes {
					mode := modes[(i+j+k)%len(modes)]
					t.Log(mode.want)
					if in == nil {
						in = start(t, rig.Server, fmt.Sprintf(blockMadeUp, mode.xdp))
						if wire.tags != nil {
							nettest.Check(t, rig.Server.TagFrames(lab.Dev, wire.tags...))
							nettest.Check(t, rig.Client.TagFrames(lab.Dev, wire.tags...))
						}
						nettest.Nginx(t, rig.Server, served(rig)...)
					} else {
						xdp := mode.xdp
						if xdp == "auto" {
							xdp = "native" // else what is attached may stay
						}
						in.reload(fmt.Sprintf(blockMadeUp, xdp))
					}
					want := mode.want
					if want == datapath.ModeTCX {
						want = in.traffic()
					}
					if got := in.modes(); len(got) != 1 || got[lab.Dev] != want {
						t.Fatalf("attached to %v, want %s as %s", got, lab.Dev, want)
					}
					// Behind generic XDP, with whatever program, the stand-in for VLAN
					// devices loses frames with two tags. Whether we read them shows before.
					traffic(t, rig, in, mode.want != datapath.ModeGeneric || len(wire.tags) < 2)
				}
			})
		}
	}
}

// served is where a lab's server listens.
func served(rig *lab.Lab) []netip.AddrPort {
	return []netip.AddrPort{netip.AddrPortFrom(rig.ServerV4, 80), netip.AddrPortFrom(rig.ServerV6, 80)}
}

func setOffloads(t *testing.T, rig *lab.Lab, on bool) {
	t.Helper()
	for _, ns := range []*lab.Namespace{rig.Server, rig.Client} {
		for _, o := range []lab.Offload{lab.RxChecksum, lab.TxChecksum, lab.TSO, lab.GSO, lab.GRO, lab.TxVLAN, lab.RxVLAN} {
			nettest.Check(t, ns.SetOffload(lab.Dev, o, on))
		}
	}
}

// traffic sends made-up SYNs over both families and, if the server can be reached, fetches
// files from it.
func traffic(t *testing.T, rig *lab.Lab, in *instance, withServer bool) {
	t.Helper()
	const requests, made = 5, 50
	others, madeUp := in.rule("others").Passed, in.rule("made-up").Dropped
	if withServer {
		for _, to := range served(rig) {
			for range requests {
				body, err := get(rig.Client, to, lab.NginxFile, netip.Addr{}, patience)
				if err != nil || len(body) != lab.FileBytes {
					t.Fatalf("%s: %d bytes, %v", to, len(body), err)
				}
			}
		}
		in.counted("others", datapath.Counts{Passed: others + 2*requests})
	}
	raw := nettest.Sender(t, rig.Client, lab.Dev)
	for _, to := range served(rig) {
		sendSYNs(t, rig, raw, to, made)
	}
	in.counted("made-up", datapath.Counts{Dropped: madeUp + 2*made})
}

// A large MTU makes frames of several buffers, which native XDP must take.
func TestJumboFrames(t *testing.T) {
	t.Parallel()
	rig := nettest.Lab(t, 1)
	for _, ns := range []*lab.Namespace{rig.Server, rig.Client} {
		out, err := ns.Command("ip", "link", "set", lab.Dev, "mtu", "9000").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	in := start(t, rig.Server, fmt.Sprintf(blockMadeUp, "native"))
	nettest.Nginx(t, rig.Server, served(rig)...)
	traffic(t, rig, in, true)
}

func TestShadowDropsNothing(t *testing.T) {
	t.Parallel()
	rig := nettest.Lab(t, 1)
	in := start(t, rig.Server, `
version: 1
services: [{name: shop, listen: ["*:80"], mode: shadow}]
connections: [{name: nobody, action: drop}]
`)
	to := netip.AddrPortFrom(rig.ServerV4, 80)
	nettest.Nginx(t, rig.Server, to)
	if _, err := get(rig.Client, to, "/", netip.Addr{}, patience); err != nil {
		t.Fatal(err)
	}
	in.counted("nobody", datapath.Counts{WouldDrop: 1})
}

// decideOnce polices *:80 wherever there is an address, and counts.
const decideOnce = `
version: 1
services: [{name: shop, listen: ["*:80"]}]
connections: [{name: everyone, rate: 1000000/s, burst: 1000000}]
`

// A packet that passes several devices is decided once.
func TestDecidedOnce(t *testing.T) {
	t.Parallel()
	const n = 100
	net4 := netip.MustParsePrefix("10.78.0.1/24")
	for _, c := range []struct {
		name    string
		prepare func(t *testing.T, rig *lab.Lab) []func(*lab.SYN) // what SYNs to net4 need
		want    []string
		both    bool // the plain address is still on the device
	}{
		{"VLAN above a device with an address", func(t *testing.T, rig *lab.Lab) []func(*lab.SYN) {
			nettest.Check(t, rig.Server.AddVLANDevice("eth0.10", lab.Dev, lab.VLANTag{ID: 10}))
			nettest.Check(t, rig.Server.AddAddr("eth0.10", net4))
			return []func(*lab.SYN){func(s *lab.SYN) { s.Tags = []lab.VLANTag{{ID: 10}} }, toDevice(t, rig, "eth0.10")}
		}, []string{lab.Dev, "eth0.10"}, true}, // the stand-in is a macvlan
		{"VLAN above a device without one", func(t *testing.T, rig *lab.Lab) []func(*lab.SYN) {
			nettest.Check(t, rig.Server.AddVLANDevice("eth0.10", lab.Dev, lab.VLANTag{ID: 10}))
			nettest.Check(t, rig.Server.AddAddr("eth0.10", net4))
			removeAddresses(t, rig)
			return []func(*lab.SYN){func(s *lab.SYN) { s.Tags = []lab.VLANTag{{ID: 10}} }, toDevice(t, rig, "eth0.10")}
		}, []string{"eth0.10"}, false},
		{"bridge over a port", func(t *testing.T, rig *lab.Lab) []func(*lab.SYN) {
			removeAddresses(t, rig)
			nettest.Check(t, rig.Server.AddBridge("br0", lab.Dev))
			nettest.Check(t, rig.Server.AddAddr("br0", net4))
			return []func(*lab.SYN){toDevice(t, rig, "br0")}
		}, []string{"br0"}, false},
		{"bridge over a port with an address", func(t *testing.T, rig *lab.Lab) []func(*lab.SYN) {
			nettest.Check(t, rig.Server.AddBridge("br0", lab.Dev))
			nettest.Check(t, rig.Server.AddAddr("br0", net4))
			return []func(*lab.SYN){toDevice(t, rig, "br0")}
		}, []string{"br0"}, false},
		{"macvlan", func(t *testing.T, rig *lab.Lab) []func(*lab.SYN) {
			nettest.Check(t, rig.Server.AddMacvlan("mac0", lab.Dev))
			nettest.Check(t, rig.Server.AddAddr("mac0", net4))
			return []func(*lab.SYN){toDevice(t, rig, "mac0")}
		}, []string{lab.Dev, "mac0"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rig := nettest.Lab(t, 1)
			change := c.prepare(t, rig)
			in := start(t, rig.Server, decideOnce)
			got := in.modes()
			if !slices.Equal(slices.Sorted(maps.Keys(got)), c.want) {
				t.Errorf("attached to %v, want %v", got, c.want)
			}
			raw := nettest.Sender(t, rig.Client, lab.Dev)
			sent := uint64(n)
			sendSYNs(t, rig, raw, netip.AddrPortFrom(net4.Addr(), 80), n, change...)
			if c.both {
				sendSYNs(t, rig, raw, netip.AddrPortFrom(rig.ServerV4, 80), n)
				sent += n
			}
			time.Sleep(100 * time.Millisecond) // a second decision would come later
			in.counted("everyone", datapath.Counts{Passed: sent})
		})
	}
}

// toDevice addresses frames to a device's hardware address.
func toDevice(t *testing.T, rig *lab.Lab, dev string) func(*lab.SYN) {
	t.Helper()
	mac, err := rig.Server.MAC(dev)
	nettest.Check(t, err)
	return func(s *lab.SYN) { s.DstMAC = mac }
}

func removeAddresses(t *testing.T, rig *lab.Lab) {
	t.Helper()
	if out, err := rig.Server.Command("ip", "addr", "flush", "dev", lab.Dev).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
