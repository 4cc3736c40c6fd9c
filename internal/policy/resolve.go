// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"slices"
)

// implicitClass is the class of a policy that names none.
const implicitClass = "default"

// resolve turns names into indexes and checks what concerns more than one entry.
func (d *decoder) resolve(p *Policy, r *raw) {
	p.Services = r.services
	services := unique(d, "service", r.services, func(s *Service) (string, Pos) { return s.Name, s.Pos })
	unique(d, "connection rule", r.connections, func(c *rawConnection) (string, Pos) { return c.Name, c.Pos })
	unique(d, "request rule", r.requests, func(q *rawRequest) (string, Pos) { return q.Name, q.Pos })
	classes := d.resolveClasses(p, r)
	d.resolvePools(p, r, services)
	d.checkListens(p)
	d.warnTaken(p)
	d.checkModes(p)
	d.resolveConnections(p, r, services, classes)
	d.resolveAnswers(p, r)
	d.resolveRequests(p, r, services, classes)
	d.resolveLists(p, r)
	d.checkLearned(p)
	d.checkLabels(p)
	d.checkFair(p)
	d.checkKnown(p)
	d.checkProtocols(p)
	d.warnBrackets()
}

// unique maps names to indexes and reports those that are there twice.
func unique[T any](d *decoder, what string, entries []T, of func(*T) (string, Pos)) map[string]int {
	index := make(map[string]int, len(entries))
	for i := range entries {
		name, pos := of(&entries[i])
		if name == "" {
			continue // reported where it was decoded
		}
		if first, twice := index[name]; twice {
			_, at := of(&entries[first])
			d.errorf(pos, "%s %q is there twice, first at line %d; give this one another name", what, name, at.Line)
			continue
		}
		index[name] = i
	}
	return index
}

// lookup finds a name or reports that it is none, with the names that there are.
func (d *decoder) lookup(r reference, what, key string, index map[string]int) int {
	if i, ok := index[r.name]; ok {
		return i
	}
	names := make([]string, 0, len(index))
	if !d.full() { // comparing names is slow
		for name := range index {
			names = append(names, name)
		}
		slices.Sort(names)
	}
	hint := didYouMean(nearest(r.name, names))
	switch {
	case hint != "":
	case what == "class" && len(index) == 0:
		hint = `; define it under "classes"`
	case len(names) > 0 && len(names) <= 8:
		hint = "; there is " + listing(names, "and")
	default:
		hint = "; define it or correct the name"
	}
	d.errorf(r.pos, "%s: no %s is named %s%s", key, what, quote(r.name), hint)
	return -1
}

// resolveClasses sorts the classes, most important first, and finds the default one.
func (d *decoder) resolveClasses(p *Policy, r *raw) map[string]int {
	p.Classes = slices.Clone(r.classes)
	d.checkClasses(p.Classes)
	slices.SortStableFunc(p.Classes, func(a, b Class) int { return cmp.Compare(a.Priority, b.Priority) })
	index := map[string]int{}
	for i, c := range p.Classes {
		if c.Name != "" {
			index[c.Name] = i
		}
	}
	if len(p.Classes) == 0 {
		p.Classes = []Class{{Name: implicitClass, Priority: 1, Fair: FairDefault}}
	}
	p.Default = len(p.Classes) - 1
	implied := len(r.classes) == 0 && r.defaultClass.name == implicitClass
	if r.defaultClass.name != "" && !implied {
		p.Default = d.lookup(r.defaultClass, "class", "default_class", index)
	}
	return index
}

// checkClasses checks names, priorities and reserves in the order of the file.
func (d *decoder) checkClasses(classes []Class) {
	unique(d, "class", classes, func(c *Class) (string, Pos) { return c.Name, c.Pos })
	byPriority := map[int]*Class{}
	reserved := 0
	for i := range classes {
		c := &classes[i]
		if first := byPriority[c.Priority]; first != nil && c.Priority != 0 {
			d.errorf(c.priorityAt, "class %q has priority %d like class %q at line %d; priorities are unique", c.Name, c.Priority, first.Name, first.Pos.Line)
		}
		byPriority[c.Priority] = c
		if reserved <= 100 && reserved+c.Reserve > 100 {
			d.errorf(c.reserveAt, "class %q brings the reserves to %d%%; together they are at most 100%%", c.Name, reserved+c.Reserve)
		}
		reserved += c.Reserve
	}
}

