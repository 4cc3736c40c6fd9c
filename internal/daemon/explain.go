// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/policy"
)

// assumedPort is the source port of a connection that names none: the first of those that
// clients take (RFC 6335).
const assumedPort = 49152

// Explainer tells what a policy would do, without sending anything.
type Explainer struct {
	Policy *policy.Policy
	Tables *policy.Tables
	// Local reports whether an address is one of the host's. Nil takes any for one.
	Local func(netip.Addr) bool
	// Bucket reads a live bucket. Nil: there are none.
	Bucket func(rule, limit int, from netip.Addr) (datapath.Bucket, error)
	// RequestBucket reads that of a request rule, by the value that its buckets go by. Nil: there are none.
	RequestBucket func(rule, limit int, from netip.Addr, value string) (datapath.Bucket, error)
	// Client reads what is remembered of a client. Nil: nothing is.
	Client func(from netip.Addr) (datapath.Client, error)
	// Rooms reads the waiting rooms. Nil: there are none.
	Rooms func() ([]datapath.Room, error)
	// Adaptation says how a service is steered, nil for one that is not. Nil: that is not known.
	Adaptation func(service string) *api.AdaptationStatus
	// arrival says by which interface a source's SYN comes. Nil: that is not known.
	arrival func(from netip.Addr) (a arrival, note string, err error)
}

// Explain answers a question.
func (x Explainer) Explain(req api.ExplainRequest) (api.ExplainResult, error) {
	q, err := parseQuestion(req)
	if err != nil {
		return api.ExplainResult{}, err
	}
	result := api.ExplainResult{From: req.From, To: req.To}
	note := func(sentence string) {
		if sentence != "" {
			result.Notes = append(result.Notes, sentence)
		}
	}
	at, doubt, err := x.arrivalOf(q.from)
	if err != nil {
		return api.ExplainResult{}, err
	}
	services, none := x.candidates(q)
	forgot, err := x.remember(&q)
	if err != nil {
		return api.ExplainResult{}, err
	}
	note(x.assumePort(&q, services))
	for _, i := range services {
		decision, err := x.decide(i, q, at)
		if err != nil {
			return api.ExplainResult{}, err
		}
		result.Decisions = append(result.Decisions, decision)
	}
	if len(services) == 0 {
		result.Decisions = []api.Decision{{Interface: at.link.Name, Reason: none, Verdict: "pass"}}
	} else if q.to.IsValid() && !x.local(q.to.Addr()) {
		note(notLocal(q.to.Addr()))
	}
	note(doubt)
	note(forgot)
	note(x.overloadNote(result.Decisions))
	note(x.requestNote(req))
	result.Notes = api.List(result.Notes)
	return result, nil
}

func (x Explainer) arrivalOf(from netip.Addr) (arrival, string, error) {
	if x.arrival == nil {
		return arrival{}, "interfaces and local addresses are not known without a daemon: the destination is taken for local, and policed where the connection arrives", nil
	}
	return x.arrival(from)
}

func (x Explainer) local(addr netip.Addr) bool { return x.Local == nil || x.Local(addr) }

func notLocal(addr netip.Addr) string {
	return fmt.Sprintf("%s is not an address of this machine", addr)
}

// assumePort gives the question a source port if it has none, and says so if it matters.
func (x Explainer) assumePort(q *question, services []int) string {
	if q.port != 0 {
		return ""
	}
	q.port = assumedPort
	if !slices.ContainsFunc(services, func(s int) bool { return x.portMatters(s, q) }) {
		return ""
	}
	return fmt.Sprintf("source port %d is assumed, and rules depend on it: name one with --from IP:PORT", assumedPort)
}

