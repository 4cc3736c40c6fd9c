// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"math/rand/v2"
	"net/netip"

	"narthex/test/attack"
)

// floods are more packets or connections than anybody means.
var floods = []hostile{
	{name: "SYN flood", begin: func(r *round) { r.attack(r.flood()) }},
	// Without the service the server would take them.
	{name: "idle-connect flood", without: []event{service}, begin: func(r *round) {
		f := r.flood()
		f.IdleConnects = true
		r.attack(f)
	}},
	{name: "requests of clients that are not there", inexact: true, begin: func(r *round) {
		f := r.flood()
		f.Rate, f.Request = 200, closing("x", "/8k.html")
		r.attack(f)
	}},
	{name: "requests that the server's stack drops", inexact: true, begin: func(r *round) {
		f := r.flood()
		f.Rate, f.Request, f.Broken = 200, closing("x", "/8k.html"), true
		r.attack(f)
	}},
	{name: "unsound packets", begin: func(r *round) {
		kinds := []attack.Segment{
			{Flags: attack.SYN, MSS: true, Payload: []byte(attack.Forged)},
			{Flags: attack.SYN | attack.FIN, MSS: true},
			{Flags: attack.SYN | attack.RST, MSS: true},
			{Flags: attack.ACK | attack.PSH, Payload: []byte(attack.Forged), Fragment: true},
			{Flags: attack.ACK | attack.PSH, Payload: []byte(attack.Forged), BadSum: true},
			{Flags: attack.SYN | attack.ACK | attack.FIN | attack.RST | attack.PSH | attack.URG},
			{},
		}
		from := r.madeUp().Addr().Next()
		r.attack(attack.Packets{
			Link: r.link(r.attackers), Pace: attack.Pace{Rate: 2000, Seed: uint64(r.runs)},
			Make: func(s *attack.Segment, i uint64, random *rand.Rand) {
				*s = kinds[i%uint64(len(kinds))]
				s.From, s.To = netip.AddrPortFrom(from, uint16(random.Uint32())), r.to(r.attackers, 80)
				s.Seq, s.Ack = random.Uint32(), random.Uint32()
			},
		})
	}},
	{name: "clients that say nothing", begin: func(r *round) { r.attack(attack.Silent{Crowd: r.crowd(20 * concurrency)}) }},
}

// flood comes from made-up sources.
func (r *round) flood() attack.Flood {
	return attack.Flood{Link: r.link(r.attackers), From: r.madeUp(), To: r.to(r.attackers, 80), Pace: attack.Pace{Rate: 5000, Seed: uint64(r.runs)}}
}
