// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"time"
	"unsafe"
)

// Meaning is what a policy means, with every default filled in: the form that
// `narthex check --json` prints. Keys are only ever added.
type Meaning struct {
	File         string              `json:"file"`
	Hash         string              `json:"hash"`
	Services     []ServiceMeaning    `json:"services"`
	Pools        []PoolMeaning       `json:"pools,omitempty"`
	Classes      []ClassMeaning      `json:"classes"`
	DefaultClass string              `json:"default_class"`
	Connections  []ConnectionMeaning `json:"connections"`
	Requests     []RequestMeaning    `json:"requests"`
	Tables       TablesMeaning       `json:"tables"`
	NotEnforced  []string            `json:"not_enforced"` // always empty: everything that is valid is enforced
}

// ServiceMeaning is one service.
type ServiceMeaning struct {
	Name           string           `json:"name"`
	Line           int              `json:"line"`
	Listen         []string         `json:"listen"`
	Interfaces     []string         `json:"interfaces,omitempty"` // absent: those with an address
	XDP            XDPMode          `json:"xdp"`
	Protocol       Protocol         `json:"protocol"`
	Concurrency    string           `json:"concurrency"`               // a number, unlimited or auto
	MinConcurrency int              `json:"min_concurrency,omitempty"` // of auto
	MaxConcurrency int              `json:"max_concurrency,omitempty"` // of auto; absent: none
	TargetSeconds  float64          `json:"target_seconds,omitempty"`  // of auto; absent: as long as a request takes
	Queue          QueueMeaning     `json:"queue"`
	Overload       *OverloadMeaning `json:"overload,omitempty"` // absent: when its levels begin is by default
	ServiceEnds    ServiceEnd       `json:"service_ends"`
	Reject         *AnswerMeaning   `json:"reject"`              // null: reset
	OverRate       *AnswerMeaning   `json:"over_rate,omitempty"` // who is over a rate of a request rule; absent: reset
	TrustedProxies []string         `json:"trusted_proxies,omitempty"`
	H2C            H2C              `json:"h2c"`
	Requests       int              `json:"requests_per_connection,omitempty"` // absent: as many as it likes
	Mode           string           `json:"mode"`
	WaitingRoom    bool             `json:"waiting_room"` // something bounds its requests in service
	Labels         []string         `json:"labels,omitempty"`
	SocketMark     uint32           `json:"socket_mark,omitempty"` // of the most important class
	Pool           string           `json:"pool,omitempty"`        // that it shares places with others in
	Share          int              `json:"share,omitempty"`       // of that pool, where its members have shares
}

// QueueMeaning is the waiting room of a service.
type QueueMeaning struct {
	Size       int     `json:"size"`
	MaxWait    float64 `json:"max_wait_seconds"`
	MaxService float64 `json:"max_service_seconds"`
	Target     float64 `json:"target_seconds,omitempty"` // while overload lasts
}

// OverloadMeaning is when the levels of overload begin and end.
type OverloadMeaning struct {
	After     float64 `json:"after_seconds"`
	Calm      float64 `json:"calm_seconds"`
	Rejecting string  `json:"rejecting"`
	Flooded   string  `json:"flooded,omitempty"` // absent: when more are turned away than answered
}

// AnswerMeaning is an answer to who is not served.
type AnswerMeaning struct {
	Status     int    `json:"status"`
	RetryAfter int    `json:"retry_after_seconds"`
	Page       string `json:"page,omitempty"` // none, or a file; absent: Narthex's own
	RefusedBy  bool   `json:"refused_by"`
}

// ClassMeaning is one class; the most important one comes first.
type ClassMeaning struct {
	Name     string  `json:"name"`
	Priority int     `json:"priority"`
	Reserve  int     `json:"reserve_percent,omitempty"`
	Max      int     `json:"max,omitempty"`
	Stall    float64 `json:"stall_seconds,omitempty"`
	Socket   int     `json:"socket_priority,omitempty"` // SO_PRIORITY
	Fair     string  `json:"fair"`                      // as a policy has it
	Known    float64 `json:"known_seconds,omitempty"`
}

