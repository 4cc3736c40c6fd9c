// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// AutoRate says that a rate sets itself, by what the daemon sees of the server.
type AutoRate struct {
	On  bool
	Min Rate // what it never falls below; none: defaultLeastRate
	Max Rate // what it never rises above; none: no bound
}

// defaultLeastRate is what a rate that sets itself never falls below, unless the policy says otherwise.
var defaultLeastRate = Rate{1, time.Second}

// Limit is the rate that a rule gives to what it matches: a number, or one that sets itself.
type Limit struct {
	Rate
	Auto AutoRate
}

// IsSet reports whether there is one.
func (l Limit) IsSet() bool { return l.Tokens != 0 || l.Auto.On }

// String returns the rate as in a policy, and the bounds of one that sets itself.
func (l Limit) String() string {
	if !l.Auto.On {
		return l.Rate.String()
	}
	var bounds []string
	if l.Auto.Min.Tokens > 0 {
		bounds = append(bounds, "min "+l.Auto.Min.String())
	}
	if l.Auto.Max.Tokens > 0 {
		bounds = append(bounds, "max "+l.Auto.Max.String())
	}
	if len(bounds) == 0 {
		return "auto"
	}
	return "auto (" + strings.Join(bounds, ", ") + ")"
}

// inWords says how much a rule lets pass, and who shares that.
func (l Limit) inWords(burst int, per Per) string {
	if l.Auto.On {
		return fmt.Sprintf("what keeps the service at its target (%s)", strings.NewReplacer(" (", ", ", ")", "").Replace(l.String()))
	}
	return fmt.Sprintf("%s, burst %d, %s", l, burst, per)
}

// Least is what the rate never falls below, in tokens per second.
func (a AutoRate) Least() float64 {
	if a.Min.Tokens == 0 {
		return min(defaultLeastRate.PerSecond(), a.Most())
	}
	return a.Min.PerSecond()
}

// Most is what the rate never rises above, in tokens per second.
func (a AutoRate) Most() float64 {
	if a.Max.Tokens == 0 {
		return MaxRate
	}
	return a.Max.PerSecond()
}

// rate decodes a rate: a number, auto, or auto between bounds.
func (d *decoder) rate(n *yaml.Node, l *Limit) {
	if n.Kind != yaml.MappingNode {
		scalar(d, n, "rate", l, parseLimitRate)
		return
	}
	var auto AutoRate
	seen := d.mapping(n, &autoRateForm, func(key string, n *yaml.Node) {
		switch key {
		case "auto":
			scalar(d, n, key, &auto.On, parseBool)
		case "min":
			scalar(d, n, key, &auto.Min, parseRate)
		case "max":
			scalar(d, n, key, &auto.Max, parseRate)
		}
	})
	switch {
	case seen["auto"] == nil:
		d.errorAt(n, `rate: bounds are those of a rate that sets itself; write {auto: true, min: 5/s, max: 500/s}, or a number, as 100/s`)
		l.Auto.On = true // lest it is said that the rule does nothing
	case !auto.On:
		d.errorAt(seen["auto"], `rate: "auto: false" is no rate; write a number, as 100/s`)
		l.Auto.On = true
	default:
		if auto.Max.Tokens > 0 && auto.Min.Tokens > 0 && auto.Min.PerSecond() > auto.Max.PerSecond() {
			d.errorAt(seen["max"], "rate: min %s is above max %s; there is no rate between them", auto.Min, auto.Max)
		}
		l.Auto = auto
	}
}

// parseLimitRate reads 100/s, 15/m or auto.
func parseLimitRate(s string) (Limit, error) {
	if s == "auto" {
		return Limit{Auto: AutoRate{On: true}}, nil
	}
	r, err := parseRate(s)
	if err != nil {
		if !looseRate.MatchString(s) { // a word
			err = fmt.Errorf("%w, or auto", err)
		}
		return Limit{}, err
	}
	return Limit{Rate: r}, nil
}

// autoFits reports keys that mean nothing beside a rate that sets itself, and has the rule be enforced
// in overload alone.
func (d *decoder) autoFits(seen map[string]*yaml.Node, l Limit, per Per, when *When) {
	if !l.Auto.On {
		return
	}
	if k := seen["burst"]; k != nil {
		d.errorAt(k, `the burst of "rate: auto" follows the rate: a tenth of a second's; remove "burst"`)
	}
	if k := seen["per"]; k != nil && per != PerRule {
		d.errorAt(k, `"rate: auto" is one rate for all that the rule matches; remove "per", or give a number, as "rate: 5/s"`)
	}
	if k := seen["when"]; k != nil && *when == WhenAlways {
		d.errorAt(k, `"rate: auto" is enforced in overload alone; write "when: overload", "rejecting" or "flooded", or remove it`)
	}
	*when = max(*when, WhenOverload)
}

var autoRateForm = form{
	what: "rate", filled: true,
	keys: []key{
		{name: "auto", required: true, value: boolValue(), doc: "true: the rate sets itself in overload, so that the service stays at its target."},
		{name: "min", value: rateValue(), def: defaultLeastRate.String(), doc: "The rate never falls below."},
		{name: "max", value: rateValue(), defText: "no bound", doc: "The rate never rises above."},
	},
}

// limitValue is the rate of a rule.
func limitValue() *schema {
	return anyOf(rateValue(), oneOf([]string{"auto"}), object(&autoRateForm))
}

// autoRules lists the rules that are for a service and whose rates set themselves.
func (p *Policy) autoRules(service int) (list []AutoRule) {
	rank := func(class int) int {
		if class < 0 {
			return p.Default
		}
		return class
	}
	for i, c := range p.Connections {
		if c.Rate.Auto.On && (len(c.To) == 0 || slices.Contains(c.To, service)) {
			list = append(list, AutoRule{AutoRuleName{c.Name, false}, i, rank(c.Class), c.When, c.Rate.Auto})
		}
	}
	for i, q := range p.Requests {
		if q.Rate.Auto.On && q.seenIn(p.Services[service].Protocol) {
			list = append(list, AutoRule{AutoRuleName{q.Name, true}, i, rank(q.Class), q.When, q.Rate.Auto})
		}
	}
	return list
}
