// SPDX-License-Identifier: Apache-2.0

package twin

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Step is what a scan ends with.
type Step string

const (
	More Step = "it goes on"
	End  Step = "it has ended"
	Lost Step = "it is none, or cannot be followed"
)

// Steps translates enum http_step.
type Steps map[uint32]Step

// After translates what a scan of some bytes returned, and how many it says that it used. It fails
// if the two cannot be.
func (s Steps) After(returned uint32, used, of int) (Step, int, error) {
	step, ok := s[returned]
	switch {
	case !ok:
		return "", 0, fmt.Errorf("the scan returned %d, which it does not define", returned)
	case used > of || step == More && used != of:
		return "", 0, fmt.Errorf("the scan used %d of %d bytes and says %s", used, of, step)
	}
	return step, used, nil
}

// Result is what is known of the bytes of a connection.
type Result struct {
	Step
	Used int // bytes: all, or up to the end, or to the byte that makes it lost
}

// Scanner reads a connection's bytes by and by.
type Scanner interface {
	// Scan reads at most a chunk, of which the first byte is the connection's so many.
	Scan(b []byte, at int) (step Step, used int, err error)
	// Skip returns how many of the next n bytes need not be read.
	Skip(n int) int
}

// Cut returns how long the next piece may be.
type Cut func() int

// Whole makes pieces as long as may be; None, for what is skipped, makes none.
func Whole() int { return 1 << 20 }
func None() int  { return 0 }

// UpTo makes pieces of random size, which the bytes' number decides, too.
func UpTo(size int, b []byte) Cut {
	random := rand.New(rand.NewPCG(uint64(len(b)), uint64(size)))
	return func() int { return 1 + random.IntN(size) }
}

// After makes a piece of a size, and then such as are as long as may be: each in chunks.
func After(first, chunk int) Cut {
	at := 0
	return func() int {
		n := chunk
		if at < first {
			n = min(n, first-at)
		}
		at += n
		return n
	}
}

// Feed feeds a scanner bytes, cut as one function says and by chunks, until it stops. Before each
// piece it may skip what another says.
func Feed(tb testing.TB, s Scanner, chunk int, b []byte, next, skip Cut) Result {
	tb.Helper()
	for at := 0; at < len(b); {
		most := min(skip(), len(b)-at)
		skipped := s.Skip(most)
		if skipped > most {
			tb.Fatalf("the scan skips %d of %d bytes\n%q", skipped, most, b)
		}
		at += skipped
		n := min(next(), len(b)-at, chunk)
		if n == 0 {
			break
		}
		step, used, err := s.Scan(b[at:at+n], at)
		if err != nil {
			tb.Fatalf("%v\n%q", err, b)
		}
		at += used
		if step != More {
			return Result{step, at}
		}
	}
	return Result{More, len(b)}
}

// CheckPieces fails unless a scan says what is wanted of bytes however they are cut into pieces of
// at most the given sizes, and whatever of them is skipped.
func CheckPieces[R comparable](tb testing.TB, b []byte, want R, scan func(next, skip Cut) R, sizes ...int) {
	tb.Helper()
	if got := scan(Whole, Whole); got != want {
		tb.Fatalf("with what may be skipped skipped, the scan says %+v\nwithout, %+v\n%q", got, want, b)
	}
	for _, size := range sizes {
		for name, skip := range map[string]Cut{"none": None, "all": Whole, "some": UpTo(size, b[len(b)/2:])} {
			if got := scan(UpTo(size, b), skip); got != want {
				tb.Fatalf("in pieces of up to %d bytes, %s of them skipped, the scan says %+v\nin one, %+v\n%q", size, name, got, want, b)
			}
		}
	}
}
