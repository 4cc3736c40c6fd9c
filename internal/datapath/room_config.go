// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strings"
	"time"
	"unsafe"

	"narthex/internal/policy"
)

const (
	roomCells  = int(unsafe.Sizeof(narthexRoomConfig{})) / cellSize
	epochs     = len(narthexRoom{}.Entered)
	classSlots = len(narthexRoom{}.Class)
	// leftoverWait is how long requests still wait whose service is in the policy no more and
	// that the server does not take.
	leftoverWait = 2 * time.Second
	// mostSlots is how many nodes have a number.
	mostSlots = len(narthexPool{}.Link) - 1
	// stallUnit is what the programs count a class's stall in.
	stallUnit = 1 << 20 * time.Nanosecond
	// knownUnit is the same of for how long sources are known.
	knownUnit = 1 << 30 * time.Nanosecond
)

// HasGate reports whether the requests or connections of a service go through a waiting room,
// be it one in which nobody ever waits, or have to do with request rules.
func HasGate(s *policy.ServiceTable) bool { return s.Room.Followed }

// NeedsGate reports whether a service has anything to do with the gate: it has a waiting room, or a rule bounds how
// many of its connections there are at once.
func NeedsGate(s *policy.ServiceTable) bool { return HasGate(s) || s.Bounded }

func isBounded(s policy.ServiceTable) bool { return s.Bounded }

// roomConfigs returns what the waiting rooms go by, by slot of the service. Slots without a
// service let go whoever still waits there.
func roomConfigs(t *policy.Tables, s *slots) []narthexRoomConfig {
	configs := make([]narthexRoomConfig, len(s.services))
	for i := range configs {
		configs[i] = narthexRoomConfig{
			MaxWait: uint64(leftoverWait), Target: uint64(leftoverWait), Epoch: epochLength(policy.DefaultMaxService),
		}
	}
	for i := range t.Services {
		configs[s.byName[t.Services[i].Name]] = roomConfig(t, i, s)
	}
	for i := range t.Pools {
		configs[s.byName[poolSlot(&t.Pools[i])]] = poolConfig(t, i, s)
	}
	setShares(configs, t, s)
	return configs
}

func epochLength(maxService time.Duration) uint64 { return uint64(maxService) / uint64(epochs) }

var serviceEnds = map[policy.ServiceEnd]narthexServiceEnd{
	policy.EndAuto:      narthexServiceEndEND_AUTO,
	policy.EndFirstByte: narthexServiceEndEND_FIRST_BYTE,
	policy.EndClose:     narthexServiceEndEND_CLOSE,
	policy.EndLastByte:  narthexServiceEndEND_LAST_BYTE,
}

var offers = map[policy.H2C]narthexH2c{
	policy.H2CIgnore: narthexH2cH2C_IGNORE,
	policy.H2CPass:   narthexH2cH2C_PASS,
	policy.H2CReject: narthexH2cH2C_REJECT,
}

var protocols = map[policy.Protocol]narthexProtocol{
	policy.HTTP: narthexProtocolPROTOCOL_HTTP,
	policy.TLS:  narthexProtocolPROTOCOL_TLS,
	policy.TCP:  narthexProtocolPROTOCOL_TCP,
}

// isStrict reports whether requests may have to wait whatever a limit that adapts is, or rules may
// turn them away.
func isStrict(t *policy.Tables, service int) bool {
	room := &t.Services[service].Room
	bounded := slices.ContainsFunc(t.Classes, func(c policy.ClassTable) bool { return c.Max > 0 })
	return room.Limit > 0 || bounded || room.Ruled || room.Requests > 0
}

// leastBrief is the least limit with which flows are kept in short form: with less, few requests fit below the
// half of it up to which they enter without the lock.
const leastBrief = 32

// mayBeBrief reports whether nothing has to be known of a service's requests but how many are in service, so that
// flows may be kept in short form.
func mayBeBrief(t *policy.Tables, service int) bool {
	s := &t.Services[service]
	room := &s.Room
	bounded := slices.ContainsFunc(t.Classes, func(c policy.ClassTable) bool { return c.Max > 0 || c.Stall > 0 || c.Known > 0 })
	ends := room.Ends == policy.EndAuto || room.Ends == policy.EndFirstByte
	return room.Protocol == policy.HTTP && (room.Limit == 0 || room.Limit >= leastBrief) && ends && !bounded && !room.Ruled && room.Pool == 0 &&
		room.Requests == 0 && room.Labels == (policy.Labels{}) && s.Trusted == (policy.Roots{}) && !s.Shadow
}

