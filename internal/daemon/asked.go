// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"

	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/policy"
)

// asked is what the buckets of a rule say: that of its rate, and those of its limits.
type asked struct {
	rate   policy.Limit
	per    policy.Per
	limits []policy.Bound
	read   func(limit int, per policy.Per) (datapath.Bucket, error) // nil: nobody can

	bucket  *api.BucketStatus // of the rate
	said    []api.LimitDecision
	refused bool // one is empty
}

// ask reads all of them.
func (a *asked) ask(rule string) error {
	read := func(limit int, per policy.Per) (*api.BucketStatus, error) {
		if a.read == nil {
			return nil, nil
		}
		b, err := a.read(limit, per)
		if err != nil {
			return nil, fmt.Errorf("read the bucket of rule %q: %w", rule, err)
		}
		a.refused = a.refused || b.Tokens < 1
		return bucketStatus(b), nil
	}
	for i, l := range a.limits {
		b, err := read(i, l.Per)
		if err != nil {
			return err
		}
		a.said = append(a.said, api.LimitDecision{Rate: rateOf(l), Burst: uint32(l.Burst), AtOnce: uint32(l.AtOnce), Per: l.Per.Word(), Bucket: b})
	}
	if !a.rate.IsSet() {
		return nil
	}
	b, err := read(datapath.RateOf, a.per)
	a.bucket = b
	return err
}
