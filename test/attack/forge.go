// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"time"
)

// Kind is what is forged.
type Kind int

// The kinds of forged segments.
const (
	ForgeACK      Kind   = iota // bare acknowledgements
	ForgeData                   // a whole request
	ForgeRST                    // resets
	ForgeFIN                    // ends of the client's half
	ForgeSYN                    // SYNs for connections that are there
	ForgeSYNData                // with data on them
	ForgeSYNFIN                 // with both flags
	ForgeFragment               // the first fragment of data
	Kinds         = iota        // how many there are
)

func (k Kind) String() string {
	return [...]string{"ACK", "data", "RST", "FIN", "SYN", "SYN with data", "SYN+FIN", "fragment"}[k]
}

// Aim is how good a forger's guess of the sequence numbers is. None hits both.
type Aim int

// What forgers guess.
const (
	Blind   Aim    = iota // any numbers
	Inside                // within the receiver's window, further on than the client gets meanwhile; the acknowledged number is right
	Outside               // beyond the window; the acknowledged number is right
	Exact                 // the next, but acknowledging what was never sent
	Aims    = iota        // how many there are
)

func (a Aim) String() string { return [...]string{"blind", "inside", "outside", "exact"}[a] }

// Victim is a connection that somebody else pretends to be the client of.
type Victim struct {
	From, To netip.AddrPort
	Next     uint32 // the client's next sequence number
	Ack      uint32 // what it has acknowledged
}

// Forgery sends segments that claim to be of others' connections, from off their path: as
// many for each, in turn.
type Forgery struct {
	Link Link
	Pace
	Kind    Kind
	Aim     Aim
	Victims []Victim
	Payload []byte // of data; a request for /forged if nil
}

// Forged is the request that a forger sends.
const Forged = "GET /forged HTTP/1.1\r\nHost: forged\r\nConnection: close\r\n\r\n"

// Start begins to forge.
func (f Forgery) Start(ctx context.Context) (*Run, error) {
	if len(f.Victims) == 0 {
		return nil, errors.New("start forging packets: for no connection")
	}
	if f.Payload == nil {
		f.Payload = []byte(Forged)
	}
	return Packets{Link: f.Link, Pace: f.Pace, Make: f.segment}.Start(ctx)
}

// segment makes the next segment.
func (f Forgery) segment(s *Segment, i uint64, random *rand.Rand) {
	v := f.Victims[i%uint64(len(f.Victims))]
	*s = Segment{From: v.From, To: v.To, Seq: v.Next, Ack: v.Ack, Flags: ACK}
	switch f.Kind {
	case ForgeData:
		s.Flags, s.Payload = ACK|PSH, f.Payload
	case ForgeRST:
		s.Flags = RST
	case ForgeFIN:
		s.Flags = ACK | FIN
	case ForgeSYN:
		s.Flags, s.MSS = SYN, true
	case ForgeSYNData:
		s.Flags, s.MSS, s.Payload = SYN, true, f.Payload
	case ForgeSYNFIN:
		s.Flags, s.MSS = SYN|FIN, true
	case ForgeFragment:
		s.Flags, s.Payload, s.Fragment = ACK|PSH, f.Payload, true
	}
	// Windows are below 64 KiB until the receiver has seen more than a few requests. Nearer by
	// would be what a client that goes on sends next, at some time.
	switch f.Aim {
	case Blind:
		s.Seq, s.Ack = random.Uint32(), random.Uint32()
		if s.Seq == v.Next {
			s.Seq++
		}
	case Inside:
		s.Seq += 40_000 + random.Uint32N(20_000)
	case Outside:
		s.Seq += 1<<30 + random.Uint32N(1<<30)
	case Exact:
		s.Ack += 1<<28 + random.Uint32N(1<<30)
	}
}

// waitFor sleeps, and reports whether the context goes on.
func waitFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
