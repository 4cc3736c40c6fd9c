// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"math"
	"time"

	"narthex/internal/policy"
)

// Pace is the rate of a rule whose rate sets itself.
type Pace struct {
	Rate  float64       // tokens per second; 0: the rule limits nothing
	Grace time.Duration // for how long this holds; then the rule limits nothing
}

// PacedRule names a rule of the state in force.
type PacedRule struct {
	Request bool // of Tables.Requests; else of Tables.Rules
	Index   int
}

// key finds the rule's slot.
func (r PacedRule) key(t *policy.Tables) (ruleKey, error) {
	requests := t.RequestRules()
	switch {
	case r.Request && r.Index < len(requests):
		return requestKey(&requests[r.Index]), nil
	case !r.Request && r.Index < len(t.Rules):
		return connectionKey(&t.Rules[r.Index]), nil
	}
	return ruleKey{}, errNoRule
}

// SetPace puts a rate in force for a rule whose rate sets itself. Its burst is a tenth of a second's
// rate, at least 1.
func (in *Instance) SetPace(rule PacedRule, p Pace) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	slot, at, err := in.pacedSlot(rule)
	if err != nil {
		return err
	}
	to := narthexPace{}
	if p.Rate > 0 {
		to.Until, to.Interval = at+uint64(p.Grace), uint64(math.Max(1, float64(time.Second)/p.Rate))
		to.Tolerance = to.Interval * uint64(max(1, p.Rate/10)-1)
	}
	if err := in.objects.RulePaces.Put(slot, &to); err != nil {
		return fmt.Errorf("setting the rate of a rule: %w", err)
	}
	return nil
}

// ReadPaced reads what a rule whose rate sets itself has done.
func (in *Instance) ReadPaced(rule PacedRule) (Counts, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	slot, _, err := in.pacedSlot(rule)
	if err != nil {
		return Counts{}, err
	}
	return readCounts(in.objects.RuleCounts, slot)
}

// ReadService reads what became of a service's SYNs, by its index in Tables.Services.
func (in *Instance) ReadService(service int) (Counts, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	t, _, err := in.atService(service)
	if err != nil {
		return Counts{}, err
	}
	return readCounts(in.objects.ServiceCounts, in.slots.byName[t.Services[service].Name])
}

// pacedSlot returns the slot of a rule, and the kernel's time. The lock is held.
func (in *Instance) pacedSlot(rule PacedRule) (slot uint32, at uint64, err error) {
	if in.objects == nil || in.applied.Tables == nil {
		return 0, 0, errNoRule
	}
	key, err := rule.key(in.applied.Tables)
	if err != nil {
		return 0, 0, err
	}
	at, err = now()
	return in.slots.byRule[key], at, err
}

// pacedBucket reads the bucket of a rule whose rate sets itself; while that limits nothing, one that has a token.
func (in *Instance) pacedBucket(r *narthexRule, at uint64) (Bucket, error) {
	var p narthexPace
	if err := in.objects.RulePaces.Lookup(r.Slot, &p); err != nil {
		return Bucket{}, fmt.Errorf("reading the rate of a rule: %w", err)
	}
	if int64(p.Until-at) <= 0 {
		return Bucket{Known: true, Tokens: 1}, nil
	}
	var arrival uint64
	if err := in.objects.RuleBuckets.Lookup(bucketIndex(r.Slot, r.Id), &arrival); err != nil {
		return Bucket{}, fmt.Errorf("reading a bucket: %w", err)
	}
	return level(arrival, at, p.Interval, uint32(p.Tolerance/p.Interval)+1), nil
}
