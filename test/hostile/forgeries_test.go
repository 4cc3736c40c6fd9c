// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"narthex/internal/lab"
	"narthex/test/attack"
	"narthex/test/nettest"
)

// forgeries are packets of those who are not on the path of the connections that they claim
// to be of. In whatever state these are, they come to no harm.
// waiters cannot meet a device that is down, on which the kernel gives half-open connections up,
// or a service that is no more.
var waiters = []event{linkDown, service}

var forgeries = []hostile{
	{name: "forged for connections that are held", without: waiters, begin: func(r *round) {
		first := r.block()
		victims := r.connect(3, bronze)
		for i, p := range victims {
			nettest.Check(r.t, p.Send([]byte(closing("x", r.file(i)))))
			r.waiting("bronze", i+1)
		}
		r.forge(victims)
		r.atEnd(func() {
			r.drain(victims)
			first()
			r.conclude(victims, func(i int) string { return closing("x", r.file(i)) })
		})
	}},
	{name: "forged for connections whose heads are not whole", without: waiters, begin: func(r *round) {
		const sent = 30 // bytes of the heads
		victims := r.connect(3, bronze)
		for i, p := range victims {
			nettest.Check(r.t, p.Send([]byte(closing("x", r.file(i)))[:sent]))
		}
		r.forge(victims)
		r.atEnd(func() {
			r.drain(victims)
			for i, p := range victims {
				nettest.Check(r.t, p.Send([]byte(closing("x", r.file(i)))[sent:]))
			}
			r.conclude(victims, func(i int) string { return closing("x", r.file(i)) })
		})
	}},
	{name: "forged for a connection in service", begin: func(r *round) {
		victims := r.connect(1, bronze)
		text := closing("x", "/wait?for="+r.name)
		nettest.Check(r.t, victims[0].Send([]byte(text)))
		r.inService("bronze", 1)
		r.forge(victims)
		r.atEnd(func() {
			r.drain(victims)
			r.letGo(r.name)
			r.conclude(victims, func(int) string { return text })
		})
	}},
	{name: "forged for idle connections", begin: func(r *round) {
		victims := r.connect(3, bronze)
		for i, p := range victims {
			nettest.Check(r.t, p.Send([]byte(request("x", r.file(i)))))
			r.takes(p)
		}
		r.forge(victims)
		r.atEnd(func() {
			r.drain(victims)
			for i, p := range victims {
				nettest.Check(r.t, p.Send([]byte(closing("x", r.file(10+i)))))
			}
			r.conclude(victims, func(i int) string { return closing("x", r.file(10+i)) })
		})
	}},
	{name: "forged for connections that have not asked", begin: func(r *round) {
		victims := r.connect(3, bronze)
		r.forge(victims)
		r.atEnd(func() {
			r.drain(victims)
			for i, p := range victims {
				nettest.Check(r.t, p.Send([]byte(closing("x", r.file(i)))))
			}
			r.conclude(victims, func(i int) string { return closing("x", r.file(i)) })
		})
	}},
	{name: "forged for connections that do not exist", begin: func(r *round) {
		var none []attack.Victim
		for i := range byte(100) {
			none = append(none, attack.Victim{From: netip.AddrPortFrom(r.addr(0, bronze, 100+i), 4000), To: r.to(0, 80), Next: uint32(i) << 24, Ack: 5})
		}
		r.forgeFor(none)
	}},
}

// block has a bronze request in service, so that all further ones wait. The function that it
// returns lets it be answered.
func (r *round) block() (answer func()) {
	r.t.Helper()
	v := r.visit(1, bronze, 80)
	nettest.Check(r.t, v.get("/wait?for="+r.name))
	r.inService("bronze", 1)
	return func() {
		r.t.Helper()
		r.letGo(r.name)
		_ = v.conn.SetDeadline(time.Now().Add(patience))
		nettest.Check(r.t, whole(v.answer()))
		v.conn.Close()
	}
}

// inService waits until so many of a class are in service, and waiting until so many wait.
func (r *round) inService(class string, n int) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("%d of %s in service", n, class), func() bool { return r.read().class("web", class).InService == n })
}

func (r *round) waiting(class string, n int) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("%d of %s waiting", n, class), func() bool { return r.read().class("web", class).Waiting == n })
}

