// SPDX-License-Identifier: Apache-2.0

// Package policy reads the policy file, checks it and compiles it to tables. It knows
// nothing of eBPF.
//
// Parse decodes a file strictly and finds everything that is wrong in it. Compile turns
// its connection rules into tables in which the first rule that matches is found in a
// number of steps that the number of rules does not change.
package policy

import (
	"slices"
	"time"
)

// XDPMode says where SYN policing attaches on a service's interfaces.
type XDPMode string

// The modes of `xdp:` in the policy.
const (
	XDPAuto    XDPMode = "auto"
	XDPNative  XDPMode = "native"
	XDPGeneric XDPMode = "generic"
	XDPOff     XDPMode = "off"
)

// Protocol is what a service speaks.
type Protocol string

// The protocols.
const (
	HTTP Protocol = "http" // every request on a connection is seen
	TLS  Protocol = "tls"  // the ClientHello is seen
	TCP  Protocol = "tcp"  // only the connection is seen
)

// ServiceEnd says what ends a request's time in service.
type ServiceEnd string

// The ends of service.
const (
	EndAuto      ServiceEnd = "auto"
	EndFirstByte ServiceEnd = "first_byte"
	EndClose     ServiceEnd = "close"
	EndLastByte  ServiceEnd = "last_byte"
)

// H2C says what becomes of HTTP/2 without TLS.
type H2C string

// The treatments of HTTP/2 without TLS.
const (
	H2CIgnore H2C = "ignore" // the server is not shown the offer; HTTP/2 that begins at once is rejected
	H2CPass   H2C = "pass"
	H2CReject H2C = "reject"
)

// Labels are the ways in which an application may say of what class a connection or client is.
type Labels struct {
	Header bool // Narthex-Class in an answer
	Socket bool // SO_MARK or SO_PRIORITY of the connection's socket
}

// words returns the ways as a policy names them.
func (l Labels) words() (words []string) {
	for i, on := range []bool{l.Header, l.Socket} {
		if on {
			words = append(words, labelWays[i])
		}
	}
	return words
}

// Over says what a request rule does out of profile.
type Over string

// What request rules do out of profile.
const (
	OverReject Over = "reject"
	OverDrop   Over = "drop"
	OverDemote Over = "demote"
)

// Policy is a policy file that has been read and checked.
type Policy struct {
	File        string
	Hash        string // hex SHA-256 of the file's bytes
	Services    []Service
	Classes     []Class // most important first
	Default     int     // index into Classes of the default class
	Connections []Connection
	Requests    []Request
	Answers     []NamedAnswer
	Lists       []ListFile
	Pools       []Pool
}

// Service is a server to protect.
type Service struct {
	Pos            Pos
	Name           string
	Listen         []Listen
	listenAt       []Pos    // of each Listen
	Interfaces     []string // empty: those with an address
	XDP            XDPMode
	xdpAt          Pos // of the value of XDP
	Protocol       Protocol
	Concurrency    Concurrency
	Queue          Queue
	ServiceEnds    ServiceEnd
	Reject         Answer
	rejectNamed    reference // where Reject is one of Policy.Answers
	TrustedProxies []Range
	H2C            H2C
	Requests       int    // that a connection may ask; 0: as many as it likes
	SocketMark     uint32 // SO_MARK of accepted sockets, plus the index of the class; 0: none
	Labels         Labels
	labelsAt       Pos
	Shadow         bool // decide and count, change nothing
	Overload       Overload
	Membership     // of a pool
}

// Concurrency is how many requests may be in service at once; connections, unless the
// service is HTTP.
type Concurrency struct {
	Mode  ConcurrencyMode
	Limit int // requests; 0 unless Mode is ConcurrencyFixed
	Min   int // requests, the floor of ConcurrencyAuto; 0: not given
	Max   int // requests, the ceiling of ConcurrencyAuto; 0: none
	// Target is how long requests may wait inside the server with ConcurrencyAuto; 0: as long as one takes.
	Target time.Duration
}

// Overload says when the levels of overload begin and end. What is 0 has its default.
type Overload struct {
	After     time.Duration // for which a level must be seen before it begins
	Calm      time.Duration // for which it must not be seen before it ends
	Rejecting Rate          // of requests turned away, from which on it is WhenRejecting
	Flooded   Rate          // the same of WhenFlooded
}

