// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"
	"time"
)

// Limits of a compiled policy. The data path relies on them.
const (
	MaxClasses   = 16        // classes
	MaxServices  = 1024      // services
	MaxRules     = 131_072   // connection rules
	MaxNodes     = 1 << 20   // prefix-table nodes of all services and families together
	MaxNameBytes = 63        // bytes in the name of a service, class or rule
	MaxRate      = 1_000_000 // tokens per second
	MaxBurst     = 1_000_000 // tokens
)

// Tables is a policy compiled for the data path: flat values that are looked up in a
// number of steps that the number of rules does not change.
type Tables struct {
	Hash     string // hex SHA-256 of the policy file's bytes
	Services []ServiceTable
	Pools    []PoolTable
	Classes  []ClassTable   // most important first
	Default  int            // index into Classes of the default class
	Rules    []RuleTable    // connection rules in file order
	Nodes    []Node         // shared by every service and both families
	Requests *RequestTables // nil: there are no request rules
	Listed   bool           // rules of Rules ask for lists
	// InLists returns the bits of the lists that an address is in. Nil: there are none, or they are not known.
	InLists func(netip.Addr) uint64
	Answers *AnswerTables
}

// ServiceTable is one service as the data path sees it.
type ServiceTable struct {
	Name       string
	Listen     []Listen
	Interfaces []string // empty: those with an address
	XDP        XDPMode
	Shadow     bool
	Roots      // where the look-up of a source starts
	// Learned is where it starts for sources that are remembered in a class, like
	// Tables.Classes; nil: no rule asks for that.
	Learned []Roots
	// Trusted is where the look-up of a trusted proxy starts: one ends at RuleEntry(0), which
	// stands for no rule here, all others at no entry.
	Trusted Roots
	Room    RoomTable
	Bounded bool       // a connection rule that is for the service bounds how many connections there are at once
	Auto    []AutoRule // rules that are for the service and whose rates set themselves
}

// AutoRule is a rule whose rate sets itself.
type AutoRule struct {
	AutoRuleName
	Index int // into Tables.Requests.Rules or Tables.Rules
	Rank  int // of its class, as an index into Tables.Classes
	When  When
	Auto  AutoRate
}

// AutoRuleName tells rules of both tables.
type AutoRuleName struct {
	Name    string
	Request bool // a request rule; else a connection rule
}

// Roots are where look-ups of sources start.
type Roots struct {
	RootV4 Entry // of IPv4
	RootV6 Entry // of IPv6
}

// of returns the root for an address.
func (r Roots) of(from netip.Addr) Entry {
	if from.Unmap().Is4() {
		return r.RootV4
	}
	return r.RootV6
}

// RoomTable is the waiting room of a service.
type RoomTable struct {
	Protocol Protocol // what is seen of a connection
	// Limit bounds the requests in service at once, or connections; 0: unlimited. Where it is
	// Adaptive it is what to begin with, and what is safe when nobody adapts it any more.
	Limit  int
	Queue  Queue
	Ends   ServiceEnd
	Reject Answer
	H2C    H2C
	// Requests is how many a connection may ask; 0: as many as it likes.
	Requests int
	Mark     uint32 // SO_MARK of accepted sockets is this plus the index of the class; 0: it is not set
	// Followed says that what the service's connections carry is looked at and counted, whether
	// or not anybody can have to wait; else it is policed by its SYNs alone.
	Followed bool
	// Ruled says that request rules may match what the service's connections carry.
	Ruled bool
	// Adaptive says that the limit follows the server, between Floor and Ceiling.
	Adaptive bool
	Floor    int // requests, at least 1; 0 unless Adaptive
	Ceiling  int // requests; 0: none, or not Adaptive
	// Target is how long requests may wait inside the server where the limit is Adaptive; 0: as long as one takes.
	Target   time.Duration
	Overload Overload
	Pool     int // index into Tables.Pools of the one that it is in, + 1; 0: none. Its limit is in Limit and Adaptive
	Share    int // of that pool
	Labels   Labels
}

// Listen is a local address and port. An invalid Addr stands for any local address of
// both families.
type Listen struct {
	Addr netip.Addr
	Port uint16
}

// Fair says between whom the places of a class are divided evenly: sources with the same first V4 or V6
// bits; and where it has a key, what each of them has between the values of that.
type Fair struct {
	V4, V6 int
	Key    PerKey
}

// FairNone is a class in order of arrival.
var FairNone = Fair{}