// BucketMeaning is a rate limit.
type BucketMeaning struct {
	Rate       string        `json:"rate"`
	IntervalNs time.Duration `json:"interval_ns"` // for one token; 0: the rate sets itself
	Burst      int           `json:"burst"`       // 0: it follows the rate
}

// ConnectionMeaning is one connection rule. Absent lists match everything.
type ConnectionMeaning struct {
	Name     string         `json:"name"`
	Line     int            `json:"line"`
	From     []string       `json:"from,omitempty"`
	FromPort []string       `json:"from_port,omitempty"`
	To       []string       `json:"to,omitempty"`
	Learned  []string       `json:"learned,omitempty"`
	Action   string         `json:"action"` // police, drop, pass or classify
	Bucket   *BucketMeaning `json:"bucket,omitempty"`
	Per      *PerMeaning    `json:"per,omitempty"` // absent: one bucket for the rule
	Limits   []LimitMeaning `json:"limits,omitempty"`
	When     string         `json:"when,omitempty"` // absent: always
	Class    string         `json:"class,omitempty"`
}

// PerMeaning is who shares a bucket: sources with prefixes of these lengths, or requests with the same
// value of what a word names, and sources among those without.
type PerMeaning struct {
	V4     int    `json:"v4"`
	V6     int    `json:"v6"`
	Header string `json:"header,omitempty"`
	Cookie string `json:"cookie,omitempty"`
	Query  string `json:"query,omitempty"`
	Host   bool   `json:"host,omitempty"`
}

// meaning is nil for one bucket for the rule.
func (p Per) meaning() *PerMeaning {
	if p == PerRule {
		return nil
	}
	m := &PerMeaning{V4: p.V4, V6: p.V6}
	switch p.Key.Kind {
	case "header":
		m.Header = p.Key.Name
	case "cookie":
		m.Cookie = p.Key.Name
	case "query":
		m.Query = p.Key.Name
	case "host":
		m.Host = true
	}
	return m
}

// RequestMeaning is one request rule. Absent lists match everything.
type RequestMeaning struct {
	Name   string              `json:"name"`
	Line   int                 `json:"line"`
	From   []string            `json:"from,omitempty"`
	To     []string            `json:"to,omitempty"`
	Path   []string            `json:"path,omitempty"`
	Host   []string            `json:"host,omitempty"`
	Method []string            `json:"method,omitempty"`
	SNI    []string            `json:"sni,omitempty"`
	ALPN   []string            `json:"alpn,omitempty"`
	JA4    []string            `json:"ja4,omitempty"`
	Cookie map[string][]string `json:"cookie,omitempty"`
	Header map[string][]string `json:"header,omitempty"`
	Query  map[string][]string `json:"query,omitempty"`
	// Of patterns that match without case.
	CookieFolded map[string][]string `json:"cookie_ignore_case,omitempty"`
	HeaderFolded map[string][]string `json:"header_ignore_case,omitempty"`
	QueryFolded  map[string][]string `json:"query_ignore_case,omitempty"`
	Parameters   int                 `json:"min_parameters,omitempty"`
	Without      *WithoutMeaning     `json:"without,omitempty"`
	Action       string              `json:"action"`
	Bucket       *BucketMeaning      `json:"bucket,omitempty"`
	Per          *PerMeaning         `json:"per,omitempty"` // absent: one bucket for the rule
	Limits       []LimitMeaning      `json:"limits,omitempty"`
	When         string              `json:"when,omitempty"` // absent: always
	Over         Over                `json:"over,omitempty"`
	Block        float64             `json:"block_seconds,omitempty"`
	Class        string              `json:"class,omitempty"`
	Learn        float64             `json:"learn_seconds,omitempty"`
	Answer       *AnswerMeaning      `json:"answer,omitempty"` // absent: the service's
}

// WithoutMeaning is what a request must not have, by name.
type WithoutMeaning struct {
	Header []string `json:"header,omitempty"`
	Cookie []string `json:"cookie,omitempty"`
	Query  []string `json:"query,omitempty"`
}

// TablesMeaning is the size of the tables that connection rules compile to.
type TablesMeaning struct {
	Nodes int `json:"nodes"`
	Bytes int `json:"bytes"`
	Steps int `json:"steps"` // of the longest look-up

	Requests *RequestTablesMeaning `json:"requests,omitempty"` // absent: there are no request rules
}

