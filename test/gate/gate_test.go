// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"testing"
)

// events are those of an episode.
const events = 400

// fails reports an episode that fails, as short as it can be.
func fails(t *testing.T, e Episode, err error) {
	t.Helper()
	e = e.Shorten()
	log := bytes.Buffer{}
	_, short := e.Run(&log)
	t.Fatalf("%v\nshortened to %d events:\n%s%v", err, len(e.Events), log.Bytes(), short)
}

// TestRandom gives the gate some packets. The campaign gives it more.
func TestRandom(t *testing.T) {
	packets := 0
	for n := uint64(0); packets < 200_000; n++ {
		e := Random(7, n, events)
		p, err := e.Run(nil)
		if packets += p; err != nil {
			fails(t, e, err)
		}
	}
}

// TestSameAgain runs an episode alone, and again after others: nothing of those is left.
func TestSameAgain(t *testing.T) {
	for n := range uint64(60) {
		e := Random(7, n, events)
		first, again := bytes.Buffer{}, bytes.Buffer{}
		e.Run(&first)
		Random(7, n+1, events).Run(nil)
		e.Run(&again)
		if !bytes.Equal(first.Bytes(), again.Bytes()) {
			t.Fatalf("episode %d differs after another", n)
		}
	}
}

// TestSanitized does the same with the source compiled such that it stops at what C leaves
// undefined, and at memory that is not its own.
func TestSanitized(t *testing.T) {
	cmd := exec.Command("go", "run", "-asan", "./campaign", "-n", "50000", "-seed", "3")
	cmd.Env = append(os.Environ(), "ASAN_OPTIONS=detect_leaks=0",
		"CGO_CFLAGS=-g -O1 -fsanitize=undefined -fno-sanitize=alignment -fno-sanitize-recover=undefined",
		"CGO_LDFLAGS=-fsanitize=undefined")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// record makes an episode of bytes.
func record(b []byte) (e Episode) {
	var words []uint64
	for ; len(b) >= 8 && len(words) < events; b = b[8:] {
		words = append(words, binary.LittleEndian.Uint64(b))
	}
	if len(words) > 0 {
		e.World, e.Events = words[0], words[1:]
	}
	return e
}

// FuzzGate changes what happens in episodes.
func FuzzGate(f *testing.F) {
	for n := range uint64(32) {
		e := Random(5, n, 60)
		b := binary.LittleEndian.AppendUint64(nil, e.World)
		for _, r := range e.Events {
			b = binary.LittleEndian.AppendUint64(b, r)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e := record(b)
		if _, err := e.Run(nil); err != nil {
			fails(t, e, err)
		}
	})
}
