// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"narthex/internal/importer/draft"
	"narthex/internal/policy"
)

// classRule is a set-priority-class.
type classRule struct {
	line
	value int
	cond  condition
}

// classRules returns what sets the class of a proxy's requests, the last first: in HAProxy
// the last one that matches wins, here the first.
func (c *config) classRules(p *proxy) []classRule {
	var out []classRule
	read := func(p *proxy) {
		for _, l := range p.lines {
			i := slices.Index(l.words, "set-priority-class")
			if i < 1 || (l.words[0] != "http-request" && l.words[0] != "tcp-request") || i+1 >= len(l.words) {
				continue
			}
			fetch, arg := fetchOf(l.words[i+1])
			n, err := strconv.Atoi(arg)
			if fetch != "int" || err != nil || n < -2047 || n > 2047 {
				c.draft.Leave(l.Origin, l.text(), "the class depends on what is not a number", "write a rule for each class")
				continue
			}
			cond, err := p.condition(l.words[i+2:])
			if err != nil {
				c.draft.Leave(l.Origin, l.text(), err.Error(), "")
				continue
			}
			out = append(out, classRule{l, n, cond})
		}
	}
	read(p)
	switch backends := c.backends(p); {
	case len(backends) == 1 && backends[0] != nil && backends[0] != p:
		read(backends[0])
	case len(backends) > 1:
		for _, b := range backends {
			if b != nil && b != p {
				c.leaveClasses(b)
			}
		}
	}
	slices.Reverse(out)
	return out
}

func (c *config) leaveClasses(b *proxy) {
	for _, l := range b.lines {
		if slices.Contains(l.words, "set-priority-class") {
			c.draft.Leave(l.Origin, l.text(), "which backend a request goes to is not known before HAProxy", "set the class in the frontend, by what the request says")
		}
	}
}

func className(value int) string {
	if value < 0 {
		return fmt.Sprintf("priority-minus-%d", -value)
	}
	return fmt.Sprintf("priority-%d", value)
}

// classes makes a class of each priority that is set, and reports whether there are any.
func (c *config) classes() bool {
	values := []int{}
	for _, p := range c.list {
		if p.kind == "backend" {
			continue
		}
		for _, r := range c.classRules(p) {
			if !slices.Contains(values, r.value) {
				values = append(values, r.value)
			}
		}
	}
	if len(values) == 0 {
		return false
	}
	if !slices.Contains(values, 0) {
		values = append(values, 0)
	}
	slices.Sort(values)
	for i, v := range values {
		class := &draft.Class{Name: className(v), Priority: i + 1}
		if v == 0 {
			class.Note = []string{"Requests for which no class is set."}
		}
		c.draft.Classes = append(c.draft.Classes, class)
	}
	c.draft.Default = className(0)
	if len(values) > policy.MaxClasses {
		c.draft.Leave(draft.Origin{File: c.list[0].File, Line: 1}, "set-priority-class", fmt.Sprintf("%d priorities are more than the %d classes that there can be", len(values), policy.MaxClasses), "put some together")
		c.draft.Classes, c.draft.Default = nil, ""
		return false
	}
	return true
}

// limit is what a stick table counts, and a rejection beyond it.
type limit struct {
	line
	draft.Limit
	note   string
	match  *draft.Rule
	exempt []string
	over   string
	status int // 0: no answer
}

// atOnce is the counter of connections that are open.
const atOnce = "conn_cur"

