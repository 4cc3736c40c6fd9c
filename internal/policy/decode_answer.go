// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"time"

	"go.yaml.in/yaml/v3"
)

// parseRetryAfter reads when a client may ask again.
var parseRetryAfter = parseDuration(0, 24*time.Hour, time.Second)

// answers decodes the answers that have names.
func (d *decoder) answers(n *yaml.Node) []NamedAnswer {
	if !d.plain(n) || n.Tag == "!!null" {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		d.errorAt(n, `"answers" is a mapping of names to answers, as {busy: {status: 503}}, not %s`, kindOf(n))
		return nil
	}
	var out []NamedAnswer
	seen := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if !d.key(key, "answers", seen) {
			continue
		}
		seen[key.Value] = key
		a := NamedAnswer{Pos: position(key)}
		if scalar(d, key, "an answer's name", &a.Name, parseName) {
			name := a.Name
			a.Answer = d.answer(n.Content[i+1])
			a.Name = name
			out = append(out, a)
		}
	}
	return out
}

// answer decodes an answer.
func (d *decoder) answer(n *yaml.Node) Answer {
	a := Answer{RetryAfter: defaultRetryAfter}
	d.mapping(n, &answerForm, func(key string, n *yaml.Node) { d.says(key, n, &a) })
	return a
}

// says decodes the keys of an answer.
func (d *decoder) says(key string, n *yaml.Node, a *Answer) {
	switch key {
	case "status":
		scalar(d, n, key, &a.Status, parseInt(leastStatus, mostStatus))
	case "retry_after":
		scalar(d, n, key, &a.RetryAfter, parseRetryAfter)
	case "page":
		if scalar(d, n, key, &a.Page, parsePage(d.file)) {
			d.pages = append(d.pages, a.Page.Body...)
		}
	case "refused_by":
		signed := true
		scalar(d, n, key, &signed, parseBool)
		a.Unsigned = !signed
	}
}

// reject decodes the answer of a service, or a reference to one.
func (d *decoder) reject(n *yaml.Node, named *reference) Answer {
	a := Answer{RetryAfter: defaultRetryAfter}
	seen := d.mapping(n, &rejectForm, func(key string, n *yaml.Node) {
		switch key {
		case "answer":
			scalar(d, n, key, named, ref(n))
		case "reset":
			scalar(d, n, key, &a.Reset, parseBool)
		default:
			d.says(key, n, &a)
		}
	})
	for _, key := range append([]string{"answer"}, answerForm.names()...) {
		k := seen[key]
		switch {
		case k == nil:
		case a.Reset:
			d.errorAt(k, `"reset: true" sends no answer that %q could be in; remove one of the two`, key)
		case key != "answer" && seen["answer"] != nil:
			d.errorAt(k, `"answer" names all that is said, so that %q has no effect; remove one of the two, or write it under "answers"`, key)
		}
	}
	if a.Reset {
		return Answer{Reset: true}
	}
	return a
}

// ruleAnswer decodes the answer of a rule, or a reference to one.
func (d *decoder) ruleAnswer(n *yaml.Node, r *rawRequest) {
	if n.Kind != yaml.MappingNode {
		scalar(d, n, "answer", &r.answer, ref(n))
		return
	}
	a := d.answer(n)
	r.Answer = &a
}

// answerFits reports an answer where there is nobody to say it to.
func (d *decoder) answerFits(seen map[string]*yaml.Node, act string, over Over) {
	n := seen["answer"]
	switch {
	case n == nil:
	case act == "drop" || act == "pass":
		d.errorAt(n, `"action: %s" says nothing, so "answer" has no effect; remove one of the two`, act)
	case act == "" && seen["rate"] == nil && seen["limits"] == nil:
		d.errorAt(n, `"answer" has no effect where nothing is rejected; add a rate, as "rate: 100/s", or "action: reject", or remove it`)
	case act == "" && (over == OverDemote || over == OverDrop):
		d.errorAt(n, `"over: %s" says nothing, so "answer" has no effect; remove one of the two`, over)
	case seen["sni"] != nil || seen["alpn"] != nil || seen["ja4"] != nil:
		d.errorAt(n, `"answer" is said in HTTP, and the rule is about TLS, where who is rejected gets a reset; remove it`)
	}
}

// resolveAnswers puts the answers where they are named.
func (d *decoder) resolveAnswers(p *Policy, r *raw) {
	p.Answers = r.answers
	index, used := map[string]int{}, map[int]bool{}
	for i := range p.Answers {
		index[p.Answers[i].Name] = i
	}
	find := func(name reference) *Answer {
		if name.name == "" {
			return nil
		}
		i := d.lookup(name, "answer", "answer", index)
		if i < 0 {
			return nil
		}
		used[i] = true
		return &p.Answers[i].Answer
	}
	for i := range p.Services {
		if a := find(p.Services[i].rejectNamed); a != nil && p.Services[i].Protocol == HTTP {
			p.Services[i].Reject = *a
		}
	}
	for i := range r.requests {
		if a := find(r.requests[i].answer); a != nil {
			r.requests[i].Answer = a
		}
	}
	for i := range p.Answers {
		if !used[i] {
			d.warnf(p.Answers[i].Pos, "answer %q is never given: no service and no rule names it", p.Answers[i].Name)
		}
	}
}
