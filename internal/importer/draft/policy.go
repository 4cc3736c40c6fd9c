// SPDX-License-Identifier: Apache-2.0

package draft

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"narthex/internal/policy"
)

// ErrNoService says that a configuration names nothing to protect.
var ErrNoService = errors.New("no server's address and port is named")

// maxRounds bounds how often a policy is compiled to find what is to be left out.
const maxRounds = 64

// Policy writes the policy. What Narthex refuses or warns of is taken out or noted first, so
// that the policy compiles. The error is ErrNoService if there is nothing to protect.
func (d *Draft) Policy(header ...string) ([]byte, error) {
	d.unwritable()
	d.bound(&d.Connections)
	d.bound(&d.Requests)
	if len(d.Services) > policy.MaxServices {
		s := d.Services[policy.MaxServices]
		d.Leave(s.Origin, s.Name, fmt.Sprintf("a policy has at most %d services", policy.MaxServices), "make several policies")
		d.Services = d.Services[:policy.MaxServices]
	}
	var refused error
	for range maxRounds {
		if len(d.Services) == 0 {
			return nil, ErrNoService
		}
		p := d.render(header)
		warnings, err := compile(p.String())
		if err == nil {
			d.warned(p, warnings)
			d.end(p)
			return []byte(p.String()), nil
		}
		refused = err
		if !d.prune(p, err) {
			break
		}
	}
	return nil, fmt.Errorf("make a policy of it: %w", refused)
}

func compile(text string) ([]policy.Warning, error) {
	p, warnings, err := policy.Parse("policy", []byte(text))
	if err != nil {
		return nil, err
	}
	_, more, err := policy.Compile(p)
	return policy.MergeWarnings(warnings, more), err
}

// bound leaves out the rules that are too many.
func (d *Draft) bound(rules *[]*Rule) {
	if len(*rules) > policy.MaxRules {
		first := (*rules)[policy.MaxRules]
		d.Leave(first.Origin, first.Name, fmt.Sprintf("a policy has at most %d such rules, and this is the first beyond", policy.MaxRules), "")
		*rules = (*rules)[:policy.MaxRules]
	}
}

// at returns the part of the draft on a line.
func (p *page) at(line int) any {
	for _, s := range p.spans {
		if line >= s.first && line <= s.last {
			return s.part
		}
	}
	return nil
}

// prune takes out what the policy's errors are about. It reports whether that was something.
func (d *Draft) prune(p *page, err error) bool {
	var wrong policy.Errors
	if !errors.As(err, &wrong) {
		return false
	}
	removed := false
	for _, e := range wrong {
		part := p.at(e.Line)
		if part != nil && d.remove(part) {
			removed = true
			at, name := origin(part)
			d.Leave(at, name, "Narthex refuses it: "+e.Msg, "")
		}
	}
	return removed
}

func origin(part any) (Origin, string) {
	switch part := part.(type) {
	case *Service:
		return part.Origin, "service " + part.Name
	case *Class:
		return part.Origin, "class " + part.Name
	case *Rule:
		return part.Origin, "rule " + part.Name
	}
	return Origin{}, ""
}

// remove takes a part out, with the rules that need it. It reports whether it was there.
func (d *Draft) remove(part any) bool {
	before := len(d.Services) + len(d.Classes) + len(d.Connections) + len(d.Requests)
	switch part := part.(type) {
	case *Rule:
		d.keep(func(r *Rule) bool { return r != part })
	case *Class:
		d.Classes = slices.DeleteFunc(d.Classes, func(c *Class) bool { return c == part })
		d.keep(func(r *Rule) bool { return r.Class != part.Name })
		if d.Default == part.Name {
			d.Default = ""
		}
	case *Service:
		d.Services = slices.DeleteFunc(d.Services, func(s *Service) bool { return s == part })
		d.keep(func(r *Rule) bool {
			named := len(r.To) > 0
			r.To = slices.DeleteFunc(r.To, func(name string) bool { return name == part.Name })
			return !named || len(r.To) > 0
		})
	}
	return len(d.Services)+len(d.Classes)+len(d.Connections)+len(d.Requests) < before
}

func (d *Draft) keep(ok func(*Rule) bool) {
	bad := func(r *Rule) bool { return !ok(r) }
	d.Connections = slices.DeleteFunc(d.Connections, bad)
	d.Requests = slices.DeleteFunc(d.Requests, bad)
}

// warned notes what `narthex check` would warn of.
func (d *Draft) warned(p *page, warnings []policy.Warning) {
	for _, w := range warnings {
		if part := p.at(w.Line); part != nil {
			at, name := origin(part)
			d.Leave(at, name, w.Msg, "look at it: `narthex check` warns of it")
		}
	}
}

// end writes what could not be carried over.
func (d *Draft) end(p *page) {
	slices.SortStableFunc(d.Left, func(a, b Left) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	if len(d.Left) == 0 {
		return
	}
	p.print("\n# Not carried over, or not as it was:")
	for _, l := range d.Left {
		p.comment("", "- "+l.String())
	}
}