// RequestTablesMeaning is the size of the tables that request rules compile to.
type RequestTablesMeaning struct {
	Keys   int `json:"keys"`   // of the hash table
	Nodes  int `json:"nodes"`  // of the graph of rules with several keys
	States int `json:"states"` // of the automaton that finds what stands between stars
	Bytes  int `json:"bytes"`
}

// String returns the action in a word.
func (a Action) String() string {
	switch a {
	case ActionPolice:
		return "police"
	case ActionDrop:
		return "drop"
	case ActionPass:
		return "pass"
	case ActionReject:
		return "reject"
	}
	return "classify"
}

// Meaning returns what the policy and its tables mean.
func (p *Policy) Meaning(t *Tables) *Meaning {
	m := &Meaning{
		File: p.File, Hash: p.Hash, DefaultClass: p.Classes[p.Default].Name, Tables: t.size(),
		Services: []ServiceMeaning{}, Classes: []ClassMeaning{}, Connections: []ConnectionMeaning{}, Requests: []RequestMeaning{}, NotEnforced: []string{},
	}
	for i := range p.Services {
		m.Services = append(m.Services, p.Services[i].meaning())
		m.Services[i].WaitingRoom = t.HasRoom(i)
		m.Services[i].Pool, m.Services[i].Share = p.Services[i].Membership.meaning(p)
	}
	m.Pools = p.poolMeanings()
	for _, c := range t.Classes {
		m.Classes = append(m.Classes, ClassMeaning{c.Name, c.Priority, c.Reserve, c.Max, c.Stall.Seconds(), c.SocketPriority, c.Fair.String(), c.Known.Seconds()})
	}
	for i := range p.Connections {
		m.Connections = append(m.Connections, p.connectionMeaning(&p.Connections[i]))
	}
	for i := range p.Requests {
		m.Requests = append(m.Requests, p.requestMeaning(&p.Requests[i]))
	}
	return m
}

func (s *Service) meaning() ServiceMeaning {
	m := ServiceMeaning{
		Name: s.Name, Line: s.Pos.Line, Listen: words(s.Listen), Interfaces: s.Interfaces, XDP: s.XDP,
		Protocol: s.Protocol, Concurrency: s.Concurrency.word(), MinConcurrency: s.Concurrency.floor(), MaxConcurrency: s.Concurrency.ceiling(),
		TargetSeconds: s.Concurrency.target().Seconds(), ServiceEnds: s.ServiceEnds,
		Queue:          QueueMeaning{s.Queue.Size, s.Queue.MaxWait.Seconds(), s.Queue.MaxService.Seconds(), s.Queue.Target.Seconds()},
		TrustedProxies: words(s.TrustedProxies), H2C: s.H2C, Requests: s.Requests, Mode: "enforce", SocketMark: s.SocketMark, Labels: s.Labels.words(),
	}
	if s.Shadow {
		m.Mode = "shadow"
	}
	if o := s.Overload; o != (Overload{}) {
		all := o.withDefaults()
		m.Overload = &OverloadMeaning{After: all.After.Seconds(), Calm: all.Calm.Seconds(), Rejecting: all.Rejecting.String()}
		if o.Flooded.Tokens > 0 {
			m.Overload.Flooded = o.Flooded.String()
		}
	}
	if !s.Reject.Reset {
		m.Reject = s.Reject.meaning(CauseOverload, 0)
		m.OverRate = s.Reject.meaning(CauseRate, 0)
	}
	return m
}

func (a Answer) meaning(cause Cause, block time.Duration) *AnswerMeaning {
	a = a.For(cause, block)
	m := &AnswerMeaning{a.Status, int(a.RetryAfter / time.Second), a.Page.File, !a.Unsigned}
	if a.Page.None {
		m.Page = "none"
	}
	return m
}

func (p *Policy) connectionMeaning(r *Connection) ConnectionMeaning {
	m := ConnectionMeaning{
		Name: r.Name, Line: r.Pos.Line, From: p.fromNames(r.From, r.FromLists), FromPort: words(r.FromPort),
		To: p.serviceNames(r.To), Action: r.Action.String(), Bucket: bucketMeaning(r.Rate, r.Burst), When: r.When.meaning(),
	}
	for _, c := range r.Learned {
		m.Learned = append(m.Learned, p.Classes[c].Name)
	}
	m.Per, m.Limits = r.Per.meaning(), limitsMeaning(r.Limits)
	if r.Class >= 0 {
		m.Class = p.Classes[r.Class].Name
	}
	return m
}