// limitOf reads a rate and what else a term of a condition asks.
func (c *config) limitOf(p *proxy, l line, term []literal, counter string) (*limit, error) {
	out := &limit{line: l, match: &draft.Rule{}}
	var r *rate
	for _, t := range term {
		switch {
		case t.err != nil:
			return nil, fmt.Errorf("%q: %w", t.text, t.err)
		case t.rate != nil && !t.not && r == nil:
			r = t.rate
		case len(t.from) > 0 && t.not:
			out.exempt = append(out.exempt, t.from...)
		default:
			asked, ok := t.asked()
			if !ok {
				return nil, fmt.Errorf("%q is not carried over beside a rate", t.text)
			}
			if out.match, ok = both(out.match, asked); !ok {
				return nil, errors.New("two tests of the same kind together are no pattern")
			}
		}
	}
	if r == nil {
		return nil, nil
	}
	if r.counter != counter && r.counter != atOnce {
		return nil, fmt.Errorf("it counts by %s; what is carried over here is %s", r.counter, counter)
	}
	t, err := c.counted(p, r, out)
	if err != nil {
		return nil, err
	}
	period, stored := t.periods[r.counter]
	most := r.most
	if r.track == "" && r.counter != "http_req_rate" && p.tracksLater(l) {
		most++ // the connection that it decides on is not counted yet
	}
	switch {
	case !stored || period == 0 && r.counter != atOnce:
		return nil, fmt.Errorf("the table does not store %s", r.counter)
	case r.counter == atOnce:
		out.AtOnce = most
		return out, nil
	}
	out.Burst = min(most, policy.MaxBurst)
	out.Rate, out.note, err = draft.Rate(most, period)
	return out, err
}

// asked returns what a rule asks for instead of a test. It reports whether there is such a thing.
func (t literal) asked() (*draft.Rule, bool) {
	switch {
	case t.from != nil:
		return &draft.Rule{From: t.from}, !t.not
	case t.match == nil:
		return nil, false
	case t.not:
		return absent(t.match)
	}
	return t.match, true
}

// tracksLater reports whether a connection's client is tracked only behind a line that decides on it: in the order of
// HAProxy, which does what is said of the connection before what is said of its content and of requests.
func (p *proxy) tracksLater(l line) bool {
	later, own := false, slices.IndexFunc(p.lines, func(x line) bool { return x.Origin == l.Origin })
	for i, other := range p.lines {
		if !slices.ContainsFunc(other.words, func(w string) bool { return strings.HasPrefix(w, "track-sc") }) {
			continue
		}
		at, mine := other.phase(), l.phase()
		if at < mine || at == mine && i < own {
			return false
		}
		later = true
	}
	return later
}

// phase orders what HAProxy does with a connection and its requests.
func (l line) phase() int {
	phases := []string{"connection", "session", "content"}
	if l.begins("tcp-request") && len(l.words) > 1 && slices.Contains(phases, l.words[1]) {
		return slices.Index(phases, l.words[1])
	}
	return len(phases)
}

// keyed has a limit count by what is tracked, of requests that say it. HAProxy tracks no others.
func (l *limit) keyed(key string) error {
	fetch, arg := fetchOf(key)
	fetch = strings.TrimPrefix(fetch, "req.")
	name := []draft.Pair{{Name: arg, Values: []string{"*"}}}
	said, word := &draft.Rule{}, ""
	switch {
	case key == "src":
		l.Per = "source"
		return nil
	case arg == "" || strings.Contains(arg, ","):
	case fetch == "hdr" || fetch == "fhdr":
		said.Header, word = name, "header"
	case fetch == "cook":
		said.Cookie, word = name, "cookie"
	case fetch == "url_param" || fetch == "urlp":
		said.Query, word = name, "query"
	}
	if word == "" {
		return fmt.Errorf("it counts by %q, and Narthex by the client's address, a header, a cookie or a parameter", key)
	}
	l.Per = "{" + word + ": " + draft.Quote(arg) + "}"
	if m, ok := both(l.match, said); ok {
		l.match = m
	}
	return nil
}

