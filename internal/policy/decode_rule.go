// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// rawConnection is a connection rule with the names it refers to.
type rawConnection struct {
	Connection
	to, learned, fromLists []reference
	class                  reference
}

// rawRequest is a request rule with the names it refers to.
type rawRequest struct {
	Request
	class, answer         reference
	toServices, fromLists []reference
}

// The parsers of a rule's words.
var (
	parseConnectionAction = parseWord(connectionActions...)
	parseRequestAction    = parseWord(requestActions...)
)

func (d *decoder) connection(n *yaml.Node) rawConnection {
	c := rawConnection{Connection: Connection{Pos: position(n), Per: PerRule, Class: -1}}
	act := ""
	seen := d.mapping(n, &connectionForm, func(key string, n *yaml.Node) {
		switch key {
		case "name":
			scalar(d, n, key, &c.Name, parseName)
		case "from":
			c.From, c.fromLists = d.from(n)
		case "from_port":
			c.FromPort = distinct(d, n, key, parsePorts)
		case "to":
			c.to = d.differing(key, d.refs(n, key))
		case "learned":
			c.learned = d.refs(n, key)
		case "action":
			scalar(d, n, key, &act, parseConnectionAction)
		case "rate":
			d.rate(n, &c.Rate)
		case "burst":
			scalar(d, n, key, &c.Burst, parseBurst)
		case "per":
			d.per(n, &c.Per, false)
		case "limits":
			d.limits(n, &c.Limits, false)
		case "when":
			scalar(d, n, key, &c.When, parseWhen)
		case "class":
			scalar(d, n, key, &c.class, ref(n))
		}
	})
	if seen == nil {
		return c
	}
	d.required(n, "a connection rule", seen, "name", "a word of your choice")
	d.autoFits(seen, c.Rate, c.Per, &c.When)
	d.ruleDoes(n, "a connection rule", seen, act, c.When)
	d.whenFits(seen, c.When, act)
	d.needsRate(seen, "burst", "per")
	c.Action = actionOf(act, c.Rate.IsSet() || seen["limits"] != nil)
	d.burstFits(seen, c.Rate.Rate, c.Burst)
	c.BurstSet = c.Burst != 0
	if !c.BurstSet && c.Rate.Tokens != 0 {
		c.Burst = connectionBurst(c.Rate.Rate)
	}
	return c
}

// burstFits reports a burst that is too deep for its rate.
func (d *decoder) burstFits(seen map[string]*yaml.Node, rate Rate, burst int) {
	if err := rate.holds(burst); err != nil {
		d.errorAt(seen["burst"], "burst: %v", err)
	}
}

// actionOf returns what a rule does.
func actionOf(act string, limited bool) Action {
	switch {
	case act == "drop":
		return ActionDrop
	case act == "reject":
		return ActionReject
	case act == "pass":
		return ActionPass
	case limited:
		return ActionPolice
	}
	return ActionClassify
}

// ruleDoes reports a rule that does nothing and one whose keys contradict its action.
func (d *decoder) ruleDoes(n *yaml.Node, what string, seen map[string]*yaml.Node, act string, when When) {
	if seen["action"] == nil && seen["rate"] == nil && seen["limits"] == nil && seen["class"] == nil {
		d.errorAt(n, `%s without "action", "rate" or "class" does nothing; give it one of them`, what)
	}
	because := map[string]string{"drop": "drops all that it matches", "reject": "rejects all that it matches", "pass": "lets all that it matches go by every control"}[act]
	if because == "" {
		return
	}
	for _, key := range []string{"rate", "burst", "per", "limits", "over", "class", "learn"} {
		// What is not enforced at the moment still gives its class.
		sometimes := when != WhenAlways && (key == "class" || key == "learn")
		if k := seen[key]; k != nil && !(sometimes && act != "pass") {
			d.errorAt(k, `"action: %s" %s, so %q has no effect; remove one of the two`, act, because, key)
		}
	}
	if k := seen["block"]; k != nil && act == "pass" {
		d.errorAt(k, `"action: pass" rejects nobody, so "block" has no effect; remove one of the two`)
	}
}

// needsRate reports keys that mean something only beside a rate.
func (d *decoder) needsRate(seen map[string]*yaml.Node, keys ...string) {
	if seen["rate"] != nil || seen["action"] != nil {
		return
	}
	for _, key := range keys {
		if k := seen[key]; k != nil {
			d.errorAt(k, `%q has no effect without "rate"; add a rate, as "rate: 100/s", or remove it`, key)
		}
	}
}

// request decodes a request rule.
func (d *decoder) request(n *yaml.Node) rawRequest {
	r := rawRequest{Request: Request{Pos: position(n), Per: PerRule, Class: -1}}
	act := ""
	seen := d.mapping(n, &requestForm, func(key string, n *yaml.Node) {
		switch key {
		case "action":
			scalar(d, n, key, &act, parseRequestAction)
		case "class":
			scalar(d, n, key, &r.class, ref(n))
		case "answer":
			d.ruleAnswer(n, &r)
		case "from":
			r.From, r.fromLists = d.from(n)
		case "to":
			d.destinations(n, &r)
		default:
			d.matches(key, n, &r.Request)
			d.outcome(key, n, &r.Request)
		}
	})
	if seen == nil {
		return r
	}
	d.required(n, "a request rule", seen, "name", "a word of your choice")
	d.autoFits(seen, r.Rate, r.Per, &r.When)
	d.ruleDoes(n, "a request rule", seen, act, r.When)
	d.whenFits(seen, r.When, act)
	d.requestFits(seen, &r.Request)
	d.withoutFits(n, &r.Request)
	d.answerFits(seen, act, r.Over)
	r.Action = actionOf(act, r.Rate.IsSet() || seen["limits"] != nil)
	d.burstFits(seen, r.Rate.Rate, r.Burst)
	r.BurstSet = r.Burst != 0
	if !r.BurstSet && r.Rate.Tokens != 0 {
		r.Burst = requestBurst(r.Rate.Rate)
	}
	if r.Action == ActionPolice && r.Over == "" {
		r.Over = OverReject
	}
	if n := seen["burst"]; n != nil && seen["rate"] != nil {
		d.burstForPage(position(n), &r.Request, r.Rate.Rate, r.Burst, r.Per)
	}
	for _, b := range r.Limits {
		if b.BurstSet {
			d.burstForPage(b.burstAt, &r.Request, b.Rate, b.Burst, b.Per)
		}
	}
	return r
}