func (d *decoder) resolveConnections(p *Policy, r *raw, services, classes map[string]int) {
	p.Connections = make([]Connection, len(r.connections))
	for i, c := range r.connections {
		for _, to := range c.to {
			if s := d.lookup(to, "service", "to", services); s >= 0 {
				c.To = append(c.To, s)
			}
		}
		slices.Sort(c.To)
		for _, l := range c.learned {
			if class := d.lookup(l, "class", "learned", classes); class >= 0 {
				c.Learned = append(c.Learned, class)
			}
		}
		if c.class.name != "" {
			c.Class = d.lookup(c.class, "class", "class", classes)
		}
		p.Connections[i] = c.Connection
	}
}

func (d *decoder) resolveRequests(p *Policy, r *raw, services, classes map[string]int) {
	p.Requests = make([]Request, len(r.requests))
	for i, q := range r.requests {
		if q.class.name != "" {
			q.Class = d.lookup(q.class, "class", "class", classes)
		}
		d.resolveTo(&q, services)
		p.Requests[i] = q.Request
	}
	d.warnNowhere(p)
}

// limited reports whether something bounds how many requests are in service, so that others can have to wait.
func (p *Policy) limited() bool {
	return slices.ContainsFunc(p.Services, func(s Service) bool { return s.Concurrency.Mode != ConcurrencyUnlimited }) ||
		slices.ContainsFunc(p.Classes, func(c Class) bool { return c.Max > 0 })
}

// checkKnown warns of sources that nobody gets to know, or that never wait.
func (d *decoder) checkKnown(p *Policy) {
	speaks := slices.ContainsFunc(p.Services, func(s Service) bool { return s.Protocol == HTTP })
	waits := slices.ContainsFunc(p.Services, func(s Service) bool {
		return s.Protocol == HTTP && (s.Concurrency.Mode != ConcurrencyUnlimited || s.Pool > 0)
	}) || slices.ContainsFunc(p.Classes, func(c Class) bool { return c.Max > 0 })
	for _, c := range p.Classes {
		switch {
		case c.knownAt.Line == 0:
		case !speaks:
			d.warnf(c.knownAt, `class %q: "known" has no effect, for it goes by answers, which are seen by services with "protocol: http", and there is none`, c.Name)
		case !waits:
			d.warnf(c.knownAt, `class %q: "known" has no effect, for no request of an http service ever waits; give one a "concurrency"`, c.Name)
		}
	}
}

// checkFair warns of an order among requests of which none waits.
func (d *decoder) checkFair(p *Policy) {
	for _, c := range p.Classes {
		if c.fairAt.Line > 0 && !p.limited() {
			d.warnf(c.fairAt, `class %q: "fair" has no effect, for no request ever waits: every service is unlimited; give one a "concurrency"`, c.Name)
		}
	}
}

// checkLearned warns of connection rules that wait for clients nobody remembers.
func (d *decoder) checkLearned(p *Policy) {
	learns := map[int]bool{}
	if slices.ContainsFunc(p.Services, func(s Service) bool { return s.Labels.Header }) {
		return // the application may label them
	}
	for _, q := range p.Requests {
		if q.Learn != 0 {
			learns[q.Class] = true
		}
	}
	for _, c := range p.Connections {
		if len(c.Learned) > 0 && !slices.ContainsFunc(c.Learned, func(class int) bool { return learns[class] }) {
			d.warnf(c.Pos, `connection rule %q can never match: no request rule has "learn" for a class of its "learned"`, c.Name)
		}
	}
}

// checkLabels warns of labels that tell nothing.
func (d *decoder) checkLabels(p *Policy) {
	for _, s := range p.Services {
		if s.Labels != (Labels{}) && len(p.Classes) < 2 {
			d.warnf(s.labelsAt, `service %q: "labels" have no effect, for there is one class; give the policy "classes"`, s.Name)
		}
	}
}

// checkProtocols warns of request rules that ask for what no service shows.
func (d *decoder) checkProtocols(p *Policy) {
	speaks := map[Protocol]bool{}
	for _, s := range p.Services {
		speaks[s.Protocol] = true
	}
	for _, q := range p.Requests {
		of := slices.IndexFunc(shownFields[:], func(field int) bool { return textFields[field].tls && len(q.texts(field)) > 0 })
		switch {
		case of >= 0 && !speaks[TLS]:
			d.warnf(q.Pos, `request rule %q can never match: %q is seen by services with "protocol: tls", and there is none`, q.Name, textFields[shownFields[of]].key.name)
		case q.asksHTTP() && !speaks[HTTP]:
			d.warnf(q.Pos, `request rule %q can never match: it asks for what services with "protocol: http" see, and there is none`, q.Name)
		}
	}
}
