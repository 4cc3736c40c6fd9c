// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
)

// parseWhen reads when a rule is enforced.
func parseWhen(s string) (When, error) {
	word, err := parseWord(whens...)(s)
	return When(max(0, slices.Index(whens, word))), err
}

// whenFits reports a rule with nothing to enforce that says when to enforce it.
func (d *decoder) whenFits(seen map[string]*yaml.Node, when When, act string) {
	switch {
	case when == WhenAlways:
	case act == "pass":
		d.errorAt(seen["when"], `"action: pass" is not enforced on anybody, so "when: %s" has no effect; remove one of the two`, when)
	case seen["action"] == nil && seen["rate"] == nil && seen["limits"] == nil && seen["class"] != nil:
		d.errorAt(seen["when"], `"when: %s" has no effect where nothing is limited: a class is given at all times; add a rate, as "rate: 100/s", or an action, or remove it`, when)
	}
}

// overload decodes when the levels of overload begin and end.
func (d *decoder) overload(n *yaml.Node, o *Overload) {
	seen := d.mapping(n, &overloadForm, func(key string, n *yaml.Node) {
		switch key {
		case "after":
			scalar(d, n, key, &o.After, parseAfter)
		case "calm":
			scalar(d, n, key, &o.Calm, parseCalm)
		case "rejecting":
			scalar(d, n, key, &o.Rejecting, parseRate)
		case "flooded":
			scalar(d, n, key, &o.Flooded, parseRate)
		}
	})
	if len(n.Content) == 0 && n.Kind == yaml.MappingNode {
		d.errorAt(n, `"overload" is empty; write when its levels begin, as {rejecting: 5/s, flooded: 500/s}`)
	}
	if err := o.check(); err != nil {
		at := seen["flooded"]
		if at == nil { // it is the default
			at = seen["rejecting"]
		}
		d.errorAt(at, "overload: %v", err)
	}
}

// check reports levels that are not in order.
func (o Overload) check() error {
	rejecting, flooded := o.withDefaults().Rejecting, o.floods()
	if flooded.PerSecond() < rejecting.PerSecond() {
		return fmt.Errorf("flooded %s is below rejecting %s; the flood is the higher level", flooded, rejecting)
	}
	return nil
}

// The parsers of when a level begins and ends.
var (
	parseAfter = parseDuration(leastAfter, mostAfter, time.Millisecond)
	parseCalm  = parseDuration(leastAfter, mostCalm, time.Millisecond)
)

// Bounds of when a level of overload begins and ends.
const (
	leastAfter = 50 * time.Millisecond
	mostAfter  = time.Minute
	mostCalm   = 10 * time.Minute
)

// DefaultAfter is for how long a level of overload must be seen before it begins, and DefaultCalm for
// how long it must not be seen before it ends, unless the policy says otherwise.
const (
	DefaultAfter = 250 * time.Millisecond
	DefaultCalm  = 2 * time.Second
)

// DefaultRejecting is how many requests must be turned away for WhenRejecting, and DefaultFlooded the same for
// WhenFlooded, if that is more than are answered, unless the policy says otherwise.
var (
	DefaultRejecting = Rate{2, time.Second}
	DefaultFlooded   = Rate{500, time.Second}
)

// withDefaults fills in what is not given.
func (o Overload) withDefaults() Overload {
	if o.After == 0 {
		o.After = DefaultAfter
	}
	if o.Calm == 0 {
		o.Calm = DefaultCalm
	}
	if o.Rejecting.Tokens == 0 {
		o.Rejecting = DefaultRejecting
	}
	return o
}

// floods is the rate from which on it is WhenFlooded, if more are turned away than answered.
func (o Overload) floods() Rate {
	if o.Flooded.Tokens == 0 {
		return DefaultFlooded
	}
	return o.Flooded
}

// inWords says when levels begin and end.
func (o Overload) inWords() string {
	all := o.withDefaults()
	flooded := "when more than " + DefaultFlooded.String() + " are, and more than are answered"
	if o.Flooded.Tokens > 0 {
		flooded = "from " + o.Flooded.String() + " on"
	}
	return "overload begins when it is seen for " + span(all.After) + ", and ends after " + span(all.Calm) +
		"; rejecting when " + all.Rejecting.String() + " are turned away, flooded " + flooded
}

// attributes lists what is given.
func (o Overload) attributes() (list []attribute) {
	add := func(key, value string, given bool) {
		if !given {
			value = ""
		}
		list = append(list, attribute{"overload." + key, value})
	}
	add("after", span(o.After), o.After > 0)
	add("calm", span(o.Calm), o.Calm > 0)
	add("rejecting", o.Rejecting.String(), o.Rejecting.Tokens > 0)
	add("flooded", o.Flooded.String(), o.Flooded.Tokens > 0)
	return list
}