// file is a path that every server has an answer to, told apart by its query.
func (r *round) file(i int) string { return fmt.Sprintf("%s?run=%s&own=%d", lab.File, r.name, i) }

// peers connects clients that send just what they are told to.
func (r *round) connect(n int, w who) (peers []*lab.Peer) {
	r.t.Helper()
	for i := range n {
		from := r.addr(0, w, byte(10+i))
		p := nettest.Peer(r.t, r.rig, lab.PeerConfig{From: netip.AddrPortFrom(from, uint16(4000+len(r.scene.peers))), To: r.to(0, 80), NoTimestamps: i%2 == 1})
		r.scene.peers = append(r.scene.peers, from)
		nettest.Check(r.t, p.Connect(patience))
		peers = append(peers, p)
	}
	return peers
}

// takes reads one answer whose connection goes on.
func (r *round) takes(p *lab.Peer) {
	r.t.Helper()
	var got []byte
	for !bytes.HasSuffix(got, content) {
		expected := p.Ack
		s, err := p.Receive(patience)
		nettest.Check(r.t, err)
		if s.Seq == expected && len(s.Payload) > 0 {
			got = append(got, s.Payload...)
			nettest.Check(r.t, p.SendACK())
		}
	}
}

// forge sends every kind of forged packet for the peers' connections, and goes on with one
// kind to the end of the round.
func (r *round) forge(peers []*lab.Peer) {
	r.t.Helper()
	var victims []attack.Victim
	for _, p := range peers {
		victims = append(victims, attack.Victim{From: p.From, To: p.To, Next: p.Next, Ack: p.Ack})
	}
	r.forgeFor(victims)
}

func (r *round) forgeFor(victims []attack.Victim) {
	r.t.Helper()
	const each = 200
	for kind := range attack.Kind(attack.Kinds) {
		for aim := range attack.Aim(attack.Aims) {
			if aim == attack.Exact && kind == attack.ForgeRST {
				continue // nothing tells it from the client's own
			}
			run := r.attack(attack.Forgery{
				Link: r.link(r.attackers), Kind: kind, Aim: aim, Victims: victims,
				Pace: attack.Pace{Count: each, Seed: uint64(r.runs)},
			})
			nettest.Check(r.t, run.Wait())
		}
	}
	r.attack(attack.Forgery{Link: r.link(r.attackers), Kind: attack.ForgeData, Victims: victims, Pace: attack.Pace{Rate: 1000, Seed: uint64(r.runs)}})
}

// drain forgets what has come, which is what others were sent on the same device.
func (r *round) drain(peers []*lab.Peer) {
	r.t.Helper()
	for _, p := range peers {
		for err := error(nil); !errors.Is(err, os.ErrDeadlineExceeded); _, err = p.Receive(0) {
			nettest.Check(r.t, err)
		}
	}
}

// conclude has peers send their last request again until it is answered, as a kernel would,
// and take the answer to its end.
func (r *round) conclude(peers []*lab.Peer, text func(i int) string) {
	r.t.Helper()
	for i, p := range peers {
		again := []byte(text(i))
		begin := p.Next - uint32(len(again))
		var acknowledged uint32 // of these
		resend := func() error {
			return p.SendSegment(lab.Segment{Seq: begin + acknowledged, Ack: p.Ack, ACK: true, PSH: true, Payload: again[acknowledged:]})
		}
		var got []byte
		var resent time.Time
		for end := time.Now().Add(patience); !bytes.HasSuffix(got, content); {
			if time.Now().After(end) {
				r.t.Fatalf("%s: the answer is %.60q, %d bytes", p.From, got, len(got))
			}
			if len(got) == 0 && int(acknowledged) < len(again) && time.Since(resent) > 300*time.Millisecond {
				nettest.Check(r.t, resend())
				resent = time.Now()
			}
			expected := p.Ack
			s, err := p.Receive(100 * time.Millisecond)
			if err != nil {
				continue
			}
			if n := s.Ack - begin; n <= uint32(len(again)) && n > acknowledged {
				acknowledged = n
			}
			if s.Seq == expected && len(s.Payload) > 0 {
				got = append(got, s.Payload...)
				nettest.Check(r.t, p.SendACK())
			}
		}
		if !bytes.HasPrefix(got, []byte("HTTP/1.1 200")) {
			r.t.Errorf("%s: the answer is %.60q", p.From, got)
		}
		nettest.Check(r.t, p.SendFIN())
	}
}
