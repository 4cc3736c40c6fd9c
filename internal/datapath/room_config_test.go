// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"narthex/internal/policy"
)

// What never ends is given up by the epoch: about when max_service has passed since it began,
// for any max_service that a policy can have.
func TestEpochLength(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for i := range 1000 {
		d := time.Second + time.Duration(r.Int64N(int64(time.Hour)))
		if i == 0 {
			d = time.Second
		}
		length, n := epochLength(d), uint64(epochs)
		if length == 0 || length*(n-1) > uint64(d) || length*n+n < uint64(d) {
			t.Errorf("max_service %v: %d epochs of %v", d, epochs, time.Duration(length))
		}
	}
}

// randomTables are tables of classes and services in random slots.
func randomTables(r *rand.Rand) (*policy.Tables, *slots) {
	t := &policy.Tables{}
	s := &slots{services: make([]string, minServices), byName: map[string]uint32{}, byClass: map[string]uint32{}, capacity: 1 + r.IntN(MaxSlots)}
	places := r.Perm(classSlots)
	for i := range 1 + r.IntN(len(narthexRoomConfig{}.Rank)) {
		c := policy.ClassTable{Name: fmt.Sprintf("class-%d", i), Priority: i + 1, Reserve: r.IntN(7), SocketPriority: r.IntN(7)}
		if r.IntN(4) == 0 {
			c.Max = 1 + r.IntN(1_000_000)
		}
		if r.IntN(4) == 0 {
			c.Stall = time.Duration(r.Int64N(int64(10 * time.Minute)))
			c.Known = time.Duration(r.Int64N(int64(24 * time.Hour)))
		}
		t.Classes = append(t.Classes, c)
		s.byClass[c.Name] = uint32(places[i])
	}
	t.Default = r.IntN(len(t.Classes))
	places = r.Perm(20)
	for i := range 1 + r.IntN(10) {
		service := policy.ServiceTable{Name: fmt.Sprintf("service-%d", i), Shadow: r.IntN(2) == 0, Room: policy.RoomTable{
			Protocol: []policy.Protocol{policy.HTTP, policy.TLS, policy.TCP}[r.IntN(3)],
			H2C:      []policy.H2C{policy.H2CReject, policy.H2CPass}[r.IntN(2)],
			Limit:    r.IntN(2) * r.IntN(1_000_000),
			Queue:    policy.Queue{Size: r.IntN(65_537), MaxWait: time.Duration(r.Int64N(int64(time.Minute))), MaxService: time.Second + time.Duration(r.Int64N(int64(time.Hour))), Target: time.Duration(r.IntN(2) * r.IntN(1_000_000))},
			Ends:     []policy.ServiceEnd{policy.EndAuto, policy.EndFirstByte, policy.EndLastByte, policy.EndClose}[r.IntN(4)],
			Reject:   policy.Answer{Status: 503},
			Mark:     r.Uint32N(0xffffffef),
		}}
		if service.Room.Protocol != policy.HTTP {
			service.Room.Reject = policy.Answer{Reset: true} // as policies have it
		}
		t.Services = append(t.Services, service)
		s.byName[service.Name] = uint32(places[i])
	}
	return t, s
}

// Every reason that the programs know has a name of its own, and so has every protocol a number.
func TestNamesOfRooms(t *testing.T) {
	seen := map[string]bool{}
	for r := range Reject(RejectLen) {
		if r.String() == "" || seen[r.String()] {
			t.Errorf("reason %d is called %q", r, r)
		}
		seen[r.String()] = true
	}
	if got := len(narthexClassRoom{}.Rejected); got < RejectLen {
		t.Errorf("%d counters for %d reasons", got, RejectLen)
	}
	if len(protocols) != int(narthexProtocolPROTOCOL_LEN) || len(serviceEnds) != int(narthexServiceEndSERVICE_END_LEN) {
		t.Errorf("numbers of protocols %v, of ends of service %v: not all", protocols, serviceEnds)
	}
}

