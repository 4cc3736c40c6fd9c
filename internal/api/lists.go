// SPDX-License-Identifier: Apache-2.0

package api

// List returns s, or an empty list for nil: JSON has [] then and not null.
func List[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
