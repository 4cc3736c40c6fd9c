// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// outcome is what became of an ordinary client's visit.
type outcome int

const (
	done    outcome = iota // everything was as it must be
	refused                // it was told to come again
	excused                // it broke off, and what was done to the server explains that
	broken                 // it broke off
	corrupt                // a byte was wrong
	outcomes
)

func (o outcome) String() string {
	return [...]string{"done", "refused", "excused", "broken", "wrong"}[o]
}

// Errors of visits.
var (
	errRefused = errors.New("refused")
	errLate    = errors.New("no answer in time")
)

// excuse is a stretch of time in which something was done that clients may notice.
type excuse struct {
	service  *service // nil: all
	from, to time.Time
	breaks   bool // connections may end; else answers may merely take their time
}

// ledger is what has happened.
type ledger struct {
	mu       sync.Mutex
	visits   [outcomes]uint64
	refusals map[string]map[string]uint64 // by service and class
	answers  map[string]uint64            // by service
	kinds    map[string]uint64            // visits that were done, by kind
	excuses  []*excuse
	faults   []string
	count    int // of faults
}

func newLedger() *ledger {
	return &ledger{refusals: map[string]map[string]uint64{}, answers: map[string]uint64{}, kinds: map[string]uint64{}}
}

// mostFaults are told; more of them say nothing new.
const mostFaults = 40

// fault takes note of what must not be.
func (l *ledger) fault(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faultLocked(format, args...)
}

func (l *ledger) faultLocked(format string, args ...any) {
	if l.count++; l.count > mostFaults {
		return
	}
	text := time.Now().Format("15:04:05.000 ") + fmt.Sprintf(format, args...)
	l.faults = append(l.faults, text)
	fmt.Fprintln(os.Stderr, "FAULT:", text)
}

// excuse begins a stretch of time in which clients of a service, or of all, may notice
// something, and until a moment after end is called.
func (l *ledger) excuse(s *service, breaks bool, after time.Duration) (end func()) {
	e := &excuse{service: s, from: time.Now(), to: time.Now().Add(time.Hour), breaks: breaks}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.excuses = append(l.excuses, e)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		e.to = time.Now().Add(after)
	}
}

// isExcused reports whether something was done to the service in that time.
func (l *ledger) isExcused(s *service, from, to time.Time, breaks bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isExcusedLocked(s, from, to, breaks)
}

func (l *ledger) isExcusedLocked(s *service, from, to time.Time, breaks bool) bool {
	for _, e := range l.excuses {
		if (e.service == nil || e.service == s) && (e.breaks || !breaks) && e.from.Before(to) && e.to.After(from) {
			return true
		}
	}
	return false
}

// settle takes note of how a visit ended.
func (l *ledger) settle(v *visit, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var bytes wrong
	o := broken
	switch {
	case err == nil:
		o = done
		l.kinds[v.service.name+" "+v.kind]++
	case errors.As(err, &bytes):
		o = corrupt
	case errors.Is(err, errRefused),
		v.service.protocol != "http" && errors.Is(err, syscall.ECONNRESET) && !l.isExcusedLocked(v.service, v.began, time.Now(), true):
		// Where there is nothing to say it with, it is an RST; so is the end of a server that
		// is stopped.
		o = refused
		if l.refusals[v.service.name] == nil {
			l.refusals[v.service.name] = map[string]uint64{}
		}
		l.refusals[v.service.name][v.class.name]++
	case l.isExcusedLocked(v.service, v.began, time.Now(), true):
		o = excused
	}
	l.visits[o]++
	l.answers[v.service.name] += uint64(v.answered)
	if o == broken || o == corrupt {
		l.faultLocked("%s: %s, %v, begun %v ago: %v", o, v.service.name, v, time.Since(v.began).Round(time.Millisecond), err)
	}
}

// pace is how it goes on in a service.
type pace struct {
	mu   sync.Mutex
	out  map[*visit]waiting // ordinary clients that have said all they have to and wait for an answer
	last time.Time          // when something went on
}

// waiting is a client that waits.
type waiting struct {
	who   string
	since time.Time
}

// step says that something went on.
func (p *pace) step() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = time.Now()
}

// begin and end say that a client waits, and that it does no longer.
func (p *pace) begin(v *visit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if len(p.out) == 0 {
		p.out, p.last = map[*visit]waiting{}, now
	}
	p.out[v] = waiting{v.String(), now}
}

func (p *pace) end(v *visit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.out, v)
	p.last = time.Now()
}

// String is who waits, and for how long.
func (p *pace) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, w := range p.out {
		all = append(all, fmt.Sprintf("%s for %v", w.who, time.Since(w.since).Round(time.Millisecond)))
	}
	slices.Sort(all)
	return fmt.Sprintf("%d wait: %s", len(all), strings.Join(all, "; "))
}

// still is for how long nothing has gone on although somebody waits.
func (p *pace) still() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.out) == 0 {
		return 0
	}
	return time.Since(p.last)
}
