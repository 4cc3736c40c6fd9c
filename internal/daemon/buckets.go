// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"slices"

	"narthex/internal/policy"
)

// bucketsAfter says what becomes of the tokens of the rule that a path such as
// connections.NAME.rate is about, when one policy follows another.
func bucketsAfter(path string, old, next *policy.Policy) string {
	if i := slices.IndexFunc(next.Connections, func(c policy.Connection) bool { return overrides(path, connectionTable, c.Name) }); i >= 0 {
		return next.Connections[i].Per.Levels(old.Connections[i].Rate.Rate, next.Connections[i].Rate.Rate)
	}
	if i := slices.IndexFunc(next.Requests, func(q policy.Request) bool { return overrides(path, requestTable, q.Name) }); i >= 0 {
		return next.Requests[i].Per.Levels(old.Requests[i].Rate.Rate, next.Requests[i].Rate.Rate)
	}
	return ""
}