// portMatters reports whether a rule that asks for the source's port could decide.
func (x Explainer) portMatters(service int, q *question) bool {
	for _, c := range x.Policy.Connections {
		in := func(list int) bool { return x.Tables.ListsOf(q.from)>>list&1 != 0 }
		within := func(r policy.Range) bool { return r.First.Compare(q.from) <= 0 && q.from.Compare(r.Last) <= 0 }
		if len(c.Learned) > 0 && !slices.Contains(c.Learned, q.learned) || len(c.To) > 0 && !slices.Contains(c.To, service) ||
			len(c.From)+len(c.FromLists) > 0 && !slices.ContainsFunc(c.From, within) && !slices.ContainsFunc(c.FromLists, in) {
			continue
		}
		return len(c.FromPort) > 0 // else this rule decides whatever the port is
	}
	return false
}

func (x Explainer) requestNote(req api.ExplainRequest) string {
	switch {
	case req.URL == "" && req.Method == "" && req.SNI == "" && req.JA4 == "" && len(req.Headers) == 0:
		return ""
	case x.Tables.Requests == nil:
		return "the policy has no request rules: what the request says makes no difference"
	case req.To == "" && slices.ContainsFunc(x.Policy.Requests, func(r policy.Request) bool { return len(r.ToAddrs) > 0 }):
		return "request rules depend on the address that the connection is to: name one with --to"
	}
	return ""
}

// remember finds out what is remembered of the client, or says that it is not known.
func (x Explainer) remember(q *question) (string, error) {
	if x.Client == nil {
		asks := slices.ContainsFunc(x.Policy.Connections, func(c policy.Connection) bool { return len(c.Learned) > 0 })
		if asks || slices.ContainsFunc(x.Policy.Services, func(s policy.Service) bool { return s.Labels.Header }) {
			return "clients that are learned are not known without a daemon: this one is taken for none", nil
		}
		return "", nil
	}
	var err error
	q.learned, q.blocked, err = x.remembered(q.from)
	return "", err
}

// remembered reads in which class a client is learned, and how long it is blocked yet.
func (x Explainer) remembered(from netip.Addr) (learned int, blocked time.Duration, err error) {
	if x.Client == nil {
		return policy.NotLearned, 0, nil
	}
	c, err := x.Client(from)
	if err != nil {
		return 0, 0, fmt.Errorf("read what is remembered of %s: %w", from, err)
	}
	if slices.ContainsFunc(x.Policy.Requests, func(r policy.Request) bool { return r.Block > 0 }) {
		blocked = c.Blocked
	}
	return c.Class, blocked, nil
}

// blockers are the rules that may have blocked a client. Which one did is not remembered.
func blockers(p *policy.Policy) (names []string) {
	for i := range p.Requests {
		if p.Requests[i].Block > 0 {
			names = append(names, p.Requests[i].Name)
		}
	}
	return names
}

// candidates returns the services that a connection may be to: the one, or all that can
// be reached in the source's family if there is no destination; or says why there is none.
func (x Explainer) candidates(q question) (services []int, none string) {
	if !q.to.IsValid() {
		for i, s := range x.Tables.Services {
			reachable := func(l policy.Listen) bool { return !l.Addr.IsValid() || l.Addr.Is4() == q.from.Is4() }
			if slices.ContainsFunc(s.Listen, reachable) {
				services = append(services, i)
			}
		}
		return services, fmt.Sprintf("no service listens on an %s address", familyText(q.from))
	}
	if i, ok := x.Tables.ServiceAt(q.to, x.local); ok {
		return []int{i}, ""
	}
	if !x.local(q.to.Addr()) {
		return nil, notLocal(q.to.Addr()) + ", and forwarded traffic is left alone"
	}
	return nil, "no service listens there"
}

