// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/httphead"
	"narthex/internal/policy"
	"narthex/internal/trial"
)

// splitURL takes a URL or a path apart into what a client puts into the Host header and into
// the request line. It leaves as they are what servers could read in two ways.
func splitURL(raw string) (host, target string, ok bool) {
	if strings.HasPrefix(raw, "/") {
		return "", raw, true
	}
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok || !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		return "", "", false
	}
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}
	host, target = rest[:end], rest[end:]
	host = host[strings.LastIndexByte(host, '@')+1:]
	if !strings.HasPrefix(target, "/") {
		target = "/" + target
	}
	return host, target, host != ""
}

// httpHead returns the head that a client would send, "" if the question is not about a request.
func httpHead(req api.ExplainRequest) string {
	if req.URL == "" && req.Method == "" && len(req.Headers) == 0 {
		return ""
	}
	host, target, _ := splitURL(cmp.Or(req.URL, "/"))
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\n", cmp.Or(req.Method, "GET"), target)
	named := func(h string) bool { return strings.HasPrefix(strings.ToLower(h), "host:") }
	if host != "" && !slices.ContainsFunc(req.Headers, named) {
		fmt.Fprintf(&b, "Host: %s\r\n", host)
	}
	for _, h := range req.Headers {
		fmt.Fprintf(&b, "%s\r\n", h)
	}
	return b.String() + "\r\n"
}

// serverName returns the name that a client of TLS would send, "" if it is not known.
func serverName(req api.ExplainRequest) string {
	if host, _, ok := splitURL(req.URL); ok && req.SNI == "" && strings.HasPrefix(strings.ToLower(req.URL), "https:") {
		if name, err := httphead.Host(host); err == nil {
			return name
		}
	}
	return httphead.ServerName(req.SNI)
}

// view returns what rules see of the request, and puts it into the decision; false: it is not
// looked at, or cannot be.
func (x Explainer) view(d *api.RequestDecision, service int, q question) (v policy.RequestView, seen bool) {
	switch x.Tables.Services[service].Room.Protocol {
	case policy.TLS:
		d.SNI, d.JA4 = serverName(q.request), q.request.JA4
		return x.placed(policy.ViewOfHello(d.SNI, nil, d.JA4), service, q), d.SNI+d.JA4 != ""
	case policy.TCP:
		return v, false
	}
	text := httpHead(q.request)
	if text == "" {
		return v, false
	}
	head, err := httphead.Read([]byte(text))
	if err != nil {
		d.Refused = err.Error()
		return v, true
	}
	if x.Tables.Requests != nil && x.Tables.Requests.Query {
		d.Refused = string(head.Query.Refused)
	}
	d.Method, d.Path, d.Host = head.Method, head.Path, head.Host
	return x.placed(policy.ViewOf(head), service, q), true
}

// placed returns a request with who has sent it, and where to.
func (x Explainer) placed(v *policy.RequestView, service int, q question) policy.RequestView {
	v.From, v.To, v.Lists = q.from, x.destination(service, q), x.Tables.ListsOf(q.from)
	return *v
}

// destination is where the connection is to, or may be to if the question does not say.
func (x Explainer) destination(service int, q question) netip.AddrPort {
	if q.to.IsValid() {
		return q.to
	}
	any := map[bool]netip.Addr{true: netip.IPv4Unspecified(), false: netip.IPv6Unspecified()}[q.from.Is4()]
	for _, l := range x.Tables.Services[service].Listen {
		if !l.Addr.IsValid() {
			return netip.AddrPortFrom(any, l.Port)
		}
		if l.Addr.Is4() == q.from.Is4() {
			return netip.AddrPortFrom(l.Addr, l.Port)
		}
	}
	return netip.AddrPort{}
}

// ruling decides about a request on a connection that was let in.
type ruling struct {
	*api.RequestDecision
	x       Explainer
	service int
	shadow  bool
	proxied bool // a trusted proxy sends it
	firm    bool // and says for whom, by an address that is no trusted proxy's
	from    netip.Addr
	port    uint16
	class   int
	waits   bool // it takes its turn
}

// decideRequest says what becomes of the request on a connection that was let in. It returns
// its class, and whether it takes its turn.
func (x Explainer) decideRequest(d *api.Decision, service int, q question, class int) (int, bool, error) {
	r := ruling{
		x: x, RequestDecision: &api.RequestDecision{Verdict: "pass"},
		service: service, shadow: d.Shadow, from: q.from, port: q.port, class: class, waits: true,
	}
	view, seen := x.view(r.RequestDecision, service, q)
	if !seen || !x.Tables.Services[service].Room.Ruled {
		return class, true, nil
	}
	d.Request = r.RequestDecision
	if r.Refused != "" {
		r.reject("malformed")
		return r.class, r.waits, nil
	}
	decided, err := r.byClient(&view)
	if err == nil && !decided {
		err = r.byRule(x.Policy.MatchRequest(&view), &view)
	}
	return r.class, r.waits, err
}

