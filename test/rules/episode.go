// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// Sizes of an episode: heads under one policy, and the bytes that a head is drawn from at most.
const (
	episodeHeads  = 400
	policyChoices = 600
	headChoices   = 500
)

// serverEvery is how many heads there are for each that net/http reads, too.
const serverEvery = 8

// Tally is how many heads had which outcome.
type Tally [Complex + 1]int

// Episode gives a random policy random heads. The error says what is wrong with which.
func (c *Checker) Episode(seed, number uint64, tally *Tally) (heads int, err error) {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	binary.LittleEndian.PutUint64(key[8:], number)
	random := rand.NewChaCha8(key)
	choices := make([]byte, max(policyChoices, headChoices))
	draw := func(n int) *dice {
		_, _ = random.Read(choices[:n]) // cannot fail
		return &dice{choices[:n]}
	}
	p := draw(policyChoices).requests()
	if c.Use(p, random.Uint64()) != nil {
		return 0, nil // it is refused
	}
	like := patternsOf(p)
	for i := range episodeHeads {
		d := draw(headChoices)
		e := d.ends()
		head := d.head(like)
		outcome, err := c.try(head, 1+random.Uint64()%chunkSize, i, e)
		tally[outcome]++
		if err != nil {
			return i, fmt.Errorf("%w: %q from %s to %s under %+v", err, head, e.from, e.to, p.Requests)
		}
	}
	return episodeHeads, nil
}

// try reads a head in pieces; which says how else.
func (c *Checker) try(head []byte, piece uint64, which int, e ends) (Outcome, error) {
	outcome, err := c.Check(head, int(piece), which%2 == 0, e)
	if err == nil && which%serverEvery == 0 {
		err = c.CheckServer(head, int(piece))
	}
	return outcome, err
}