// counted returns the table of a rate, and has the limit count by its key.
func (c *config) counted(p *proxy, r *rate, l *limit) (*table, error) {
	name, key := r.table, ""
	if r.track == "" {
		key = "src"
	}
	for _, l := range p.lines {
		if i := slices.Index(l.words, "track-sc"+r.track); r.track != "" && i > 0 && i+1 < len(l.words) {
			key = l.words[i+1]
			if j := slices.Index(l.words, "table"); j > 0 && j+1 < len(l.words) && name == "" {
				name = l.words[j+1]
			}
			if slices.Contains(l.words, "if") || slices.Contains(l.words, "unless") {
				c.draft.Leave(l.Origin, l.text(), "Narthex counts what the rule matches, under no other condition", "look at the rule's pattern")
			}
		}
	}
	if key == "" {
		return nil, fmt.Errorf("nothing is tracked as sc%s here", r.track)
	}
	if name == "" {
		name = p.name
	}
	t := c.tables[name]
	if t == nil {
		return nil, fmt.Errorf("there is no stick table %q", name)
	}
	if key == "src" && !t.address {
		return nil, errors.New("the table is not one of addresses")
	}
	return t, l.keyed(key)
}

// windows says once how a sliding window differs from a bucket.
func (c *config) windows(l *limit) {
	if l.AtOnce > 0 {
		return
	}
	c.draft.Leave(l.Origin, l.text(), "HAProxy counts what it refuses, too, and goes on refusing until a client has been quiet; a bucket fills all the time",
		"a client gets the rate, and no more, however long it goes on; block: keeps it away for a time")
}

// countsConnections reports whether each term asks how many connections there are or were.
func (c condition) countsConnections() bool {
	counts := func(t literal) bool { return t.rate != nil && strings.HasPrefix(t.rate.counter, "conn_") }
	return len(c) > 0 && !slices.ContainsFunc(c, func(term []literal) bool { return !slices.ContainsFunc(term, counts) })
}

// connections makes connection rules of what is decided before a request.
func (c *config) connections(p *proxy) {
	for _, l := range p.lines {
		if len(l.words) < 3 || l.words[0] != "tcp-request" || l.words[2] != "reject" && l.words[2] != "accept" {
			continue
		}
		cond, err := p.condition(l.words[3:])
		if l.words[1] == "content" && (l.words[2] == "accept" || err != nil || !cond.countsConnections()) {
			continue // it is about what a connection carries
		}
		c.seen[l.Origin] = true
		if err == nil && len(cond) == 0 {
			err = errors.New("it has no condition")
		}
		if err != nil {
			c.draft.Leave(l.Origin, l.text(), err.Error(), "")
			continue
		}
		for _, term := range cond {
			if err := c.connection(p, l, term); err != nil {
				c.draft.Leave(l.Origin, l.text(), err.Error(), "")
			}
		}
	}
}

func (c *config) connection(p *proxy, l line, term []literal) error {
	if len(term) == 1 && len(term[0].from) > 0 && !term[0].not {
		r := &draft.Rule{Origin: l.Origin, From: term[0].from, To: p.service}
		if l.words[2] == "reject" {
			r.Name, r.Action = c.draft.Name("connection", "reject"), "drop"
			c.beforeRates(l, r)
		} else {
			r.Name, r.Class = c.draft.Name("connection", "accept"), c.draft.NeedClass()
			if c.draft.Default != "" {
				r.Class = c.draft.Default
			}
			c.draft.Connections = append(c.draft.Connections, r)
		}
		return nil
	}
	limit, err := c.limitOf(p, l, term, "conn_rate")
	switch {
	case err != nil:
		return err
	case limit == nil || l.words[2] != "reject":
		return errors.New("connections are decided on by addresses and rates")
	case matches(limit.match):
		return errors.New("what a request says is not known yet")
	case limit.Per != "source":
		return errors.New("it counts by what a request says")
	}
	c.windows(limit)
	if len(limit.match.From) > 0 {
		return c.someConnections(p, limit)
	}
	for _, some := range c.draft.Connections {
		if some.Limited() && len(some.From) > 0 && slices.Equal(some.To, p.service) {
			some.Also(limit.Limit)
		}
	}
	if i := len(c.draft.Connections) - 1; i >= 0 && len(limit.exempt) == 0 && c.hasRate(p) {
		above := c.draft.Connections[i]
		if !above.Limited() || len(above.From) > 0 || !slices.Equal(above.To, p.service) || c.excepted(above) {
			return errors.New("a connection is in one rule, not in several, and one above it decides for these")
		}
		above.Also(limit.Limit)
		above.Note = append(above.Note, fmt.Sprintf("Also %s:%d.", l.File, l.Line))
		return nil
	}
	if len(limit.exempt) > 0 {
		class := c.draft.NeedClass()
		if c.draft.Default != "" {
			class = c.draft.Default
		}
		r := &draft.Rule{Origin: l.Origin, Name: c.draft.Name("connection", "exempt"), From: limit.exempt, To: p.service, Class: class}
		c.excepts[r] = true
		c.draft.Connections = append(c.draft.Connections, r)
	}
	r := &draft.Rule{Origin: l.Origin, Name: c.draft.Name("connection", "conn-rate"), To: p.service}
	r.Also(limit.Limit)
	r.Plain()
	if limit.note != "" {
		r.Note = append(r.Note, limit.note)
	}
	c.draft.Connections = append(c.draft.Connections, r)
	return nil
}