// ConcurrencyMode says who sets the limit.
type ConcurrencyMode uint8

// The modes of a concurrency limit.
const (
	ConcurrencyAuto ConcurrencyMode = iota // Narthex, between Min and Max
	ConcurrencyUnlimited
	ConcurrencyFixed // the policy
)

// Queue bounds the waiting room of a service.
type Queue struct {
	Size       int // requests that wait at once
	MaxWait    time.Duration
	MaxService time.Duration // after which a request that did not end is given up for lost
	Target     time.Duration // for which nobody waits longer while overload lasts; 0: there is none
}

// Class is a level of priority.
type Class struct {
	Pos      Pos
	Name     string
	Priority int           // 1 is the most important
	Reserve  int           // percent of the admissions; 0: none
	Max      int           // requests in service at once; 0: no bound
	Stall    time.Duration // for which a client may keep a worker waiting while others wait; 0: no bound
	Fair     Fair          // between whom places are divided evenly
	Known    time.Duration // for which a source that was answered goes ahead of others; 0: none does

	priorityAt, reserveAt, fairAt, knownAt Pos // of the values; fairAt and knownAt: invalid if there is none
}

// Connection is a connection rule: it polices SYNs.
type Connection struct {
	Pos       Pos
	Name      string
	From      []Range     // with FromLists; both empty: anybody
	FromLists []int       // indexes into Policy.Lists, ascending
	FromPort  []PortRange // empty: any port
	To        []int       // indexes into Policy.Services, ascending; empty: all
	Learned   []int       // indexes into Policy.Classes, as in the file; empty: not asked
	Action    Action
	Rate      Limit // zero unless Action is ActionPolice, and where there are only Limits
	Burst     int   // bucket depth in tokens; 0 unless there is a rate, and where it sets itself
	BurstSet  bool  // Burst was given; else it follows from Rate
	Per       Per
	Limits    []Bound // every one must let it pass, and the rate
	When      When
	Class     int // index into Policy.Classes, or -1
}

// Bound is one of the limits of a rule.
type Bound struct {
	Rate     Rate
	Burst    int  // tokens
	BurstSet bool // Burst was given; else it follows from Rate
	AtOnce   int  // so many at once, in place of a rate; 0: it is a rate
	Per      Per

	burstAt, perAt Pos // of the keys, if they are there
}

// When says when a rule is enforced. It matches and gives its class in any case.
type When uint8

// When rules are enforced. Each but the first is a level of overload, which includes those before it.
// The data path uses the same numbers.
const (
	WhenAlways    When = iota
	WhenOverload       // requests wait at the service: they take longer than its target
	WhenRejecting      // it turns requests away
	WhenFlooded        // it turns more away than it answers
	whenLen
)

// String returns the word in a policy.
func (w When) String() string {
	return [whenLen]string{"always", "overload", "rejecting", "flooded"}[min(w, whenLen-1)]
}

// At reports whether a rule is enforced at a service that is at a level of overload, WhenAlways
// standing for none.
func (w When) At(level When) bool { return w <= level }

// Pair is a cookie, header or parameter that a request must have: one of its patterns must match.
type Pair struct {
	Name   string
	Values []string // patterns
	Folded []string // patterns that match without case
}

// Without is what a request must not have, by name.
type Without struct {
	Header, Cookie, Query []string
}

// pairKinds are the keys of what has names, in the order of lists of them.
var pairKinds = []string{"header", "cookie", "query"}

func (w *Without) empty() bool { return len(w.Header)+len(w.Cookie)+len(w.Query) == 0 }

// Clone returns a copy that shares nothing with p that Override changes.
func (p *Policy) Clone() *Policy {
	c := *p
	c.Services = slices.Clone(p.Services)
	c.Classes = slices.Clone(p.Classes)
	c.Pools = slices.Clone(p.Pools)
	c.Connections = slices.Clone(p.Connections)
	c.Requests = slices.Clone(p.Requests)
	for i := range c.Connections {
		c.Connections[i].Limits = slices.Clone(c.Connections[i].Limits)
	}
	for i := range c.Requests {
		c.Requests[i].Limits = slices.Clone(c.Requests[i].Limits)
	}
	return &c
}

// ClassName returns the name of the class with that index, or of the default class for -1.
func (p *Policy) ClassName(class int) string {
	if class < 0 {
		class = p.Default
	}
	return p.Classes[class].Name
}