// FairDefault is what a class has that says nothing: addresses are cheap, networks less so.
var FairDefault = Fair{V4: 24, V6: 48}

// FairSource is one share per IPv4 address or IPv6 /64.
var FairSource = Fair{V4: 32, V6: 64}

// ClassTable is one class.
type ClassTable struct {
	Name           string
	Priority       int
	Reserve        int           // percent of the admissions while it has requests waiting; 0: none
	Max            int           // requests in service at once, per service; 0: no bound
	Stall          time.Duration // for which a client may keep a worker waiting while others wait; 0: no bound
	SocketPriority int           // SO_PRIORITY of accepted sockets, and of what is sent on them; see socketPriority
	Fair           Fair          // between whom places are divided evenly
	Known          time.Duration // for which a source that was answered goes ahead of others; 0: none does
}

// RuleTable is one connection rule without its match, which is in the nodes.
type RuleTable struct {
	Name     string
	Action   Action
	Interval time.Duration // time in which the bucket gains one token; 0 unless Action is ActionPolice
	Burst    uint32        // bucket depth in tokens
	Per      Per           // who shares a bucket
	Class    int           // index into Tables.Classes, or -1
	// When says when the action is enforced and the bucket charged. The rule matches and gives
	// its class in any case.
	When   When
	Auto   AutoRate // the rate sets itself: Interval and Burst are 0
	Limits []LimitTable
}

// Action is what a connection rule does with a SYN, or a request rule with a request.
type Action uint8

// The actions. The data path uses the same numbers.
const (
	ActionClassify Action = iota // only names a class
	ActionPolice                 // takes a token or drops
	ActionDrop                   // drops; a request's connection is reset
	ActionPass                   // goes by every control
	ActionReject                 // answers as the service's reject says; request rules only
)

// Per says who shares a bucket: all when both lengths are negative, else sources with the same
// first V4 or V6 bits. Where it has a key, requests with the same value of that do; those without
// a value, or with an empty one, share the bucket of their source.
type Per struct {
	V4, V6 int
	Key    PerKey
}

// PerKey is what of a request has a bucket for each of its values; the zero PerKey is nothing.
type PerKey struct {
	Kind string // "header", "cookie", "query" or "host"
	Name string // but of the host; of a header in lower case, with hyphens for underscores
}

// PerValue is one bucket for each value of what the key says.
func PerValue(key PerKey) Per { return Per{PerSource.V4, PerSource.V6, key} }

// PerRule is one bucket for the whole rule.
var PerRule = Per{V4: -1, V6: -1}

// PerSource is one bucket per IPv4 address or IPv6 /64.
var PerSource = Per{V4: 32, V6: 64}

// Entry is the outcome of one look-up step: a rule, no rule, or the node to go on with.
// The zero Entry means that no rule matches. The data path uses the same encoding.
type Entry uint32

// entryNode marks an Entry that names a node; the other bits are its index. Otherwise the
// Entry is a rule's index plus one.
const entryNode Entry = 1 << 31

// NodeEntry leads to node i.
func NodeEntry(i int) Entry { return entryNode | Entry(i) }

// RuleEntry is the match of rule i.
func RuleEntry(i int) Entry { return Entry(i + 1) }

// Node reports which node the entry leads to.
func (e Entry) Node() (i int, ok bool) { return int(e &^ entryNode), e&entryNode != 0 }

// Rule reports which rule matched.
func (e Entry) Rule() (i int, ok bool) { return int(e) - 1, e != 0 && e&entryNode == 0 }

// Node is one step of the look-up: a multibit trie with a stride of four bits whose
// nodes skip the bits that all their prefixes share (path compression as in PATRICIA,
// Morrison 1968; strides as in Srinivasan and Varghese, 1998).
//
// The key has four words in host byte order: the first and the second half of an IPv6
// address (an IPv4 address is the upper half of the first word) and the source port in
// the upper 16 bits of the third; the fourth has the bits of the lists that the source is in. A node tests one word: if (word^Key)&Mask is not 0 the
// outcome is Miss, else Child[word>>Shift&15].
type Node struct {
	Key   uint64
	Mask  uint64
	Miss  Entry
	Word  uint8 // 0 to 3
	Shift uint8 // 0, 4, … 60
	Child [16]Entry
}

// Key is what the look-up examines; see Node.
type Key [4]uint64