// roomConfig returns what a service's waiting room goes by. Nobody is to be served who has waited for more than the
// target, so who waits goes a little before that.
func roomConfig(t *policy.Tables, service int, s *slots) narthexRoomConfig {
	from := &t.Services[service].Room
	c := narthexRoomConfig{
		MaxWait:     uint64(from.Queue.MaxWait),
		Epoch:       epochLength(from.Queue.MaxService),
		Target:      uint64(cmp.Or(from.Queue.Target-from.Queue.Target/8, from.Queue.MaxWait)),
		Limit:       uint32(from.Limit),
		QueueSize:   uint32(from.Queue.Size),
		Mark:        from.Mark,
		Shadow:      flag(t.Services[service].Shadow),
		Ends:        uint8(serviceEnds[from.Ends]),
		DefaultRank: uint8(t.Default),
		Strict:      flag(isStrict(t, service)),
		Proxies:     flag(t.Services[service].Trusted != (policy.Roots{})),
		Protocol:    uint8(protocols[from.Protocol]),
		H2c:         uint8(offers[from.H2C]),
		Requests:    uint32(from.Requests),
		Adaptive:    flag(from.Adaptive),
		Reserves:    flag(hasReserve(t)),
		Labels:      labelWays(from.Labels),
	}
	pooled := from.Pool > 0
	if pooled {
		c.Above, c.Weight = s.above(t, from.Pool), uint8(from.Share)
		c.Reserves = flag(hasReserve(t) && t.Pools[from.Pool-1].Shares)
	}
	c.setRanks(t, s)
	c.Brief = flag(mayBeBrief(t, service))
	for rank, class := range t.Classes {
		if pooled { // the pool's
			c.Rank[rank].Max = 0
		}
		c.Stall[rank] = uint32(class.Stall / stallUnit)
	}
	if t.Answers != nil {
		c.Kind = uint16(t.Answers.Kind[service])
	}
	return c
}

func labelWays(l policy.Labels) uint8 {
	return flag(l.Header)*uint8(narthexLabelWayLABELS_HEADER) | flag(l.Socket)*uint8(narthexLabelWayLABELS_SOCKET)
}

// classLabels is what classes are called in answers, by rank.
func classLabels(t *policy.Tables) (labels [ranks]uint32) {
	for rank, class := range t.Classes {
		h := fnv.New32a()
		h.Write([]byte(class.Name))
		labels[rank] = h.Sum32()
	}
	return labels
}

func hasReserve(t *policy.Tables) bool {
	return slices.ContainsFunc(t.Classes, func(c policy.ClassTable) bool { return c.Reserve > 0 })
}

// setRanks says which classes there are.
func (c *narthexRoomConfig) setRanks(t *policy.Tables, s *slots) {
	c.Ranks = uint8(len(t.Classes))
	for rank, class := range t.Classes {
		slot := s.byClass[class.Name]
		c.Rank[rank] = narthexRank{
			Max: uint32(class.Max), Class: uint8(slot), Reserve: uint8(class.Reserve), SocketPriority: uint8(class.SocketPriority),
			Fair: uint8(narthexFairFAIR_SOURCE), BitsV4: uint8(class.Fair.V4), BitsV6: uint8(class.Fair.V6),
			Known: uint32((class.Known + knownUnit - 1) / knownUnit),
		}
		if t.Requests != nil {
			c.Rank[rank].Key = uint8(t.Requests.Fair[rank])
		}
		if class.Fair == policy.FairNone {
			c.Rank[rank].Fair, c.Rank[rank].BitsV4, c.Rank[rank].BitsV6 = uint8(narthexFairFAIR_NONE), 0, 0
		}
		c.Classes |= 1 << slot
		same := func(other policy.ClassTable) bool { return other.SocketPriority == class.SocketPriority }
		if first := slices.IndexFunc(t.Classes, same); first == rank && !slices.ContainsFunc(t.Classes[rank+1:], same) {
			c.OfPriority[class.SocketPriority] = uint8(rank) + 1
		}
	}
}

// poolSlot names a pool among those that have slots, apart from services.
func poolSlot(p *policy.PoolTable) string { return "pool " + p.Name }

func isPoolSlot(name string) bool { return strings.HasPrefix(name, "pool ") }

// slotNames lists all that has a slot with a room.
func slotNames(t *policy.Tables) (names []string) {
	for i := range t.Services {
		names = append(names, t.Services[i].Name)
	}
	for i := range t.Pools {
		names = append(names, poolSlot(&t.Pools[i]))
	}
	return names
}

// above is how the room of a pool is named in the configurations of its members, by its index + 1; 0: none.
func (s *slots) above(t *policy.Tables, pool int) uint16 {
	if pool == 0 {
		return 0
	}
	return uint16(s.byName[poolSlot(&t.Pools[pool-1])]) + 1
}

// poolConfig is what the room of a pool goes by. Its members have the queues. Where they are one queue, a
// reserve is of the pool's places; among shares, of each member's.
func poolConfig(t *policy.Tables, pool int, s *slots) narthexRoomConfig {
	from := &t.Pools[pool]
	c := narthexRoomConfig{
		Limit: uint32(from.Limit), Adaptive: flag(from.Adaptive), Above: s.above(t, from.Pool), Weight: uint8(from.Share),
		Between: uint8(narthexPoolOrderBETWEEN_CLASSES), Reserves: flag(hasReserve(t) && !from.Shares),
	}
	if from.Shares {
		c.Between = uint8(narthexPoolOrderBETWEEN_SHARES)
	}
	c.setRanks(t, s)
	for i, m := range from.Members {
		name := ""
		if m.Pool {
			name = poolSlot(&t.Pools[m.Index])
		} else {
			name = t.Services[m.Index].Name
		}
		c.Member[i] = uint16(s.byName[name]) + 1
	}
	return c
}
