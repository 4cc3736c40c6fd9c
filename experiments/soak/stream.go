// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
)

// stream is an endless row of bytes that the seed and a name determine: every body is the
// beginning of one, so that each byte of it can be checked by whoever knows the name.
func stream(seed uint64, name string) io.Reader {
	return rand.NewChaCha8(sha256.Sum256(fmt.Appendf(nil, "%d %s", seed, name)))
}

// take returns the first bytes of a stream.
func take(seed uint64, name string, size int) []byte {
	b := make([]byte, size)
	_, _ = io.ReadFull(stream(seed, name), b) // a stream does not end
	return b
}

// wrong says that bytes are not those that they must be.
type wrong struct{ what string }

func (w wrong) Error() string { return w.what }

// checked are buffers for checks.
var checked = sync.Pool{New: func() any { return new([2][16 << 10]byte) }}

// check reads a body to its end, or so many bytes of it if size is not the whole, and
// compares it with a stream. After each piece it calls step.
func check(r io.Reader, seed uint64, name string, size int, step func(n int)) error {
	buf := checked.Get().(*[2][16 << 10]byte)
	defer checked.Put(buf)
	want := stream(seed, name)
	for at := 0; at < size; {
		n, err := r.Read(buf[0][:min(len(buf[0]), size-at)])
		_, _ = io.ReadFull(want, buf[1][:n])
		if !bytes.Equal(buf[0][:n], buf[1][:n]) {
			return wrong{fmt.Sprintf("%q: of %d bytes, one between %d and %d is wrong: %s", name, size, at, at+n, difference(buf[0][:n], buf[1][:n]))}
		}
		if at += n; at == size {
			break
		}
		if err != nil {
			return fmt.Errorf("%q ends after %d of %d bytes: %w", name, at, size, err)
		}
		step(n)
	}
	return nil
}

// difference shows where two rows of bytes begin to differ.
func difference(got, want []byte) string {
	for i := range got {
		if got[i] != want[i] {
			return fmt.Sprintf("%d bytes on there is %q, not %q", i, got[i:min(i+16, len(got))], want[i:min(i+16, len(want))])
		}
	}
	return "nowhere"
}
