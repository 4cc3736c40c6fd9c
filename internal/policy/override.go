// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Setting is one value of a policy that `narthex set` may change.
type Setting struct {
	Path     string // as connections.NAME.rate
	Value    string // as in a policy, or none
	Enforced bool   // Override accepts it, or some values of it, in this version
}

// setting is a Setting with the way to change it. The parser's error says what would be
// right.
type setting struct {
	Setting
	set func(value string) error
}

// Settings lists what can be set, with the values in force if p holds the overrides.
func (p *Policy) Settings() []Setting {
	var out []Setting
	for _, s := range p.settings() {
		out = append(out, s.Setting)
	}
	return out
}

// Paths lists the paths that Override accepts in this version.
func (p *Policy) Paths() []string {
	var out []string
	for _, s := range p.settings() {
		if s.Enforced {
			out = append(out, s.Path)
		}
	}
	return out
}

// Override sets the value at a path as if the policy file held it. The error names what
// would be right, and wraps ErrNotEnforced if the value is fine but this version does not
// enforce it. On error p is unchanged.
func (p *Policy) Override(path, value string) error {
	all := p.settings()
	at := slices.IndexFunc(all, func(s setting) bool { return s.Path == path })
	if at < 0 {
		return p.noPath(path, all)
	}
	before := p.Clone()
	if err := all[at].set(value); err != nil {
		return fmt.Errorf("set %s: %w", path, err)
	}
	if !all[at].Enforced {
		*p = *before
		return fmt.Errorf("set %s: %s is %w", path, path[strings.LastIndexByte(path, '.')+1:], ErrNotEnforced)
	}
	return nil
}

// noPath says which paths there are instead of one that is not: first those of use now.
func (p *Policy) noPath(path string, all []setting) error {
	if part := strings.Split(path, "."); len(part) == 3 && part[0] == "connections" {
		i := slices.IndexFunc(p.Connections, func(c Connection) bool { return c.Name == part[1] })
		if i >= 0 && p.Connections[i].Action != ActionPolice && (part[2] == "rate" || part[2] == "burst") {
			return fmt.Errorf("set %s: rule %q has no rate; give it one in the policy first", path, part[1])
		}
	}
	var now, later []string
	for _, s := range all {
		if s.Enforced {
			now = append(now, s.Path)
		} else {
			later = append(later, s.Path)
		}
	}
	const typo = 2 // edits; more and another setting may be meant
	if guess := nearestWithin(typo, path, now); guess != "" {
		return fmt.Errorf("set %s: there is no such path%s", quote(path), didYouMean(guess))
	}
	hint := ""
	if len(now) > 0 {
		hint = "; what can be set now: " + firstOf(now)
	}
	if len(later) > 0 {
		hint += "; in a later version: " + firstOf(later)
	}
	return fmt.Errorf("set %s: there is no such path%s", quote(path), hint)
}

// firstOf lists the first names, and how many more there are.
func firstOf(names []string) string {
	const most = 8
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// settings lists everything that can be set: first the limits of connections, which have
// an effect in this version, then the rest in the order of the policy file.
func (p *Policy) settings() []setting {
	var out []setting
	add := func(enforced bool, value string, set func(string) error, path ...string) {
		out = append(out, setting{Setting{strings.Join(path, "."), value, enforced}, set})
	}
	for i := range p.Connections {
		c := &p.Connections[i]
		if c.Action == ActionPolice {
			add(true, c.Rate.String(), setRate(&c.Rate, &c.Burst, c.BurstSet), "connections", c.Name, "rate")
			add(true, fmt.Sprint(c.Burst), setBurst(&c.Burst, &c.BurstSet), "connections", c.Name, "burst")
		}
	}
	for i := range p.Services {
		s := &p.Services[i]
		add(true, s.Concurrency.String(), setConcurrency(&s.Concurrency), "services", s.Name, "concurrency")
	}
	for i := range p.Classes {
		c := &p.Classes[i]
		add(false, orNone(c.Reserve, "%"), func(v string) error { return p.checkReserve(i, v) }, "classes", c.Name, "reserve")
		add(false, orNone(c.Max, ""), func(v string) error {
			_, err := parseInt(1, maxConcurrency)(v)
			return err
		}, "classes", c.Name, "max")
	}
	for i := range p.Requests {
		q := &p.Requests[i]
		if q.Action == ActionPolice {
			add(false, q.Rate.String(), setRate(&q.Rate, &q.Burst, q.BurstSet), "requests", q.Name, "rate")
			add(false, fmt.Sprint(q.Burst), setBurst(&q.Burst, &q.BurstSet), "requests", q.Name, "burst")
		}
	}
	return out
}

// orNone returns a number with its unit, or none for 0.
func orNone(n int, unit string) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprint(n) + unit
}

// setRate changes a rate, and with it a burst that follows from the rate.
func setRate(rate *Rate, burst *int, burstSet bool) func(string) error {
	return func(v string) error {
		r, err := parseRate(v)
		if err != nil {
			return err
		}
		*rate = r
		if !burstSet {
			*burst = r.defaultBurst()
		}
		return nil
	}
}

func setBurst(burst *int, burstSet *bool) func(string) error {
	return func(v string) error {
		b, err := parseBurst(v)
		if err != nil {
			return err
		}
		*burst, *burstSet = b, true
		return nil
	}
}

// setConcurrency accepts what is so in this version anyway: no limit.
func setConcurrency(c *Concurrency) func(string) error {
	return func(v string) error {
		n, err := parseConcurrency(v)
		switch {
		case err != nil:
			return err
		case n.Mode == ConcurrencyFixed:
			return fmt.Errorf("concurrency %d is %w; write unlimited or auto", n.Limit, ErrNotEnforced)
		}
		c.Mode, c.Limit = n.Mode, n.Limit
		return nil
	}
}

// checkReserve checks a new reserve of the i-th class beside the others'.
func (p *Policy) checkReserve(i int, value string) error {
	n, err := parsePercent(value)
	if err != nil {
		return err
	}
	for j, c := range p.Classes {
		if j != i {
			n += c.Reserve
		}
	}
	if n > 100 {
		return fmt.Errorf("%s brings the reserves to %d%%; together they are at most 100%%", quote(value), n)
	}
	return nil
}