// MaxSteps bounds a look-up: 32 strides of an IPv6 address, 4 of a port and 4 of lists. Compile refuses a policy
// whose lists make more of them.
const MaxSteps = 40

// NewKey returns the key for a source address and port.
func NewKey(from netip.Addr, port uint16) Key {
	var k Key
	b := from.Unmap().AsSlice()
	for i, v := range b {
		k[i/8] |= uint64(v) << (56 - 8*(i%8))
	}
	k[2] = uint64(port) << 48
	return k
}

// NotLearned stands for the class of a source that is not remembered in any.
const NotLearned = -1

// Lookup returns the index of the first rule that matches a SYN to the service, or -1.
func (t *Tables) Lookup(service int, from netip.Addr, port uint16) int {
	return t.LookupLearned(service, NotLearned, from, port)
}

// LookupLearned is Lookup for a source that is remembered in the class with that index.
func (t *Tables) LookupLearned(service, class int, from netip.Addr, port uint16) int {
	return t.lookupListed(service, class, from, port, t.ListsOf(from))
}

// ListsOf returns the bits of the lists that an address is in.
func (t *Tables) ListsOf(a netip.Addr) uint64 {
	if t.InLists == nil {
		return 0
	}
	return t.InLists(a)
}

// SourceClass returns the class, as an index, of a source that a connection rule, or none (-1), matches, and that is
// remembered in a class, or NotLearned. Where the application labels its clients that is theirs, unless the rule has one.
func (t *Tables) SourceClass(service, rule, learned int) int {
	switch {
	case rule >= 0 && t.Rules[rule].Class >= 0:
		return t.Rules[rule].Class
	case learned != NotLearned && t.Services[service].Room.Labels.Header:
		return learned
	}
	return t.Default
}

// lookupListed is LookupLearned for a source that is in the lists of the bits.
func (t *Tables) lookupListed(service, class int, from netip.Addr, port uint16, lists uint64) int {
	s := &t.Services[service]
	roots := s.Roots
	if class != NotLearned && s.Learned != nil {
		roots = s.Learned[class]
	}
	key := NewKey(from, port)
	key[listWord] = lists
	return lookup(t.Nodes, roots.of(from), key)
}

// Trusts reports whether an address is that of a proxy that the service trusts.
func (t *Tables) Trusts(service int, from netip.Addr) bool {
	return lookup(t.Nodes, t.Services[service].Trusted.of(from), NewKey(from, 0)) >= 0
}

// lookup walks from an entry to its outcome for the key, -1 if there is none.
func lookup(nodes []Node, e Entry, key Key) int {
	for range MaxSteps {
		i, ok := e.Node()
		if !ok {
			break
		}
		n := &nodes[i]
		if w := key[n.Word]; (w^n.Key)&n.Mask != 0 {
			e = n.Miss
		} else {
			e = n.Child[w>>n.Shift&15]
		}
	}
	i, ok := e.Rule()
	if !ok {
		return -1
	}
	return i
}

// RequestRules returns the request rules in file order.
func (t *Tables) RequestRules() []RequestRule {
	if t.Requests == nil {
		return nil
	}
	return t.Requests.Rules
}

// HasRoom reports whether a service has a waiting room: whether something bounds how many
// of its requests or connections are in service, so that others can have to wait.
func (t *Tables) HasRoom(service int) bool {
	room := &t.Services[service].Room
	return room.Limit > 0 || room.Adaptive || slices.ContainsFunc(t.Classes, func(c ClassTable) bool { return c.Max > 0 })
}

// Sheds reports whether SYNs of a service's low classes may be dropped while more requests wait than its
// waiting room takes: the highest class is spared, so there have to be others.
func (t *Tables) Sheds(service int) bool {
	room := &t.Services[service].Room
	return (room.Limit > 0 || room.Adaptive) && len(t.Classes) > 1
}

// ServiceAt returns the index of the service that a connection to an address and port
// belongs to. A specific listen wins over one on any address, for which isLocal says
// whether the address is one of this host.
func (t *Tables) ServiceAt(to netip.AddrPort, isLocal func(netip.Addr) bool) (int, bool) {
	addr := to.Addr().Unmap()
	any := -1
	for i, s := range t.Services {
		for _, l := range s.Listen {
			if l.Port != to.Port() {
				continue
			}
			if l.Addr == addr {
				return i, true
			}
			if !l.Addr.IsValid() {
				any = i
			}
		}
	}
	if any < 0 || !isLocal(addr) {
		return 0, false
	}
	return any, true
}