// end is a verdict against the request. In shadow mode it goes on.
func (r *ruling) end(verdict string) {
	r.waits = r.shadow
	if r.shadow {
		verdict = "would " + verdict
	}
	r.Verdict = verdict
}

// reject is a verdict with an answer, by its rule or, if there is one, for a reason of the data path.
func (r *ruling) reject(reason string) {
	r.end("reject")
	r.say(reason)
}

// say notes the answer to who is rejected.
func (r *ruling) say(reason string) {
	row := policy.RowOverload
	if i := slices.IndexFunc(r.x.Policy.Requests, func(q policy.Request) bool { return q.Name == r.Rule }); i >= 0 {
		row = r.x.Tables.Answers.Row[i]
	}
	r.Answer = r.x.Tables.Refused(r.service, row, reason)
}

// reset is what drop comes to: the connection of a trusted proxy is never reset.
func (r *ruling) reset() {
	if r.proxied {
		r.reject("")
	} else {
		r.end("drop")
	}
}

// byClient has the connection rule decide that matches the client of a trusted proxy.
func (r *ruling) byClient(v *policy.RequestView) (decided bool, err error) {
	if r.proxied = r.x.Tables.Trusts(r.service, r.from); !r.proxied {
		return false, nil
	}
	trusted := func(a netip.Addr) bool { return r.x.Tables.Trusts(r.service, a) }
	from, firm := trial.ForwardedFor(v.Headers, trusted)
	if !from.IsValid() {
		return false, nil
	}
	r.from, r.firm, r.Client = from, firm, from.String()
	v.From, v.Lists = from, r.x.Tables.ListsOf(from)
	learned, blocked, err := r.x.remembered(from)
	if err != nil {
		return false, err
	}
	rule := r.x.Tables.LookupLearned(r.service, learned, from, r.port)
	if rule >= 0 {
		r.ClientRule = r.x.Policy.Connections[rule].Name
	}
	r.class = r.x.Tables.SourceClass(r.service, rule, learned)
	r.Class = r.x.Policy.ClassName(r.class)
	switch {
	case blocked > 0:
		r.Blocked, r.BlockedBy = blocked.Seconds(), blockers(r.x.Policy)
		r.reject("blocked")
	case rule < 0:
		return false, nil
	case r.x.dropsNow(r.service, &r.x.Policy.Connections[rule]):
		r.reject("")
	case r.x.Policy.Connections[rule].Action == policy.ActionPass:
		r.waits = r.shadow
	default:
		return false, nil
	}
	return true, nil
}

// byRule has a request rule decide, if any.
func (r *ruling) byRule(rule int, v *policy.RequestView) error {
	if rule < 0 {
		return nil
	}
	p := &r.x.Policy.Requests[rule]
	r.Rule, r.Action = p.Name, p.Action.String()
	if !r.proxied || r.firm { // else it is not known whom to block
		r.Block = p.Block.Seconds()
	}
	if !r.proxied {
		r.Learn = p.Learn.Seconds()
	}
	if p.Class >= 0 {
		r.class = p.Class
	}
	var action policy.Action
	r.When, r.Enforced, action = r.x.enforced(r.service, p.When, p.Action)
	r.Over = string(p.Over)
	if p.Rate.IsSet() {
		r.Rate, r.Burst, r.Per = p.Rate.String(), uint32(p.Burst), p.Per.Word()
	}
	switch action {
	case policy.ActionPass:
		r.waits = r.shadow
	case policy.ActionDrop:
		r.reset()
	case policy.ActionReject:
		r.reject("")
	case policy.ActionPolice:
		if err := r.ask(rule, v); err != nil {
			return err
		}
	}
	r.Class = r.x.Policy.ClassName(r.class)
	return nil
}

// ask lets the buckets of a rule decide, those of the values that they go by, if they do.
func (r *ruling) ask(rule int, v *policy.RequestView) error {
	p := &r.x.Policy.Requests[rule]
	a := asked{rate: p.Rate, per: p.Per, limits: p.Limits}
	if r.x.RequestBucket != nil {
		a.read = func(limit int, per policy.Per) (datapath.Bucket, error) {
			return r.x.RequestBucket(rule, limit, r.from, per.Key.Value(v))
		}
	}
	err := a.ask(r.Rule)
	r.Bucket, r.Limits = a.bucket, a.said
	if a.read == nil {
		if r.Verdict = "by the bucket"; policy.Over(r.Over) == policy.OverReject {
			r.say("")
		}
	}
	if !a.refused {
		return err
	}
	switch policy.Over(r.Over) {
	case policy.OverDemote:
		r.class, r.Verdict = len(r.x.Policy.Classes)-1, "demote"
	case policy.OverDrop:
		r.reset()
	default:
		r.reject("")
	}
	return nil
}
