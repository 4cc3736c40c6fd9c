// SPDX-License-Identifier: Apache-2.0

package host

import (
	"math"
	"path/filepath"
	"strconv"
	"time"
)

const (
	mostTasks   = 256         // threads that are read; a server with more is not
	relistEvery = time.Second // how often to look for new threads
	widthSpan   = 4.0         // seconds over which a thread's share is averaged
)

// Tasks reads what the threads of processes do. It is not safe for concurrent use.
type Tasks struct {
	proc   string
	pids   []int
	tasks  map[string]*task
	listed time.Duration // when, by the clock of Read
	read   time.Duration
	sum    Work
}

// Work is what threads have done since some moment.
type Work struct {
	Ran    time.Duration // on a processor
	Waited time.Duration // for a processor
	// Width is how many threads share the work: 1 where one does it all, whatever the others are for.
	// 0: not known.
	Width float64
}

type task struct {
	file        file
	ran, waited time.Duration
	share       float64 // of a processor, of late
	seen        bool
}

// NewTasks reads the threads of processes below the root of a proc file system, usually /proc.
func NewTasks(proc string, pids []int) *Tasks {
	return &Tasks{proc: proc, pids: pids, tasks: map[string]*task{}}
}

// Close closes the files.
func (t *Tasks) Close() {
	for _, k := range t.tasks {
		k.file.close()
	}
	clear(t.tasks)
}

// Read reads anew; false where the kernel does not tell, or of too many threads.
func (t *Tasks) Read(now time.Duration, buffer []byte) (Work, bool) {
	if t.listed == 0 || now-t.listed >= relistEvery {
		t.list()
		t.listed = now
	}
	if len(t.tasks) == 0 || len(t.tasks) > mostTasks {
		return Work{}, false
	}
	keep := math.Exp(-(now - t.read).Seconds() / widthSpan)
	span := (now - t.read).Seconds()
	var all, squares float64
	for id, k := range t.tasks {
		ran, waited, ok := parseSchedstat(k.file.read(buffer))
		if !ok { // it has ended
			k.file.close()
			delete(t.tasks, id)
			continue
		}
		if k.seen && t.read > 0 && span > 0 {
			t.sum.Ran += ran - k.ran
			t.sum.Waited += waited - k.waited
			k.share = k.share*keep + (ran-k.ran).Seconds()/span*(1-keep)
		}
		k.ran, k.waited, k.seen = ran, waited, true
		all, squares = all+k.share, squares+k.share*k.share
	}
	t.read = now
	t.sum.Width = 0
	if all > 0.1 { // of a processor: else it says nothing
		t.sum.Width = all * all / squares
	}
	return t.sum, true
}

// list opens the files of threads that are new.
func (t *Tasks) list() {
	for _, pid := range t.pids {
		dir := filepath.Join(t.proc, strconv.Itoa(pid), "task")
		names, _ := readNames(dir) // the process may have ended
		for _, name := range names {
			path := filepath.Join(dir, name, "schedstat")
			if t.tasks[path] != nil || len(t.tasks) > mostTasks {
				continue
			}
			if f := open(path); f.f != nil {
				t.tasks[path] = &task{file: f}
			}
		}
	}
}

// parseSchedstat reads the form of /proc/PID/schedstat: nanoseconds on a processor, nanoseconds of
// waiting for one.
func parseSchedstat(b []byte) (ran, waited time.Duration, ok bool) {
	r, rest := field(b)
	w, _ := field(rest)
	return time.Duration(r), time.Duration(w), r >= 0 && w >= 0
}