func familyText(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

func (x Explainer) decide(service int, q question, at arrival) (api.Decision, error) {
	s := x.Tables.Services[service]
	d := api.Decision{Service: s.Name, Shadow: s.Shadow, Interface: at.link.Name, Class: x.Policy.ClassName(-1), Verdict: "pass"}
	if at.link.Index != 0 {
		d.Reason = at.notPoliced(service, s.Name, s.Interfaces)
		policed := d.Reason == ""
		if d.Policed = &policed; !policed {
			return d, nil
		}
	}
	if q.learned != policy.NotLearned {
		d.Learned = x.Policy.ClassName(q.learned)
	}
	if q.blocked > 0 {
		d.Reason, d.Verdict = fmt.Sprintf("blocked for another %s by request rule %s", q.blocked.Round(time.Millisecond), strings.Join(blockers(x.Policy), " or ")), dropText(s.Shadow)
		return d, nil
	}
	rule := x.Tables.LookupLearned(service, q.learned, q.from, q.port)
	class := x.Tables.SourceClass(service, rule, q.learned)
	d.Class = x.Policy.ClassName(class)
	if rule < 0 {
		return d, x.takeTurn(&d, service, q, class)
	}
	c := x.Policy.Connections[rule]
	d.Rule, d.Action = c.Name, c.Action.String()
	var action policy.Action
	d.When, d.Enforced, action = x.enforced(service, c.When, c.Action)
	if c.Rate.IsSet() {
		d.Rate, d.Burst, d.Per = c.Rate.String(), uint32(c.Burst), c.Per.Word()
	}
	switch action {
	case policy.ActionDrop:
		d.Verdict = dropText(s.Shadow)
		return d, nil
	case policy.ActionPass: // by the waiting room, too
		return d, nil
	case policy.ActionPolice:
		if err := x.ask(&d, rule, q.from); err != nil {
			return d, err
		}
	}
	return d, x.takeTurn(&d, service, q, class)
}

// takeTurn says what becomes of the request on a connection of a class, and whether it would
// have to wait; or of the connection.
func (x Explainer) takeTurn(d *api.Decision, service int, q question, class int) error {
	if d.Verdict == "drop" {
		return x.askRoom(d, service, class)
	}
	class, goesOn, err := x.decideRequest(d, service, q, class)
	if err != nil || !goesOn {
		return err
	}
	return x.askRoom(d, service, class)
}

// ask lets the buckets decide.
func (x Explainer) ask(d *api.Decision, rule int, from netip.Addr) error {
	c := &x.Policy.Connections[rule]
	a := asked{rate: c.Rate, limits: c.Limits}
	if x.Bucket != nil {
		a.read = func(limit int, _ policy.Per) (datapath.Bucket, error) { return x.Bucket(rule, limit, from) }
	}
	err := a.ask(d.Rule)
	d.Bucket, d.Limits = a.bucket, a.said
	switch {
	case a.read == nil:
		d.Verdict = "by the bucket"
	case a.refused:
		d.Verdict = dropText(d.Shadow)
	}
	return err
}

func bucketStatus(b datapath.Bucket) *api.BucketStatus {
	return &api.BucketStatus{Known: b.Known, Tokens: b.Tokens, FullIn: b.Full.Seconds()}
}

func dropText(shadow bool) string {
	if shadow {
		return "would drop"
	}
	return "drop"
}

// explain answers with the levels of the live buckets.
func (e *engine) explain(req api.ExplainRequest) (api.ExplainResult, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return Explainer{
		Policy: e.current.policy,
		Tables: e.current.tables,
		Bucket: e.dp.Bucket,
		Client: e.dp.Client,
		Rooms:  e.dp.Rooms,

		Adaptation: func(service string) *api.AdaptationStatus {
			return e.agent.adaptation(service, e.current.tables.Classes)
		},
		RequestBucket: e.dp.RequestBucket,
		arrival:       e.arrivalOf,
		Local: func(a netip.Addr) bool {
			return a.IsLoopback() || slices.ContainsFunc(e.snap.Locals, func(p netip.Prefix) bool { return p.Contains(a) })
		},
	}.Explain(req)
}

// Offline explains a policy file that is not in force.
func Offline(file string, req api.ExplainRequest) (api.ExplainResult, error) {
	next, err := load(file, policy.ReadFile)
	if err != nil {
		return api.ExplainResult{}, err
	}
	return Explainer{Policy: next.policy, Tables: next.tables}.Explain(req)
}