// burstForPage warns of a burst of a source, or of a value that is a visitor's, that is less than a page takes.
func (d *decoder) burstForPage(at Pos, r *Request, rate Rate, burst int, per Per) {
	if burst > 0 && burst < fewForPage && per != PerRule && per.Key.Kind != "host" && r.isOfPages() {
		d.warnf(at, `burst: %d requests of a source at once are fewer than a browser makes for a page: its visitors are refused; write %d or more, or leave it out for %d`, burst, fewForPage, requestBurst(rate))
	}
}

// isOfPages reports whether the rule may match what browsers load of themselves.
func (q *Request) isOfPages() bool {
	gets := func(method string) bool { return method == "GET" || strings.Contains(method, "*") }
	return !q.asksTLS() && (len(q.Method) == 0 || slices.ContainsFunc(q.Method, gets))
}

// matches decodes the keys that say which requests a rule is for.
func (d *decoder) matches(key string, n *yaml.Node, r *Request) {
	if at := textFieldOf(key); at >= 0 {
		f := &textFields[at]
		*f.of(r), d.newer = d.patterns(n, key, f.parse), d.newer || f.newer
		return
	}
	switch key {
	case "name":
		scalar(d, n, key, &r.Name, parseName)
	case "cookie":
		r.Cookie = d.pairs(n, key, parseToken)
	case "header":
		r.Header = d.pairs(n, key, parseHeaderName)
	case "query":
		r.Query, d.newer = d.query(n), true
	case "parameters":
		r.Parameters, d.newer = d.parameters(n), true
	case "without":
		r.Without, d.newer = d.without(n), true
	}
}

// outcome decodes the keys that say what a rule does to them.
func (d *decoder) outcome(key string, n *yaml.Node, r *Request) {
	switch key {
	case "rate":
		d.rate(n, &r.Rate)
	case "burst":
		scalar(d, n, key, &r.Burst, parseBurst)
	case "per":
		d.per(n, &r.Per, true)
	case "limits":
		d.limits(n, &r.Limits, true)
	case "when":
		scalar(d, n, key, &r.When, parseWhen)
	case "over":
		scalar(d, n, key, &r.Over, parseOver)
	case "block":
		scalar(d, n, key, &r.Block, parseDuration(time.Second, 24*time.Hour, time.Millisecond))
	case "learn":
		scalar(d, n, key, &r.Learn, parseDuration(time.Second, 30*24*time.Hour, time.Second))
	}
}

// keysOfTLS are what is seen of a TLS connection, keysOfHTTP what is seen of a request.
var (
	keysOfTLS  = keysSeenIn(true)
	keysOfHTTP = append(keysSeenIn(false), "cookie", "header", "query", "parameters", "without")
)

// requestFits reports keys of a request rule that do not go together.
func (d *decoder) requestFits(seen map[string]*yaml.Node, r *Request) {
	d.needsRate(seen, "burst", "per")
	if seen["limits"] == nil {
		d.needsRate(seen, "over")
	}
	if k := seen["block"]; k != nil && seen["rate"] == nil && seen["limits"] == nil && seen["action"] == nil {
		d.errorAt(k, `"block" has no effect where nothing is rejected; add a rate, as "rate: 100/s", or "action: drop" or "action: reject", or remove it`)
	}
	if k := seen["learn"]; k != nil && seen["class"] == nil && (seen["action"] == nil || r.When != WhenAlways) {
		d.errorAt(k, `"learn" remembers clients in the rule's class; add "class"`)
	}
	if r.Over == OverDemote && seen["block"] != nil {
		d.errorAt(seen["block"], `"over: demote" rejects nobody, so "block" has no effect; remove one of the two`)
	}
	for i, tls := range keysOfTLS {
		if slices.ContainsFunc(keysOfTLS[:i], func(before string) bool { return seen[before] != nil }) {
			break
		}
		for _, key := range keysOfHTTP {
			if seen[tls] != nil && seen[key] != nil {
				d.errorAt(seen[key], `%q is seen in TLS and %q in HTTP, so no request can match both; make it two rules`, tls, key)
			}
		}
		if seen[tls] != nil && r.Per.Key.Kind != "" {
			d.valuesOfTLS(position(seen["per"]), tls, r.Per)
		}
		for _, b := range r.Limits {
			if seen[tls] != nil && b.Per.Key.Kind != "" {
				d.valuesOfTLS(b.perAt, tls, b.Per)
			}
		}
	}
}

// valuesOfTLS reports buckets that go by values which nobody sees.
func (d *decoder) valuesOfTLS(at Pos, tls string, per Per) {
	d.errorf(at, `%q is seen in TLS and a request's %s in HTTP, so there are no values to go by; write "per: source"`, tls, per.Key.Kind)
}
