// SPDX-License-Identifier: Apache-2.0

package client

import (
	"math/rand/v2"
	"testing"
)

func testArena(t testing.TB) *arena {
	t.Helper()
	a, err := newArena()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// A cut returns how long the next piece may be.
type cut func() int

// whole makes pieces as long as may be; none, for what is skipped, makes none.
func whole() int { return 1 << 20 }
func none() int  { return 0 }

// upTo makes pieces of random size.
func upTo(size int, b []byte) cut {
	random := rand.New(rand.NewPCG(uint64(len(b)), uint64(size)))
	return func() int { return 1 + random.IntN(size) }
}

// after makes a piece of a size, and then such as are as long as may be.
func after(first int) cut {
	at := 0
	return func() int {
		n := chunkSize
		if at < first {
			n = min(n, first-at)
		}
		at += n
		return n
	}
}
