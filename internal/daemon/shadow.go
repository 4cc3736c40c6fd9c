// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"crypto/rand"
	"errors"
	"os"
	"sync"
	"time"

	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/policy"
	"narthex/internal/trial"
)

const (
	// overloadEvery is how often a trial asks which services are overloaded.
	overloadEvery = 100 * time.Millisecond
	// mostTrial bounds the time that a trial can be given.
	mostTrial = 365 * 24 * time.Hour
)

// shadow is a trial of a policy beside the one in force.
type shadow struct {
	id              string
	live, candidate api.Previous
	by              string
	began           time.Time
	reader          datapath.MirrorReader
	levels          func() map[string]policy.When // of overload, by service
	done            chan struct{}                 // is closed when nothing is read any more
	free            func()                        // gives back what memory it may take
	timer           *time.Timer                   // ends it; nil: it goes on

	mu    sync.Mutex
	trial *trial.Trial  // nil when it has ended
	found *trial.Report // then
	ended string        // why
}

func previousOf(f *enforceable) api.Previous { return api.Previous{File: f.file, Hash: f.tables.Hash} }

// tryOut begins a trial, in place of another one.
func (e *engine) tryOut(req api.ShadowRequest, by string) (api.ShadowStarted, error) {
	if req.For < 0 || req.For > mostTrial.Seconds() {
		return api.ShadowStarted{}, usagef("a policy cannot be tried out for %g seconds: at most %s", req.For, mostTrial)
	}
	defer memory.spend()()
	next, err := e.lockWith(req.File)
	if err != nil {
		return api.ShadowStarted{}, err
	}
	defer e.mu.Unlock()
	replaced := e.endTrial("another trial by " + by)
	reader, err := e.dp.Mirror()
	if err != nil {
		return api.ShadowStarted{}, err
	}
	s := &shadow{
		id: rand.Text(), live: previousOf(e.current), candidate: previousOf(next), by: by, began: time.Now(), reader: reader,
		levels: e.agent.levels, done: make(chan struct{}), free: memory.beginTrial(),
	}
	s.trial = trial.New(e.current.policy, next.policy, e.current.tables, next.tables, s.began)
	e.trial = s
	go s.read()
	if req.For > 0 {
		s.timer = time.AfterFunc(seconds(req.For), func() { e.expireTrial(s) })
	}
	return api.ShadowStarted{ID: s.id, Live: s.live, Candidate: s.candidate, Replaced: replaced, Warnings: next.warningLines()}, nil
}

// read takes what is copied until the reader is closed.
func (s *shadow) read() {
	defer close(s.done)
	levels, asked := s.levels(), time.Now()
	for {
		m, err := s.reader.Next()
		if err != nil {
			if !errors.Is(err, os.ErrClosed) {
				s.end("cannot read what is decided: " + err.Error())
				s.reader.Close() // else the programs would go on copying
			}
			return
		}
		if now := time.Now(); now.Sub(asked) > overloadEvery {
			levels, asked = s.levels(), now
		}
		s.take(&m, levels[m.Service])
	}
}

func (s *shadow) take(m *datapath.Mirrored, level policy.When) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.trial == nil:
	case m.Missed > 0:
		s.trial.Miss(m.Missed)
	default:
		s.trial.Take(&trial.Arrival{
			Time: m.Time, Clock: m.Clock, Weight: m.Weight, Client: m.Client, Server: m.Server, Real: m.Real, SYN: m.SYN, Head: m.Head,
			Level: level, Kernel: verdictOf(m.Kind), Rule: m.Rule,
		})
	}
}

// verdictOf says in a trial's words what the kernel has done.
func verdictOf(kind datapath.EventKind) trial.Verdict {
	switch kind {
	case datapath.EventDrop:
		return trial.Drop
	case datapath.EventReject:
		return trial.Reject
	case datapath.EventDemote:
		return trial.Demote
	}
	return trial.Pass
}

// end sums the trial up and forgets the rest, unless it has ended.
func (s *shadow) end(why string) {
	defer s.free()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trial == nil {
		return
	}
	found := s.trial.Report(time.Now())
	s.trial, s.found, s.ended = nil, &found, why
}

// report says what was found so far.
func (s *shadow) report() api.ShadowReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := api.ShadowReport{Live: s.live, Candidate: s.candidate, By: s.by, Ended: s.ended}
	if s.trial == nil {
		r.Report = *s.found
	} else {
		r.Report = s.trial.Report(time.Now())
	}
	return r
}

// endTrial ends the trial if one runs, whose report can be asked for until the next one begins.
func (e *engine) endTrial(why string) (ended bool) {
	s := e.trial
	if s == nil {
		return false
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Lock()
	running := s.trial != nil
	s.mu.Unlock()
	s.end(why)
	if err := s.reader.Close(); err != nil {
		e.log.Error("cannot end the copying of what is decided", "error", err)
	}
	<-s.done
	if running {
		e.log.Info("trial ended", "policy", s.candidate.File, "hash", shortHash(s.candidate.Hash), "why", why)
	}
	return running
}

// expireTrial ends a trial whose time is over, unless another one has taken its place.
func (e *engine) expireTrial(s *shadow) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.trial == s {
		e.endTrial("its time is over")
	}
}

var (
	errNoTrial   = &api.Error{Message: "no policy is tried out: begin with `narthex reload --shadow FILE`"}
	errTrialGone = &api.Error{Message: "the trial has ended and is forgotten, for another one has begun or somebody has ended it with `narthex shadow --end`: `narthex status` says what is tried out now"}
)

// trialOf returns the trial with an ID, or any if that is empty, which runs or was the last. The
// caller holds mu.
func (e *engine) trialOf(id string) (*shadow, error) {
	switch s := e.trial; {
	case id != "" && (s == nil || s.id != id):
		return nil, errTrialGone
	case s == nil:
		return nil, errNoTrial
	default:
		return s, nil
	}
}

// shadowReport says what a trial has found.
func (e *engine) shadowReport(id string) (api.ShadowReport, error) {
	e.mu.Lock()
	s, err := e.trialOf(id)
	e.mu.Unlock()
	if err != nil {
		return api.ShadowReport{}, err
	}
	return s.report(), nil
}

// endShadow ends a trial and forgets it.
func (e *engine) endShadow(req api.ShadowEndRequest, by string) (api.ShadowReport, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, err := e.trialOf(req.ID)
	if err != nil {
		return api.ShadowReport{}, err
	}
	e.endTrial("ended by " + by)
	e.trial = nil
	return s.report(), nil
}

// trialStatus is nil without a trial.
func (e *engine) trialStatus() *api.TrialStatus {
	s := e.trial
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &api.TrialStatus{Candidate: s.candidate, Began: s.began, By: s.by, Ended: s.ended}
	if s.trial != nil {
		t.Seen, t.Different = s.trial.Seen()
	} else {
		t.Seen, t.Different = s.found.SYNs+s.found.Requests, s.found.Different
	}
	return t
}

// levels says how overloaded services are, by which rules with `when` are enforced.
func (a *agent) levels() map[string]policy.When {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := map[string]policy.When{}
	for _, s := range a.services {
		now[s.table.Name] = s.inForce.Level
	}
	return now
}

// shadow is what clients ask for.
func (d *daemon) shadow(req api.ShadowRequest, by string) (api.ShadowStarted, error) {
	started, err := d.engine.tryOut(req, by)
	if err == nil {
		d.log.Info("trial begins", "policy", started.Candidate.File, "hash", shortHash(started.Candidate.Hash), "by", by)
	}
	return started, err
}