// someConnections makes a rule of a rate for some addresses. It goes before the one for all others, whose limits hold for
// these as well.
func (c *config) someConnections(p *proxy, l *limit) error {
	if len(l.exempt) > 0 {
		return errors.New("a rate for some addresses and not for others is not carried over")
	}
	r := &draft.Rule{Origin: l.Origin, Name: c.draft.Name("connection", "conn-rate"), From: l.match.From, To: p.service}
	r.Also(l.Limit)
	at := len(c.draft.Connections)
	if i := slices.IndexFunc(c.draft.Connections, func(o *draft.Rule) bool { return c.general(o, p) }); i >= 0 {
		for _, also := range c.draft.Connections[i].All() {
			r.Also(also)
		}
		if at = i; c.excepted(c.draft.Connections[i]) {
			at--
		}
	}
	r.Plain()
	if l.note != "" {
		r.Note = append(r.Note, l.note)
	}
	c.draft.Connections = slices.Insert(c.draft.Connections, at, r)
	return nil
}

// general reports whether a rule has the rate for all clients of a proxy.
func (c *config) general(r *draft.Rule, p *proxy) bool {
	return r.Limited() && len(r.From) == 0 && slices.Equal(r.To, p.service)
}

// beforeRates adds a rule that drops before rules with a rate, and those whom these exempt:
// they all refuse, and here only the first that matches is asked.
func (c *config) beforeRates(l line, r *draft.Rule) {
	at := len(c.draft.Connections)
	for at > 0 && (c.draft.Connections[at-1].Limited() || c.excepts[c.draft.Connections[at-1]]) {
		at--
	}
	for _, above := range c.draft.Connections[:at] {
		if above.Limited() && slices.Equal(above.To, r.To) {
			c.draft.Leave(l.Origin, l.text(), "a rate above it decides first: rule "+above.Name, "put its rule above that")
		}
	}
	c.draft.Connections = slices.Insert(c.draft.Connections, at, r)
}

// excepted reports whether addresses are exempt from a rule: the one above it ends the search for them.
func (c *config) excepted(r *draft.Rule) bool {
	i := slices.Index(c.draft.Connections, r)
	return i > 0 && c.excepts[c.draft.Connections[i-1]]
}

func (c *config) hasRate(p *proxy) bool {
	return slices.ContainsFunc(c.draft.Connections, func(r *draft.Rule) bool { return c.general(r, p) })
}

// matches reports whether a rule asks for something that a request says.
func matches(r *draft.Rule) bool {
	return r.Without.Len()+len(r.Path)+len(r.Host)+len(r.Method)+len(r.SNI)+len(r.Header)+len(r.Cookie)+len(r.Query) > 0
}
