// SPDX-License-Identifier: Apache-2.0

package tui

import "fmt"

// helpLines are the keys, and what the columns mean.
func helpLines() []string {
	lines := []string{""}
	for _, b := range keys.helped() {
		lines = append(lines, fmt.Sprintf("  %-7s %s", b.Help().Key, b.Help().Desc))
	}
	return append(lines,
		"",
		"  IN SERV    requests that the server works on, of how many may be",
		"  WAITING    requests that are held until there is room",
		"  HELD/s     of those that arrived, how many had to wait",
		"  REJECT/s   requests that were turned away",
		"  WAIT       half and 99 of 100 of those let in had waited at most so long",
		"  SERV       the same of the time in service",
		"  WANTS, DUE places that a member of a pool has use for, and due by its share",
		"  GOT        places that it had on average",
		"  DROP/s     what a rule dropped, rejected or demoted",
		"  TURNED/s   SYNs and requests of a client turned away, at least: of a flood",
		"             only part is counted by client",
	)
}
