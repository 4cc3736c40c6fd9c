// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"testing"
	"time"

	"narthex/test/nettest"
)

// reader reads what an instance tells until it is closed, which it may be twice.
type reader[T any] interface {
	Next() (T, error)
	Close() error
}

// reading is what a reader reads while a test goes on.
type reading[T any] struct {
	reader reader[T]
	all    chan T
}

// read begins to read, which ends with the test.
func read[T any](t *testing.T, from reader[T]) *reading[T] {
	t.Helper()
	r := &reading[T]{from, make(chan T)}
	go func() {
		defer close(r.all)
		for {
			one, err := from.Next()
			if err != nil {
				return
			}
			r.all <- one
		}
	}()
	t.Cleanup(func() { r.close(t) })
	return r
}

func (r *reading[T]) close(t *testing.T) {
	nettest.Check(t, r.reader.Close())
	for range r.all {
	}
}

// next waits for one more.
func (r *reading[T]) next(t *testing.T) (one T) {
	t.Helper()
	var more bool
	select {
	case one, more = <-r.all:
		if !more {
			t.Fatal("reading has ended")
		}
	case <-time.After(patience):
		t.Fatal("nothing more comes")
	}
	return one
}
