// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"time"

	"go.yaml.in/yaml/v3"
)

// rawConnection is a connection rule with the names it refers to.
type rawConnection struct {
	Connection
	to, learned []reference
	class       reference
}

// rawRequest is a request rule with the names it refers to.
type rawRequest struct {
	Request
	class reference
}

func (d *decoder) connection(n *yaml.Node) rawConnection {
	c := rawConnection{Connection: Connection{Pos: position(n), Per: PerRule, Class: -1}}
	act := ""
	seen := d.mapping(n, "a connection rule", []field{
		{"name", func(n *yaml.Node) { scalar(d, n, "name", &c.Name, parseName) }},
		{"from", func(n *yaml.Node) { c.From = distinct(d, n, "from", parseRange) }},
		{"from_port", func(n *yaml.Node) { c.FromPort = distinct(d, n, "from_port", parsePorts) }},
		{"to", func(n *yaml.Node) { c.to = d.differing("to", d.refs(n, "to")) }},
		{"learned", func(n *yaml.Node) { c.learned = d.refs(n, "learned") }},
		{"action", func(n *yaml.Node) { scalar(d, n, "action", &act, parseWord("drop", "pass")) }},
		{"rate", func(n *yaml.Node) { scalar(d, n, "rate", &c.Rate, parseRate) }},
		{"burst", func(n *yaml.Node) { scalar(d, n, "burst", &c.Burst, parseBurst) }},
		{"per", func(n *yaml.Node) { d.per(n, &c.Per) }},
		{"class", func(n *yaml.Node) { scalar(d, n, "class", &c.class, ref(n)) }},
	})
	if seen == nil {
		return c
	}
	d.required(n, "a connection rule", seen, "name", "a word of your choice")
	d.ruleDoes(n, "a connection rule", seen, act)
	d.needsRate(seen, "burst", "per")
	c.Action = actionOf(act, c.Rate)
	c.BurstSet = c.Burst != 0
	if !c.BurstSet && c.Rate.Tokens != 0 {
		c.Burst = c.Rate.defaultBurst()
	}
	return c
}

// actionOf returns what a rule does.
func actionOf(act string, rate Rate) Action {
	switch {
	case act == "drop":
		return ActionDrop
	case act == "pass":
		return ActionPass
	case rate.Tokens != 0:
		return ActionPolice
	}
	return ActionClassify
}

// ruleDoes reports a rule that does nothing and one whose keys contradict its action.
func (d *decoder) ruleDoes(n *yaml.Node, what string, seen map[string]*yaml.Node, act string) {
	if seen["action"] == nil && seen["rate"] == nil && seen["class"] == nil {
		d.errorAt(n, `%s without "action", "rate" or "class" does nothing; give it one of them`, what)
	}
	because := map[string]string{"drop": "drops all that it matches", "pass": "lets all that it matches go by every control"}[act]
	if because == "" {
		return
	}
	for _, key := range []string{"rate", "burst", "per", "over", "class", "learn"} {
		if k := seen[key]; k != nil {
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

// per decodes who shares a bucket.
func (d *decoder) per(n *yaml.Node, per *Per) {
	if n.Kind != yaml.MappingNode {
		var word string
		scalar(d, n, "per", &word, parseWord("rule", "source"))
		if word == "source" {
			*per = PerSource
		}
		return
	}
	p := PerSource
	seen := d.mapping(n, "per", []field{
		{"v4", func(n *yaml.Node) { scalar(d, n, "v4", &p.V4, parseInt(1, 32)) }},
		{"v6", func(n *yaml.Node) { scalar(d, n, "v6", &p.V6, parseInt(1, 128)) }},
	})
	if len(n.Content) == 0 {
		d.errorAt(n, `"per" is empty; write source, rule or prefix lengths, as {v4: 24, v6: 56}`)
	}
	if len(seen) > 0 {
		*per = p
	}
}

// request decodes a request rule.
func (d *decoder) request(n *yaml.Node) rawRequest {
	r := rawRequest{Request: Request{Pos: position(n), Class: -1}}
	act := ""
	seen := d.mapping(n, "a request rule", []field{
		{"name", func(n *yaml.Node) { scalar(d, n, "name", &r.Name, parseName) }},
		{"path", func(n *yaml.Node) { r.Path = d.patterns(n, "path", parsePath) }},
		{"host", func(n *yaml.Node) { r.Host = d.patterns(n, "host", parseHost) }},
		{"method", func(n *yaml.Node) { r.Method = d.patterns(n, "method", parseMethod) }},
		{"sni", func(n *yaml.Node) { r.SNI = d.patterns(n, "sni", parseHost) }},
		{"cookie", func(n *yaml.Node) { r.Cookie = d.pairs(n, "cookie", parseToken) }},
		{"header", func(n *yaml.Node) { r.Header = d.pairs(n, "header", parseHeaderName) }},
		{"action", func(n *yaml.Node) { scalar(d, n, "action", &act, parseWord("drop", "pass")) }},
		{"rate", func(n *yaml.Node) { scalar(d, n, "rate", &r.Rate, parseRate) }},
		{"burst", func(n *yaml.Node) { scalar(d, n, "burst", &r.Burst, parseBurst) }},
		{"over", func(n *yaml.Node) { scalar(d, n, "over", &r.Over, parseWord(OverReject, OverDrop, OverDemote)) }},
		{"block", func(n *yaml.Node) {
			scalar(d, n, "block", &r.Block, parseDuration(time.Second, 24*time.Hour, time.Millisecond))
		}},
		{"class", func(n *yaml.Node) { scalar(d, n, "class", &r.class, ref(n)) }},
		{"learn", func(n *yaml.Node) {
			scalar(d, n, "learn", &r.Learn, parseDuration(time.Second, 30*24*time.Hour, time.Second))
		}},
	})
	if seen == nil {
		return r
	}
	d.required(n, "a request rule", seen, "name", "a word of your choice")
	d.ruleDoes(n, "a request rule", seen, act)
	d.requestFits(seen, r.Over)
	r.Action = actionOf(act, r.Rate)
	r.BurstSet = r.Burst != 0
	if r.Rate.Tokens != 0 {
		if !r.BurstSet {
			r.Burst = r.Rate.defaultBurst()
		}
		if r.Over == "" {
			r.Over = OverReject
		}
	}
	return r
}

// requestFits reports keys of a request rule that do not go together.
func (d *decoder) requestFits(seen map[string]*yaml.Node, over Over) {
	d.needsRate(seen, "burst", "over", "block")
	if k := seen["learn"]; k != nil && seen["class"] == nil && seen["action"] == nil {
		d.errorAt(k, `"learn" remembers clients in the rule's class; add "class"`)
	}
	if over == OverDemote && seen["block"] != nil {
		d.errorAt(seen["block"], `"over: demote" rejects nobody, so "block" has no effect; remove one of the two`)
	}
	for _, key := range []string{"path", "host", "method", "cookie", "header"} {
		if seen["sni"] != nil && seen[key] != nil {
			d.errorAt(seen[key], `"sni" is seen in TLS and %q in HTTP, so no request can match both; make it two rules`, key)
		}
	}
}
