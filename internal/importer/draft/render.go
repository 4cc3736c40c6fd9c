// SPDX-License-Identifier: Apache-2.0

package draft

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// wide is where a rule is better written on several lines, in bytes.
const wide = 110

// entry is a key of a mapping. Its value is a text, or a list.
type entry struct {
	key   string
	value string // as YAML
	list  []string
}

// page is the text of a policy, and where in it each part of the draft is.
type page struct {
	strings.Builder
	line  int // lines that are complete
	spans []spanOf
}

// spanOf says that a part of the draft stands on these lines, from 1 on.
type spanOf struct {
	first, last int
	part        any // *Service, *Class or *Rule
}

func (p *page) print(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	p.line += strings.Count(s, "\n") + 1
	p.WriteString(s + "\n")
}

// comment prints sentences, wrapped.
func (p *page) comment(indent string, notes ...string) {
	for _, note := range notes {
		line := indent + "#"
		for word := range strings.FieldsSeq(spaced(note)) {
			if len(line)+1+len(word) > wide && line != indent+"#" {
				p.print("%s", line)
				line = indent + "#"
			}
			line += " " + word
		}
		p.print("%s", line)
	}
}

// part prints a mapping as an element of a list.
func (p *page) part(part any, notes []string, entries []entry) {
	first := p.line + 1
	p.comment("  ", notes...)
	if flow := flowing(entries); len(flow) <= wide && !isService(part) {
		p.print("  - %s", flow)
	} else {
		p.block(entries)
	}
	p.spans = append(p.spans, spanOf{first, p.line, part})
}

func isService(part any) bool { _, ok := part.(*Service); return ok }

func (p *page) block(entries []entry) {
	lead := "  - "
	for _, e := range entries {
		switch flow := flowingList(e.list); {
		case e.list == nil:
			p.print("%s%s: %s", lead, e.key, e.value)
		case len(flow) <= wide:
			p.print("%s%s: %s", lead, e.key, flow)
		default:
			p.print("%s%s:", lead, e.key)
			for _, v := range e.list {
				p.print("      - %s", v)
			}
		}
		lead = "    "
	}
}

func flowing(entries []entry) string {
	parts := make([]string, len(entries))
	for i, e := range entries {
		value := e.value
		if e.list != nil {
			value = flowingList(e.list)
		}
		parts[i] = e.key + ": " + value
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func flowingList(list []string) string {
	if len(list) == 1 {
		return list[0]
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// entries collects those that have a value.
type entries []entry

func (e *entries) text(key, value string) {
	if value != "" {
		*e = append(*e, entry{key: key, value: value})
	}
}

func (e *entries) list(key string, values []string) {
	if len(values) == 0 {
		return
	}
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = Quote(v)
	}
	*e = append(*e, entry{key: key, list: out})
}

func (e *entries) pairs(key string, pairs []Pair) {
	if len(pairs) == 0 {
		return
	}
	var inner entries
	for _, p := range pairs {
		if p.IgnoreCase {
			var pattern entries
			pattern.list("pattern", p.Values)
			pattern.text("ignore_case", "true")
			inner.text(Quote(p.Name), flowing(pattern))
			continue
		}
		inner.list(Quote(p.Name), p.Values)
	}
	e.text(key, flowing(inner))
}

func (e *entries) without(w Without) {
	var inner entries
	inner.list("header", w.Header)
	inner.list("cookie", w.Cookie)
	inner.list("query", w.Query)
	if len(inner) > 0 {
		e.text("without", flowing(inner))
	}
}

func (e *entries) number(key string, n int) {
	if n != 0 {
		e.text(key, strconv.Itoa(n))
	}
}

func (e *entries) limits(limits []Limit) {
	if len(limits) == 0 {
		return
	}
	list := make([]string, len(limits))
	for i, l := range limits {
		var inner entries
		inner.text("rate", l.Rate)
		inner.number("burst", l.Burst)
		inner.number("at_once", l.AtOnce)
		inner.text("per", l.Per)
		list[i] = flowing(inner)
	}
	e.text("limits", "["+strings.Join(list, ", ")+"]")
}

// plain is what YAML takes for a text without quotes, everywhere.
var plain = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./-]*$|^[0-9]+(\.[0-9]+){3}(/[0-9]+)?$`)

// spoken are words that some take for something else than a text.
var spoken = regexp.MustCompile(`(?i)^(true|false|yes|no|on|off|null|y|n)$`)

// Quote returns a text as YAML.
func Quote(s string) string {
	if plain.MatchString(s) && !spoken.MatchString(s) {
		return s
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a text can always be encoded
	return strings.TrimSuffix(b.String(), "\n")
}

func (p *page) service(s *Service) {
	var e entries
	e.text("name", s.Name)
	e.list("listen", s.Listen)
	e.text("protocol", string(s.Protocol))
	e.text("concurrency", s.Concurrency)
	if s.MaxWait != "" {
		e.text("queue", "{max_wait: "+s.MaxWait+"}")
	}
	e.list("trusted_proxies", s.TrustedProxies)
	e.text("mode", "shadow")
	p.part(s, s.Note, e)
}

func (p *page) class(c *Class) {
	var e entries
	e.text("name", c.Name)
	e.number("priority", c.Priority)
	p.part(c, c.Note, e)
}

func (p *page) rule(r *Rule) {
	var e entries
	e.text("name", r.Name)
	e.list("from", r.From)
	e.list("to", r.To)
	e.list("sni", r.SNI)
	e.list("host", r.Host)
	e.list("path", r.Path)
	e.list("method", r.Method)
	e.pairs("header", r.Header)
	e.pairs("cookie", r.Cookie)
	e.pairs("query", r.Query)
	e.without(r.Without)
	e.text("action", r.Action)
	e.text("rate", r.Rate)
	e.number("burst", r.Burst)
	e.text("per", r.Per)
	e.limits(r.Limits)
	e.text("over", r.Over)
	e.text("answer", r.Answer)
	e.text("class", r.Class)
	p.part(r, append(r.Note, fmt.Sprintf("%s:%d", r.File, r.Line)), e)
}

// render writes the policy without what is at its end.
func (d *Draft) render(header []string) *page {
	p := &page{}
	p.comment("", header...)
	p.print("version: 1")
	p.print("\nservices:")
	for _, s := range d.Services {
		p.service(s)
	}
	if len(d.Classes) > 0 {
		p.print("\nclasses:")
		for _, c := range d.Classes {
			p.class(c)
		}
	}
	if d.Default != "" {
		p.print("default_class: %s", d.Default)
	}
	for _, table := range []struct {
		name  string
		rules []*Rule
	}{{"connections", d.Connections}, {"requests", d.Requests}} {
		if len(table.rules) > 0 {
			p.print("\n%s:", table.name)
		}
		for _, r := range table.rules {
			p.rule(r)
		}
	}
	return p
}
