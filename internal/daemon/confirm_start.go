// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"path/filepath"
	"time"

	"narthex/internal/api"
	"narthex/internal/policy"
)

// succession is what a start puts in force.
type succession struct {
	next    *enforceable
	ended   []api.Override // in the journal, to be removed
	reverts bool           // it takes a policy back
	pending *unconfirmed   // next is to be confirmed yet, nil if not
	refused *enforceable   // if it reverts
}

// loadFirst reads the policy file that a daemon is started with. If that is wrong by now, a policy
// that is to be confirmed must be taken back nevertheless.
func loadFirst(cfg Config) (*enforceable, error) {
	first, wrong := load(cfg.Policy, policy.ReadFile)
	if wrong == nil {
		return first, nil
	}
	r, err := readRecord(recordPath(cfg.RunDir, cfg.Instance))
	if named, unnamed := filepath.Abs(cfg.Policy); err != nil || unnamed != nil || r == nil || r.Reverted || r.Run != named {
		return nil, wrong
	}
	first, err = parse(r.Run, []byte(r.Candidate.Text))
	if err != nil {
		return nil, wrong
	}
	first.wrong = wrong
	return first, nil
}

// succeed says what to put in force at the start: the policy file that was named, unless a
// daemon before has left a policy to be confirmed, or has taken one back that the file still holds.
func (e *engine) succeed(first *enforceable, journal map[string]string) succession {
	r, err := readRecord(e.recordPath())
	if err != nil {
		e.log.Error("what was to be confirmed is not known", "error", err)
		removeRecord(e.runDir, e.instance)
	}
	if r == nil {
		return e.begin(first, journal)
	}
	s, err := e.goOn(r, first, journal)
	if err != nil {
		e.log.Error("what is to be confirmed cannot go on", "error", err)
	}
	if s.next == nil {
		removeRecord(e.runDir, e.instance)
		return e.begin(first, journal)
	}
	return s
}

func (e *engine) begin(next *enforceable, journal map[string]string) succession {
	kept, ended := e.inherit(next, journal)
	return succession{next: kept, ended: ended}
}

// goOn goes on where the record says that the daemon before has been; without a policy if that
// is no matter any more.
func (e *engine) goOn(r *record, first *enforceable, journal map[string]string) (succession, error) {
	inForce := journal[keyPolicy]
	switch {
	case !e.dp.Adopted() || r.Run != e.runFile:
		return succession{}, nil
	case r.Reverted:
		if inForce != r.Previous.Hash || first.tables.Hash != r.Candidate.Hash {
			return succession{}, nil
		}
		e.log.Warn("the policy file holds what was taken back: the policy before stays in force", "policy", first.file)
		previous, err := parse(r.Previous.File, []byte(r.Previous.Text))
		if err != nil {
			return succession{}, err
		}
		e.took = staleNote(first.file)
		return e.begin(previous, journal), nil
	case inForce != r.Candidate.Hash && inForce != r.Previous.Hash:
		return succession{}, nil
	}
	previous, err := r.Previous.policy()
	if err != nil {
		return succession{}, err
	}
	candidate, err := parse(r.Candidate.File, []byte(r.Candidate.Text))
	if err != nil {
		return succession{}, err
	}
	pending := &unconfirmed{previous: previous, until: r.Until, deadline: r.Deadline}
	if inForce == r.Candidate.Hash && monotonic() < r.Deadline {
		e.log.Warn("the policy in force is to be confirmed", "policy", candidate.file, "until", r.Until)
		s := e.begin(candidate, journal)
		s.pending = pending
		return s, nil
	}
	e.log.Warn("nobody has confirmed the policy: it is taken back", "policy", candidate.file)
	return succession{next: previous, ended: overridesIn(journal), reverts: true, pending: pending, refused: candidate}, nil
}

func staleNote(file string) string {
	return fmt.Sprintf("%s holds a policy that was taken back; the one before is in force: put the file right and reload", file)
}

// enforceFirst puts the first policy in force. If one cannot be taken back, it goes on and that is
// tried again; unless it was never in force, for the daemon before has ended first.
func (e *engine) enforceFirst(s *succession, journal map[string]string) error {
	err := e.enforce(s.next)
	if err == nil || !s.reverts || journal[keyPolicy] != s.refused.tables.Hash {
		return err
	}
	e.log.Error("the policy cannot be taken back, and stays in force", "error", err)
	s.pending.fault = err
	s.next, s.ended = e.inherit(s.refused, journal)
	s.reverts = false
	return e.enforce(s.next)
}

// settle keeps what the next daemon and the status have to know of the start.
func (e *engine) settle(s *succession, journal map[string]string) error {
	change, known := changeIn(journal, s.next.tables.Hash)
	if s.reverts {
		if err := e.recordReverted(s.refused, s.next); err != nil {
			return err
		}
		e.noteChange(byRevert, "")
		e.took = fmt.Sprintf("nobody had confirmed the policy %s until %s: the one before is in force", s.refused.file, s.pending.until.Format(time.TimeOnly))
		return nil
	}
	e.await(s.pending)
	if e.dp.Adopted() && known {
		e.change = change
		return nil
	}
	e.noteChange(byStart, ownName())
	return nil
}
