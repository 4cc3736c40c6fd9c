// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf/rlimit"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"narthex/experiments/internal/peers"
	"narthex/internal/datapath"
	"narthex/internal/policy"
	"narthex/test/packet/benchprog"
)

// How often what decides and what does not take turns, and runs of each.
const (
	timings = 60
	timed   = 15_000
)

// decision is one whose cost is measured.
type decision struct {
	what          string
	then          float64 // µs; 0: there was none
	policy        string
	frame         []byte
	program, over string // that decides, and that only does what precedes it
	xdp           bool   // their kind
	request       bool   // a request rule decides
	how           string // what the difference has in it
}

// The service that is decided on, and who asks.
const (
	decider = "10.77.0.1:80"
	asker   = "203.0.113.1:4000"
)

// decisionInstance makes decisions. It is attached nowhere.
type decisionInstance struct {
	*datapath.Instance
	programs   *benchprog.Programs
	root, name string
}

func newDecider() (d *decisionInstance, err error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, err
	}
	d = &decisionInstance{root: datapath.Root + "-papers", name: fmt.Sprintf("decisions-%d", os.Getpid())}
	if d.Instance, err = datapath.Open(datapath.Config{Root: d.root, Instance: d.name, Slots: 64, Flows: 1024}, 0); err != nil {
		return nil, err
	}
	if d.programs, err = benchprog.Load(filepath.Join(d.root, d.name)); err == nil {
		err = d.programs.From([]netip.Addr{netip.MustParseAddrPort(asker).Addr()})
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *decisionInstance) close() error {
	if d.programs != nil {
		d.programs.Close()
	}
	err := d.Close()
	_, failed := datapath.Remove(d.root, d.name)
	return errors.Join(err, failed)
}

// inForce puts a policy in force whose rules begin with full buckets.
func (d *decisionInstance) inForce(text string) error {
	const nobody = "version: 1\nservices: [{name: nobody, listen: [\"*:9\"], protocol: tcp}]\n"
	for _, t := range []string{nobody, text} {
		p, _, err := policy.Parse("decision.yaml", []byte(t))
		if err != nil {
			return err
		}
		tables, _, err := policy.Compile(p)
		if err != nil {
			return err
		}
		local := netip.PrefixFrom(netip.MustParseAddrPort(decider).Addr(), 32)
		if err := d.Apply(datapath.State{Tables: tables, Locals: []netip.Prefix{local}}); err != nil {
			return err
		}
	}
	return nil
}

// cost returns what a decision takes, in ns: what interferes only makes runs longer, so that of each
// program the fastest runs count.
func (d *decisionInstance) cost(ctx context.Context, what *decision) (ns float64, err error) {
	if err := d.inForce(what.policy); err != nil {
		return 0, err
	}
	const xdpPass, tcxPass = 2, 0
	pass := uint32(tcxPass)
	if what.xdp {
		pass = xdpPass
	} else if _, err := d.programs.Time("bench_flow", what.frame, 1, pass); err != nil {
		return 0, err
	}
	least := [2]time.Duration{math.MaxInt64, math.MaxInt64}
	for range timings {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		for i, program := range []string{what.program, what.over} {
			t, err := d.programs.Time(program, what.frame, timed, pass)
			if err != nil {
				return 0, err
			}
			least[i] = min(least[i], t)
		}
	}
	return float64(least[0] - least[1]), d.decided(what)
}

// decided fails unless the last rule has decided in each run, where rules count.
func (d *decisionInstance) decided(what *decision) error {
	s, err := d.Stats()
	if err != nil {
		return err
	}
	counts := s.Rules
	if what.request {
		counts = s.Requests
	}
	if !what.xdp && !what.request {
		return nil
	}
	// A test run that a signal interrupts begins again: it may be some more.
	if n := len(counts); n == 0 || counts[n-1].Passed < timings*timed || counts[n-1].Matched() != counts[n-1].Passed {
		return fmt.Errorf("the last of the rules should have let %d pass: %+v", timings*timed, counts)
	}
	return nil
}

func synFrame() []byte { return frameOf(&layers.TCP{SYN: true, Window: 64240}, nil) }

// requestFrame is a request for a path of so many characters, as load.Client sends it.
func requestFrame(length int) []byte {
	text := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", peers.LongPath(length), decider)
	return frameOf(&layers.TCP{ACK: true, PSH: true, Seq: 1, Ack: 1, Window: 502}, []byte(text))
}

// frameOf makes a frame of a client's segment.
func frameOf(tcp *layers.TCP, data []byte) []byte {
	from, to := netip.MustParseAddrPort(asker), netip.MustParseAddrPort(decider)
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, EthernetType: layers.EthernetTypeIPv4}
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: from.Addr().AsSlice(), DstIP: to.Addr().AsSlice()}
	tcp.SrcPort, tcp.DstPort = layers.TCPPort(from.Port()), layers.TCPPort(to.Port())
	b := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := errors.Join(tcp.SetNetworkLayerForChecksum(ip), gopacket.SerializeLayers(b, options, eth, ip, tcp, gopacket.Payload(data))); err != nil {
		panic(err) // of constants
	}
	return b.Bytes()
}
