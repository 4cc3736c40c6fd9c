// SPDX-License-Identifier: Apache-2.0

// Package draw turns bytes into decisions, of which tests make what is nearly valid.
package draw

import (
	"bytes"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"
)

// Recipe is bytes as decisions, so that a fuzzer that changes bytes changes one decision of
// something that makes sense otherwise. When the bytes are used up, every decision falls on its
// first, plain, option.
type Recipe []byte

// Below returns a number below n, at most 256.
func (r *Recipe) Below(n int) int {
	if len(*r) == 0 {
		return 0
	}
	b := (*r)[0]
	*r = (*r)[1:]
	return int(b) % n
}

// Rarely is true once in n times.
func (r *Recipe) Rarely(n int) bool { return r.Below(n) == n-1 }

// Change changes a bit of a byte, removes the byte or doubles a few bytes, as how says: 0, 1 or 2.
func (r *Recipe) Change(b []byte, at, how int) []byte {
	switch how {
	case 0:
		b[at] ^= 1 << r.Below(8)
	case 1:
		b = slices.Delete(b, at, at+1)
	case 2:
		end := min(len(b), at+1+r.Below(20))
		b = slices.Insert(b, at, bytes.Clone(b[at:end])...)
	}
	return b
}

// Damage changes, once in so many times, a few bytes, mostly of the beginning.
func (r *Recipe) Damage(b []byte, once int) []byte {
	if !r.Rarely(once) {
		return b
	}
	for range 1 + r.Below(3) {
		if len(b) == 0 {
			break
		}
		at := Pick(r, r.Below(16), r.Below(256)<<8|r.Below(256)) % len(b)
		b = r.Change(b, at, r.Below(3))
	}
	return b
}

// Decider is a Recipe, or has one in it.
type Decider interface {
	Below(n int) int
	Rarely(n int) bool
}

// Pick returns one of the options.
func Pick[T any](d Decider, options ...T) T { return options[d.Below(len(options))] }

// Unlikely returns the first option but once in n times.
func Unlikely[T any](d Decider, n int, plain T, options ...T) T {
	if d.Rarely(n) {
		return Pick(d, options...)
	}
	return plain
}

// Recipes returns a number of random recipes of so many bytes, each in the memory of the one before.
func Recipes(random *rand.ChaCha8, times, size int) iter.Seq[Recipe] {
	return func(yield func(Recipe) bool) {
		choices := make(Recipe, size)
		for range times {
			_, _ = random.Read(choices) // cannot fail
			if !yield(choices) {
				return
			}
		}
	}
}

// Add has a fuzzer begin with random recipes of so many bytes.
func Add(f *testing.F, size int) {
	for choices := range Recipes(rand.NewChaCha8([32]byte{3}), 64, size) {
		f.Add([]byte(slices.Clone(choices)))
	}
}