// Services that are followed have a gate, and the ports that the gate looks at are theirs.
func TestGatePorts(t *testing.T) {
	service := func(followed bool, ports ...uint16) policy.ServiceTable {
		s := policy.ServiceTable{Room: policy.RoomTable{Protocol: policy.TCP, Followed: followed}}
		for _, p := range ports {
			s.Listen = append(s.Listen, policy.Listen{Port: p})
		}
		return s
	}
	services := []policy.ServiceTable{service(true, 80, 443), service(false, 25), service(true, 64, 65535)}
	want := map[uint32]uint64{1: 1<<(80-64) | 1, 443 / 64: 1 << (443 % 64), 1023: 1 << 63}
	if got := gatePorts(services); !maps.Equal(got, want) {
		t.Errorf("ports %v, want %v", got, want)
	}
	for i, want := range []bool{true, false, true} {
		if got := HasGate(&services[i]); got != want {
			t.Errorf("service %d has a gate: %v, want %v", i, got, want)
		}
	}
}

// The configuration of a room says what the tables say, with classes in order of priority
// and by their slots.
func TestRoomConfigs(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 500 {
		tables, s := randomTables(r)
		configs := roomConfigs(tables, s)
		named := map[int]bool{}
		for i := range tables.Services {
			slot := int(s.byName[tables.Services[i].Name])
			named[slot] = true
			checkRoomConfig(t, tables, i, s, &configs[slot])
		}
		for slot, c := range configs {
			// Whoever still waits there goes when the next one looks, and nobody is held.
			if !named[slot] && (c.MaxWait != uint64(leftoverWait) || c.Epoch == 0 || c.Limit != 0 || c.Ranks != 0 || c.Classes != 0 || c.Strict != 0) {
				t.Errorf("slot %d is of no service and has %+v", slot, c)
			}
		}
	}
}

func checkRoomConfig(t *testing.T, tables *policy.Tables, service int, s *slots, c *narthexRoomConfig) {
	t.Helper()
	from := &tables.Services[service]
	strict := from.Room.Limit > 0 || slices.ContainsFunc(tables.Classes, func(c policy.ClassTable) bool { return c.Max > 0 })
	if int(c.Limit) != from.Room.Limit || int(c.QueueSize) != from.Room.Queue.Size || c.MaxWait != uint64(from.Room.Queue.MaxWait) ||
		c.Epoch != epochLength(from.Room.Queue.MaxService) || c.Mark != from.Room.Mark || (c.Shadow == 1) != from.Shadow ||
		narthexServiceEnd(c.Ends) != serviceEnds[from.Room.Ends] || (c.Strict == 1) != strict || (c.Adaptive == 1) != from.Room.Adaptive {
		t.Errorf("service %+v has %+v", from, c)
	}
	bound := from.Room.Queue.MaxWait
	if target := from.Room.Queue.Target; target > 0 {
		bound = target - target/8
	}
	if c.Target != uint64(bound) {
		t.Errorf("service %+v has %d for a target", from, c.Target)
	}
	wantProtocol := map[policy.Protocol]narthexProtocol{policy.HTTP: 0, policy.TLS: 1, policy.TCP: 2}[from.Room.Protocol]
	if narthexProtocol(c.Protocol) != wantProtocol || (c.H2c == 1) != (from.Room.H2C == policy.H2CPass) {
		t.Errorf("service %+v has protocol %d, h2c %d", from, c.Protocol, c.H2c)
	}
	if int(c.Ranks) != len(tables.Classes) || int(c.DefaultRank) != tables.Default {
		t.Errorf("%d ranks, the default one %d; want %d, %d", c.Ranks, c.DefaultRank, len(tables.Classes), tables.Default)
	}
	bits, reserves := uint32(0), false
	for rank, class := range tables.Classes {
		k := c.Rank[rank]
		if uint32(k.Class) != s.byClass[class.Name] || int(k.Max) != class.Max || int(k.Reserve) != class.Reserve || int(k.SocketPriority) != class.SocketPriority ||
			c.Stall[rank] != uint32(class.Stall>>20) || time.Duration(k.Known)<<30 < class.Known || time.Duration(k.Known)<<30 >= class.Known+1<<30 {
			t.Errorf("rank %d is %+v, want %+v in slot %d", rank, k, class, s.byClass[class.Name])
		}
		bits |= 1 << k.Class
		reserves = reserves || class.Reserve > 0
	}
	if c.Classes != bits || (c.Reserves == 1) != reserves {
		t.Errorf("classes %#x, reserves %d; want %#x, %v", c.Classes, c.Reserves, bits, reserves)
	}
	for rank := len(tables.Classes); rank < len(c.Rank); rank++ {
		if c.Rank[rank] != (narthexRank{}) {
			t.Errorf("rank %d of %d is %+v", rank, len(tables.Classes), c.Rank[rank])
		}
	}
}
