// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// MaxLimits is how many limits a rule has at most, beside its rate. The data path relies on it.
const MaxLimits = 8

// MaxAtOnce is how many limits of a rule can be of what there is at once. The data path relies on it.
const MaxAtOnce = 4

// LimitTable is one of the limits of a rule as the data path has it.
type LimitTable struct {
	Interval time.Duration // time in which the bucket gains one token
	Burst    uint32        // bucket depth in tokens
	AtOnce   uint32        // so many at once, in place of a bucket; 0: it is a bucket
	Per      Per
	Key      int // as in RequestRule
}

func limitTables(limits []Bound) (out []LimitTable) {
	for _, b := range limits {
		out = append(out, LimitTable{Interval: b.Rate.Interval(), Burst: uint32(b.Burst), AtOnce: uint32(b.AtOnce), Per: b.Per})
	}
	return out
}

// String says what the limit lets pass.
func (b Bound) String() string {
	if b.AtOnce > 0 {
		return fmt.Sprintf("%d at once, %s", b.AtOnce, b.Per)
	}
	return fmt.Sprintf("%s, burst %d, %s", b.Rate, b.Burst, b.Per)
}

// limitsInWords says what limits let pass together, in the order in which they are asked.
func limitsInWords(rate Limit, burst int, per Per, limits []Bound) string {
	var all []string
	for _, b := range limits {
		all = append(all, b.String())
	}
	if rate.IsSet() {
		all = append(all, rate.inWords(burst, per))
	}
	return strings.Join(all, ", and ")
}

// limits decodes the limits of a rule.
func (d *decoder) limits(n *yaml.Node, into *[]Bound, ofRequests bool) {
	d.newer = true
	if !d.plain(n) {
		return
	}
	switch {
	case n.Kind != yaml.SequenceNode:
		d.errorAt(n, "limits is a list, as [{rate: 100/s}, {rate: 5/s, per: source}], not %s", kindOf(n))
		return
	case len(n.Content) == 0:
		d.errorAt(n, "limits is empty; write some, as [{rate: 100/s}, {rate: 5/s, per: source}], or remove the key")
	case len(n.Content) > MaxLimits:
		d.errorAt(n.Content[MaxLimits], "limits has %d entries; a rule has at most %d limits beside its rate", len(n.Content), MaxLimits)
	}
	for _, e := range n.Content {
		*into = append(*into, d.limit(e, ofRequests))
	}
	atOnce := 0
	for i, b := range *into {
		if b.AtOnce > 0 {
			atOnce++
		}
		if atOnce > MaxAtOnce {
			d.errorAt(n.Content[i], "limits has more than %d entries with at_once; a rule has at most so many", MaxAtOnce)
			return
		}
	}
}

// limit decodes one of them. Its burst follows from the rate unless it is given.
func (d *decoder) limit(n *yaml.Node, ofRequests bool) Bound {
	b := Bound{Per: PerRule}
	f, follow := &limitForm, connectionBurst
	if ofRequests {
		f, follow = &requestLimitForm, requestBurst
	}
	seen := d.mapping(n, f, func(key string, n *yaml.Node) {
		switch key {
		case "rate":
			scalar(d, n, key, &b.Rate, parseBoundRate)
		case "burst":
			scalar(d, n, key, &b.Burst, parseBurst)
		case "at_once":
			scalar(d, n, key, &b.AtOnce, parseMax)
		case "per":
			d.per(n, &b.Per, ofRequests)
		}
	})
	if seen == nil {
		return b
	}
	d.rateOrPlaces(n, seen)
	d.burstFits(seen, b.Rate, b.Burst)
	for at, key := range map[*Pos]*yaml.Node{&b.burstAt: seen["burst"], &b.perAt: seen["per"]} {
		if key != nil {
			*at = position(key)
		}
	}
	if b.BurstSet = b.Burst != 0; !b.BurstSet && b.Rate.Tokens != 0 {
		b.Burst = follow(b.Rate)
	}
	return b
}

