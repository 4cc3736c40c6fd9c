// SPDX-License-Identifier: Apache-2.0

// Command campaign gives the reader of heads, compiled natively, so many random heads under random
// rules, and compares what it says with plain Go.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"narthex/test/rules"
)

func main() {
	n := flag.Int("n", 10_000_000, "heads")
	seed := flag.Uint64("seed", 1, "of the random numbers")
	first := flag.Uint64("episode", 0, "to begin with")
	flag.Parse()
	start := time.Now()
	var checker rules.Checker
	var tally rules.Tally
	heads, number := 0, *first
	for ; heads < *n; number++ {
		h, err := checker.Episode(*seed, number, &tally)
		heads += h
		if err != nil {
			fmt.Printf("seed %d, episode %d: %v\n", *seed, number, err)
			os.Exit(1)
		}
	}
	fmt.Printf("%d heads under %d policies, %v: %d matched a rule, %d none, %d were refused, %d by the framing, %d were too complex\n", heads, number-*first,
		time.Since(start).Round(time.Millisecond), tally[rules.Matched], tally[rules.Unmatched], tally[rules.Refused], tally[rules.Unframed], tally[rules.Complex])
}
