// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"slices"

	"narthex/internal/policy"
)

// bucketsAfter says what becomes of the tokens of the rule that a path such as
// connections.NAME.rate is about, when one policy follows another.
func bucketsAfter(path string, old, next *policy.Policy) string {
	i := slices.IndexFunc(next.Connections, func(c policy.Connection) bool { return overrides(path, c.Name) })
	switch {
	case i < 0:
		return ""
	case next.Connections[i].Per == policy.PerRule:
		return "the rule's bucket keeps its tokens"
	case next.Connections[i].Rate.Interval() < old.Connections[i].Rate.Interval():
		return "the buckets of its sources start full"
	}
	return "the buckets of its sources keep their level"
}