func (p *Policy) requestMeaning(r *Request) RequestMeaning {
	plain := func(pairs []Pair) map[string][]string {
		return pairMap(pairs, func(p *Pair) []string { return p.Values })
	}
	folded := func(pairs []Pair) map[string][]string {
		return pairMap(pairs, func(p *Pair) []string { return p.Folded })
	}
	m := RequestMeaning{
		Name: r.Name, Line: r.Pos.Line, From: p.fromNames(r.From, r.FromLists), To: p.ToNames(r),
		Cookie: plain(r.Cookie), Header: plain(r.Header), Query: plain(r.Query), Parameters: r.Parameters,
		CookieFolded: folded(r.Cookie), HeaderFolded: folded(r.Header), QueryFolded: folded(r.Query), Action: r.Action.String(),
		Bucket: bucketMeaning(r.Rate, r.Burst), Over: r.Over, Block: r.Block.Seconds(), Learn: r.Learn.Seconds(), When: r.When.meaning(),
	}
	for field := range textFields {
		*textFields[field].meant(&m) = r.texts(field)
	}
	if !r.Without.empty() {
		m.Without = (*WithoutMeaning)(&r.Without)
	}
	if r.Rate.IsSet() {
		m.Per = r.Per.meaning()
	}
	m.Limits = limitsMeaning(r.Limits)
	if r.Class >= 0 {
		m.Class = p.Classes[r.Class].Name
	}
	if r.Answer != nil {
		m.Answer = r.Answer.meaning(r.cause(), r.Block)
	}
	return m
}

// meaning returns the word in a policy, empty for the default.
func (w When) meaning() string {
	if w == WhenAlways {
		return ""
	}
	return w.String()
}

func bucketMeaning(r Limit, burst int) *BucketMeaning {
	if !r.IsSet() {
		return nil
	}
	return &BucketMeaning{r.String(), r.Interval(), burst}
}

// pairMap returns patterns by name.
func pairMap(pairs []Pair, of func(*Pair) []string) map[string][]string {
	m := make(map[string][]string, len(pairs))
	for i := range pairs {
		if patterns := of(&pairs[i]); len(patterns) > 0 {
			m[pairs[i].Name] = patterns
		}
	}
	return m
}

// serviceNames returns the names of services by index.
func (p *Policy) serviceNames(services []int) []string {
	var out []string
	for _, s := range services {
		out = append(out, p.Services[s].Name)
	}
	return out
}

// words returns values as they are written in a policy.
func words[T fmt.Stringer](values []T) []string {
	var out []string
	for _, v := range values {
		out = append(out, v.String())
	}
	return out
}

// size measures the tables.
func (t *Tables) size() TablesMeaning {
	depth := make([]int, len(t.Nodes)) // 0: not known yet
	var longest func(Entry) int
	longest = func(e Entry) int {
		i, ok := e.Node()
		if !ok {
			return 0
		}
		if depth[i] == 0 {
			below := longest(t.Nodes[i].Miss)
			for _, c := range t.Nodes[i].Child {
				below = max(below, longest(c))
			}
			depth[i] = below + 1
		}
		return depth[i]
	}
	steps := 0
	for _, s := range t.Services {
		for _, r := range append(s.Learned, s.Roots, s.Trusted) {
			steps = max(steps, longest(r.RootV4), longest(r.RootV6))
		}
	}
	return TablesMeaning{len(t.Nodes), len(t.Nodes) * int(unsafe.Sizeof(Node{})), steps, t.Requests.size()}
}

// size measures the tables of the request rules.
func (t *RequestTables) size() *RequestTablesMeaning {
	if t == nil {
		return nil
	}
	m := &RequestTablesMeaning{Nodes: len(t.Nodes), States: len(t.States) / max(t.Width, 1), Bytes: t.Bytes()}
	for i := range t.Entries {
		if t.Entries[i].Key != 0 {
			m.Keys++
		}
	}
	return m
}