// rateOrPlaces reports a limit that is neither of a rate nor of what there is at once, or both.
func (d *decoder) rateOrPlaces(n *yaml.Node, seen map[string]*yaml.Node) {
	switch at := seen["at_once"]; {
	case at == nil:
		d.required(n, "a limit", seen, "rate", "a number of tokens, as 100/s; or at_once, as 4")
	case seen["rate"] != nil:
		d.errorAt(at, `"at_once" beside "rate" in one limit; make two limits of it, [{rate: …}, {at_once: …}]: both must have a token, or a place`)
	case seen["burst"] != nil:
		d.errorAt(seen["burst"], `"burst" is of a rate; remove it beside "at_once"`)
	}
}

// parseBoundRate reads the rate of one of several limits.
func parseBoundRate(s string) (Rate, error) {
	if s == "auto" {
		return Rate{}, fmt.Errorf(`a rate that sets itself is no entry of "limits"; write "rate: auto" beside them`)
	}
	return parseRate(s)
}

const (
	docLimits = "Up to 8 limits. Every one must have a token, or a place, and the rate beside them, and none is spent unless all have."
	docAtOnce = "In place of a rate: requests that wait and are in service at once. At tls services connections, until their end."

	docConnectionsAtOnce = "In place of a rate: connections at once, from the end of their handshake until they are closed."
)

var limitForm = limitFormOf("a tenth of a second's rate, at least 1", docPer, docConnectionsAtOnce, anyOf(oneOf(sharers), object(&perForm)))

var requestLimitForm = limitFormOf("a tenth of a second's rate, at least 20", docPerOf, docAtOnce, anyOf(oneOf(requestSharers), object(&requestPerForm)))

// limitFormOf is the form of one limit of a rule.
func limitFormOf(follows, per, atOnce string, whose *schema) form {
	return form{
		what: "a limit", doc: "One of the limits of a rule: a rate, or how many there may be at once.", oneOf: []string{"rate", "at_once"}, beside: besideRate,
		keys: []key{
			{name: "rate", value: rateValue(), examples: []any{"20/s", "15/m", "1000/h"}, doc: "Tokens per second, minute or hour."},
			{name: "burst", value: whole(1, MaxBurst), defText: follows, doc: docBurst},
			{name: "per", value: whose, def: "rule", doc: per},
			{name: "at_once", value: whole(1, maxConcurrency), examples: []any{4, 100}, doc: atOnce},
		},
	}
}

// besideRate is what means nothing without a rate.
var besideRate = map[string][]string{"burst": {"rate"}}

// limitsValue is the limits of a rule.
func limitsValue(f *form) *schema {
	return &schema{Type: "array", Items: object(f), MinItems: 1, MaxItems: MaxLimits}
}

// addLimits lists what of the limits of a rule can be set, by their numbers from 1 on.
func (l *settingList) addLimits(limits []Bound, follow func(Rate) int, table, rule string) {
	for i := range limits {
		b := &limits[i]
		n := fmt.Sprint(i + 1)
		if b.AtOnce > 0 {
			l.add(fmt.Sprint(b.AtOnce), setTo(&b.AtOnce, parseMax), table, rule, "limits", n, "at_once")
			continue
		}
		l.add(b.Rate.String(), b.setRate(follow), table, rule, "limits", n, "rate")
		l.add(fmt.Sprint(b.Burst), b.setBurst, table, rule, "limits", n, "burst")
	}
}

func (b *Bound) setRate(follow func(Rate) int) func(string) error {
	return func(v string) error {
		rate := Limit{Rate: b.Rate}
		if err := setRate(&rate, &b.Burst, b.BurstSet, follow)(v); err != nil {
			return err
		}
		b.Rate = rate.Rate
		return nil
	}
}

func (b *Bound) setBurst(v string) error {
	rate := Limit{Rate: b.Rate}
	return setBurst(&rate, &b.Burst, &b.BurstSet)(v)
}

// LimitMeaning is one of the limits of a rule.
type LimitMeaning struct {
	Bucket *BucketMeaning `json:"bucket,omitempty"`  // absent: it is no rate
	AtOnce int            `json:"at_once,omitempty"` // in place of a bucket
	Per    *PerMeaning    `json:"per,omitempty"`     // absent: one bucket for the rule
}

func limitsMeaning(limits []Bound) (out []LimitMeaning) {
	for _, b := range limits {
		out = append(out, LimitMeaning{bucketMeaning(Limit{Rate: b.Rate}, b.Burst), b.AtOnce, b.Per.meaning()})
	}
	return out
}
