// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"
	"time"
)

// ruleItem collects what a rule says.
type ruleItem []attribute

func (r *ruleItem) set(key, value string) {
	if value != "" {
		*r = append(*r, attribute{key, value})
	}
}

func (r *ruleItem) list(key string, values []string) { r.set(key, strings.Join(values, " ")) }

// pairs adds patterns by name.
func (r *ruleItem) pairs(what string, pairs []Pair) {
	for _, p := range pairs {
		r.list(what+" "+p.Name, p.Values)
		r.list(what+" "+p.Name+" without case", p.Folded)
	}
}

// limit adds what both kinds of rules say of what they do.
func (r *ruleItem) limit(action Action, rate Limit, burst int, per Per, limits []Bound, when When) {
	r.set("action", action.String())
	for i, b := range limits {
		r.set(fmt.Sprintf("limit %d", i+1), b.String())
	}
	if rate.IsSet() {
		r.set("rate", rate.String())
		if burst > 0 {
			r.set("burst", fmt.Sprint(burst))
		}
		r.set("per", map[bool]string{true: "rule", false: per.String()}[per == PerRule])
	}
	r.set("when", when.meaning())
}

// className is how a rule's class is called now; empty: it names none.
func (d *differ) className(p *Policy, class int) string {
	switch {
	case class < 0:
		return ""
	case p == d.from:
		return d.classNamed(class)
	}
	return p.ClassName(class)
}

// serviceNames returns how services are called now.
func (d *differ) serviceNames(p *Policy, services []int) []string {
	names := p.serviceNames(services)
	for i := range names {
		if now, ok := d.service[names[i]]; ok && p == d.from {
			names[i] = now
		}
	}
	return names
}

func (d *differ) connectionItems(p *Policy) []item {
	items := make([]item, len(p.Connections))
	for i := range p.Connections {
		c := &p.Connections[i]
		var r ruleItem
		r.list("from", p.fromNames(c.From, c.FromLists))
		r.list("from_port", words(c.FromPort))
		r.list("to", d.serviceNames(p, c.To))
		var learned []string
		for _, class := range c.Learned {
			learned = append(learned, d.className(p, class))
		}
		r.list("learned", learned)
		r.limit(c.Action, c.Rate, c.Burst, c.Per, c.Limits, c.When)
		r.set("class", d.className(p, c.Class))
		items[i] = item{c.Name, r, strings.TrimPrefix(p.describeConnection(c), c.Name+": ")}
	}
	return items
}

func (d *differ) requestItems(p *Policy) []item {
	items := make([]item, len(p.Requests))
	for i := range p.Requests {
		q := &p.Requests[i]
		var r ruleItem
		r.list("from", p.fromNames(q.From, q.FromLists))
		r.list("to", append(d.serviceNames(p, q.To), words(q.ToAddrs)...))
		for _, field := range shownFields {
			r.list(textFields[field].key.name, q.texts(field))
		}
		r.pairs("cookie", q.Cookie)
		r.pairs("header", q.Header)
		r.pairs("query", q.Query)
		if q.Parameters > 0 {
			r.set("parameters", fmt.Sprintf("at least %d", q.Parameters))
		}
		for kind, names := range q.Without.lists() {
			r.list("without "+pairKinds[kind], names)
		}
		r.limit(q.Action, q.Rate, q.Burst, q.Per, q.Limits, q.When)
		if q.Action == ActionPolice {
			r.set("over", string(q.Over))
		}
		if q.Answer != nil {
			r.set("answer", q.Answer.For(q.cause(), 0).attribute())
		}
		r.set("block", spanOrNone(q.Block))
		r.set("class", d.className(p, q.Class))
		r.set("learn", spanOrNone(q.Learn))
		items[i] = item{q.Name, r, strings.TrimPrefix(p.describeRequest(q), q.Name+": ")}
	}
	return items
}

func spanOrNone(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return span(d)
}
