// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestTasks has threads that work, begin and end.
func TestTasks(t *testing.T) {
	proc := t.TempDir()
	write := func(pid, tid int, ran, waited time.Duration) {
		t.Helper()
		dir := filepath.Join(proc, fmt.Sprint(pid), "task", fmt.Sprint(tid))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "schedstat"), fmt.Appendf(nil, "%d %d 7\n", ran.Nanoseconds(), waited.Nanoseconds()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const s = time.Second
	tasks := NewTasks(proc, []int{10, 11, 12})
	defer tasks.Close()
	buffer := make([]byte, 256)
	read := func(at, ran, waited time.Duration, width float64) {
		t.Helper()
		w, ok := tasks.Read(at, buffer)
		if !ok || w.Ran != ran || w.Waited != waited || w.Width < width-0.1 || w.Width > width+0.1 {
			t.Errorf("at %v: %+v, %v; want %v and %v by %g threads", at, w, ok, ran, waited, width)
		}
	}
	if w, ok := tasks.Read(s, buffer); ok {
		t.Errorf("%+v of no threads", w)
	}
	write(10, 10, 5*s, s)
	write(10, 20, s, 0)
	read(2*s, 0, 0, 0)
	write(10, 10, 6*s, 3*s)
	read(3*s, s, 2*s, 1) // one of two works
	write(11, 11, 9*s, 0)
	read(4*s, s, 2*s, 1) // what a new one has done before does not count
	write(11, 11, 10*s, 0)
	write(10, 10, 7*s, 3*s)
	read(5*s, 3*s, 2*s, 1.9)
	write(10, 10, 7*s, 3*s)
	if err := os.WriteFile(filepath.Join(proc, "11/task/11/schedstat"), nil, 0o644); err != nil { // as of one that has ended
		t.Fatal(err)
	}
	read(6*s, 3*s, 2*s, 1)
}
