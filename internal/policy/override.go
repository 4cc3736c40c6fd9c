// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Setting is one value of a policy that `narthex set` may change.
type Setting struct {
	Path  string // as connections.NAME.rate
	Value string // as in a policy, or none
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

// Paths lists the paths that Override accepts.
func (p *Policy) Paths() []string {
	var out []string
	for _, s := range p.settings() {
		out = append(out, s.Path)
	}
	return out
}

// Override sets the value at a path as if the policy file held it. The error names what
// would be right. On error p is unchanged.
func (p *Policy) Override(path, value string) error {
	all := p.settings()
	at := slices.IndexFunc(all, func(s setting) bool { return s.Path == path })
	if at < 0 {
		return p.noPath(path)
	}
	if err := all[at].set(value); err != nil {
		return fmt.Errorf("set %s: %w", path, err)
	}
	return nil
}

// noPath says which paths there are instead of one that is not.
func (p *Policy) noPath(path string) error {
	if part := strings.Split(path, "."); len(part) == 3 && p.hasNoRate(part[0], part[1], part[2]) {
		return fmt.Errorf("set %s: rule %q has no rate; give it one in the policy first", path, part[1])
	}
	paths := p.Paths()
	const typo = 2 // edits; more and another setting may be meant
	if guess := nearestWithin(typo, path, paths); guess != "" {
		return fmt.Errorf("set %s: there is no such path%s", quote(path), didYouMean(guess))
	}
	return fmt.Errorf("set %s: there is no such path; what can be set: %s", quote(path), firstOf(paths))
}

// hasNoRate reports whether a path would be about the rate of a rule without one.
func (p *Policy) hasNoRate(table, rule, key string) bool {
	switch table {
	case "connections":
		return (key == "rate" || key == "burst") &&
			slices.ContainsFunc(p.Connections, func(c Connection) bool { return c.Name == rule && !c.Rate.IsSet() })
	case "requests":
		return (key == "rate" || key == "burst" || key == "over") &&
			slices.ContainsFunc(p.Requests, func(q Request) bool {
				return q.Name == rule && q.Action != ActionPolice || key != "over" && !q.Rate.IsSet()
			})
	}
	return false
}

// firstOf lists the first names, and how many more there are.
func firstOf(names []string) string {
	const most = 8
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// settingList collects settings.
type settingList []setting

func (l *settingList) add(value string, set func(string) error, path ...string) {
	*l = append(*l, setting{Setting{strings.Join(path, "."), value}, set})
}

// settings lists everything that can be set: first the limits of connections and requests,
// then the rest in the order of the policy file.
func (p *Policy) settings() []setting {
	var l settingList
	for i := range p.Connections {
		c := &p.Connections[i]
		if c.Rate.IsSet() {
			l.add(c.Rate.String(), setRate(&c.Rate, &c.Burst, c.BurstSet, connectionBurst), "connections", c.Name, "rate")
		}
		if c.Rate.Tokens != 0 {
			l.add(fmt.Sprint(c.Burst), setBurst(&c.Rate, &c.Burst, &c.BurstSet), "connections", c.Name, "burst")
		}
		l.addLimits(c.Limits, connectionBurst, "connections", c.Name)
	}
	for i := range p.Requests {
		q := &p.Requests[i]
		if q.Rate.IsSet() {
			l.add(q.Rate.String(), setRate(&q.Rate, &q.Burst, q.BurstSet, requestBurst), "requests", q.Name, "rate")
		}
		if q.Rate.Tokens != 0 {
			l.add(fmt.Sprint(q.Burst), setBurst(&q.Rate, &q.Burst, &q.BurstSet), "requests", q.Name, "burst")
		}
		l.addLimits(q.Limits, requestBurst, "requests", q.Name)
		if q.Action == ActionPolice {
			l.add(string(q.Over), setTo(&q.Over, parseOver), "requests", q.Name, "over")
		}
	}
	for i := range p.Services {
		l.addService(&p.Services[i])
	}
	for i := range p.Pools {
		l.addPool(&p.Pools[i])
	}
	p.addClasses(&l)
	return l
}

func (l *settingList) addService(s *Service) {
	q := &s.Queue
	l.add(s.mode(), s.setMode, "services", s.Name, "mode")
	if s.Pool == 0 {
		l.addConcurrency(&s.Concurrency, "services", s.Name)
	} else {
		l.add(s.Concurrency.word(), setPooled(&s.Concurrency), "services", s.Name, "concurrency")
	}
	o, all := &s.Overload, s.Overload.withDefaults()
	l.add(span(all.After), setTo(&o.After, parseAfter), "services", s.Name, "overload", "after")
	l.add(span(all.Calm), setTo(&o.Calm, parseCalm), "services", s.Name, "overload", "calm")
	l.add(all.Rejecting.String(), setTo(&o.Rejecting, parseRate), "services", s.Name, "overload", "rejecting")
	l.add(all.floods().String(), setTo(&o.Flooded, parseRate), "services", s.Name, "overload", "flooded")
	l.add(fmt.Sprint(q.Size), setTo(&q.Size, parseQueueSize), "services", s.Name, "queue", "size")
	l.add(span(q.MaxWait), setTo(&q.MaxWait, parseMaxWait), "services", s.Name, "queue", "max_wait")
	l.add(span(q.MaxService), setTo(&q.MaxService, parseMaxService), "services", s.Name, "queue", "max_service")
	l.add(orNever(q.Target), setTo(&q.Target, parseOrNone(parseMaxWait)), "services", s.Name, "queue", "target")
}

// mode returns whether the service's policy is enforced or only tried.
func (s *Service) mode() string {
	if s.Shadow {
		return "shadow"
	}
	return "enforce"
}

func (s *Service) setMode(value string) error {
	mode, err := parseMode(value)
	if err == nil {
		s.Shadow = mode == "shadow"
	}
	return err
}

func (l *settingList) addConcurrency(c *Concurrency, table, name string) {
	l.add(c.word(), setConcurrency(c), table, name, "concurrency")
	l.add(fmt.Sprint(max(c.Min, defaultFloor)), setTo(&c.Min, parseLimit), table, name, "concurrency", "min")
	l.add(orNone(c.Max, ""), setTo(&c.Max, parseOrNone(parseLimit)), table, name, "concurrency", "max")
	l.add(orNever(c.Target), setTo(&c.Target, parseOrNone(parseTarget)), table, name, "concurrency", "target")
}

func (p *Policy) addClasses(l *settingList) {
	for i := range p.Classes {
		c := &p.Classes[i]
		l.add(orNone(c.Reserve, "%"), p.setReserve(i), "classes", c.Name, "reserve")
		l.add(orNone(c.Max, ""), setTo(&c.Max, parseOrNone(parseMax)), "classes", c.Name, "max")
		l.add(orNever(c.Stall), setTo(&c.Stall, parseOrNone(parseStall)), "classes", c.Name, "stall")
	}
}

// orNone returns a number with its unit, or none for 0.
func orNone(n int, unit string) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprint(n) + unit
}

// orNever returns a duration, or none for 0.
func orNever(d time.Duration) string {
	if d == 0 {
		return "none"
	}
	return span(d)
}

// setRate changes a rate, and with it a burst that follows from the rate. One that sets itself is in
// overload alone what it is set to: the rule's when stays.
func setRate(rate *Limit, burst *int, burstSet bool, follow func(Rate) int) func(string) error {
	return func(v string) error {
		if v == "auto" && rate.Auto.On {
			return nil
		}
		r, err := parseRate(v)
		if err != nil {
			return err
		}
		if burstSet {
			err = r.holds(*burst)
		} else {
			*burst = follow(r)
		}
		if err == nil {
			*rate = Limit{Rate: r}
		}
		return err
	}
}

func setBurst(rate *Limit, burst *int, burstSet *bool) func(string) error {
	return func(v string) error {
		b, err := parseBurst(v)
		if err == nil {
			err = rate.holds(b)
		}
		if err != nil {
			return err
		}
		*burst, *burstSet = b, true
		return nil
	}
}

var parseOver = parseWord(overs...)

// setTo changes a value that nothing else depends on.
func setTo[T any](into *T, parse func(string) (T, error)) func(string) error {
	return func(s string) error {
		v, err := parse(s)
		if err != nil {
			return err
		}
		*into = v
		return nil
	}
}

// setReserve changes the reserve of the i-th class, within what the others' leave.
func (p *Policy) setReserve(i int) func(string) error {
	return func(value string) error {
		n, err := parseOrNone(parsePercent)(value)
		if err != nil {
			return err
		}
		sum := n
		for j, c := range p.Classes {
			if j != i {
				sum += c.Reserve
			}
		}
		if sum > 100 {
			return fmt.Errorf("%s brings the reserves to %d%%; together they are at most 100%%", quote(value), sum)
		}
		p.Classes[i].Reserve = n
		return nil
	}
}
