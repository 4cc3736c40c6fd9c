// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"narthex/internal/api"
	"narthex/internal/policy"
)

// Bounds of how long a policy may wait to be confirmed.
const (
	LeastConfirm = time.Second
	MostConfirm  = 24 * time.Hour
	// leastConfirm is the least that is not taken for none at all.
	leastConfirm = time.Millisecond
)

// unconfirmed says of the policy in force that it goes unless it is confirmed.
type unconfirmed struct {
	previous *enforceable // what comes back
	until    time.Time
	deadline time.Duration // the same by the monotonic clock
	timer    *time.Timer
	fault    error // of the last try to go back
}

func (u *unconfirmed) status() *api.Unconfirmed {
	if u == nil {
		return nil
	}
	s := &api.Unconfirmed{Until: u.until, Previous: api.Previous{File: u.previous.file, Hash: u.previous.tables.Hash}}
	if u.fault != nil {
		s.Fault = u.fault.Error()
	}
	return s
}

// seconds makes a time of a number in a request.
func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// checkConfirm refuses a reload for good while it is open whether the last one stays.
func (e *engine) checkConfirm(req api.ReloadRequest) error {
	if req.Confirm < 0 || req.Confirm > MostConfirm.Seconds() {
		return usagef("a policy cannot wait %g seconds to be confirmed: at most %s", req.Confirm, MostConfirm)
	}
	if req.Confirm != 0 && seconds(req.Confirm) < leastConfirm {
		return usagef("a policy cannot be confirmed within %g seconds: give it %s or more", req.Confirm, LeastConfirm)
	}
	if u := e.unconfirmed; u != nil && req.Confirm == 0 {
		return fmt.Errorf("the policy in force is not confirmed and would be taken back at %s: keep it with `narthex confirm`, take it back with `narthex confirm --revert`, or give `narthex reload` a --confirm, too",
			u.until.Format(time.TimeOnly))
	}
	return nil
}

// prepareConfirm writes down what to go back to before a policy comes in force that is to be
// confirmed. That is the last one that was, whatever was tried since. If it does not come in force
// after all, abandon puts the record right.
func (e *engine) prepareConfirm(next *enforceable, within time.Duration) (u *unconfirmed, abandon func(), err error) {
	if within == 0 {
		return nil, func() {}, nil
	}
	before, err := readRecord(e.recordPath())
	if err != nil {
		e.log.Error("what was written down of the last policy is not known", "error", err)
	}
	u = &unconfirmed{previous: e.current, until: time.Now().Add(within), deadline: monotonic() + within}
	if e.unconfirmed != nil {
		u.previous = e.unconfirmed.previous
	}
	return u, func() { e.abandonConfirm(before) }, writeRecord(e.recordPath(), &record{
		Run: e.runFile, Candidate: recordOf(next), Previous: recordOf(u.previous), Deadline: u.deadline, Until: u.until,
	})
}

func (e *engine) recordPath() string { return recordPath(e.runDir, e.instance) }

// await has the policy in force taken back when its time is over. With nil it stays.
func (e *engine) await(u *unconfirmed) {
	if e.unconfirmed != nil {
		e.unconfirmed.timer.Stop()
	}
	e.unconfirmed = u
	if u == nil {
		return
	}
	u.timer = time.AfterFunc(max(u.deadline-monotonic(), 0), func() {
		select {
		case e.expired <- struct{}{}:
		default: // the loop will look
		}
	})
}

// abandonConfirm puts the record right after a policy was refused that was to be confirmed. The
// one before may say that another policy was taken back, which a file still holds.
func (e *engine) abandonConfirm(before *record) {
	if u := e.unconfirmed; u != nil {
		before = &record{
			Run: e.runFile, Candidate: recordOf(e.current), Previous: recordOf(u.previous), Deadline: u.deadline, Until: u.until,
		}
	}
	if before == nil {
		removeRecord(e.runDir, e.instance)
		return
	}
	if err := writeRecord(e.recordPath(), before); err != nil {
		e.log.Error("the next daemon may not know what to go back to", "error", err)
	}
}

// confirm keeps the policy in force that would be taken back, or takes it back.
func (e *engine) confirm(req api.ConfirmRequest, by string) (api.ConfirmResult, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer memory.spend()()
	if e.unconfirmed == nil {
		return api.ConfirmResult{}, &api.Error{Message: "there is nothing to confirm: the policy in force stays; `narthex status` says which it is and since when"}
	}
	if req.Revert {
		return e.revert(by)
	}
	e.await(nil)
	removeRecord(e.runDir, e.instance)
	e.noteChange(byConfirm, by)
	return api.ConfirmResult{
		Policy: e.policyStatus(), Ended: []api.Override{}, Restored: []api.Override{}, Notes: []string{},
	}, nil
}

// byDeadline is who takes back what nobody has confirmed.
const byDeadline = "the deadline of --confirm"

// expire takes the policy back if its time is over. By nobody: that is the point of it.
func (e *engine) expire() (result api.ConfirmResult, reverted bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.unconfirmed == nil || monotonic() < e.unconfirmed.deadline {
		return result, false, nil // confirmed, or given more time, meanwhile
	}
	defer memory.spend()()
	result, err = e.revert("")
	return result, err == nil, err
}

// revert puts the last policy in force that was confirmed, with its overrides.
func (e *engine) revert(by string) (api.ConfirmResult, error) {
	u := e.unconfirmed
	refused, back := e.current, *u.previous
	back.loaded = time.Now()
	if err := e.enforce(&back); err != nil {
		u.fault = err
		return api.ConfirmResult{}, fmt.Errorf("the policy cannot be taken back, and stays in force: %w; it is tried again every %s", err, retryAfter)
	}
	e.await(nil)
	e.agent.auditLimits(refused.policy, back.policy, cmp.Or(by, byDeadline), byRevert)
	if err := e.recordReverted(refused, &back); err != nil {
		e.log.Error("the policy is taken back, but a later start may not know it", "error", err)
	}
	e.noteChange(byRevert, by)
	e.endTrial("the policy in force was taken back")
	return api.ConfirmResult{
		Policy: e.policyStatus(), Ended: api.List(slices.Clone(refused.overrides)), Restored: api.List(slices.Clone(back.overrides)),
		Notes: api.List(staleNotes(refused)),
	}, nil
}

// recordReverted writes down for the next daemon that a policy was refused, and what is in force.
func (e *engine) recordReverted(refused, back *enforceable) error {
	errs := []error{eraseOverrides(e.dp, refused.overrides)}
	for _, o := range back.overrides {
		errs = append(errs, recordOverride(e.dp, o.Path, back.overrides))
	}
	e.time(back.overrides)
	errs = append(errs, e.recordPolicy(), writeRecord(e.recordPath(), &record{
		Run: e.runFile, Candidate: recordOf(refused), Previous: recordOf(back), Reverted: true,
	}))
	return errors.Join(errs...)
}

// staleNotes warns of a file that holds the policy that was taken back.
func staleNotes(refused *enforceable) []string {
	now, err := load(refused.file, policy.ReadRegular)
	if err != nil || now.tables.Hash != refused.tables.Hash {
		return nil
	}
	return []string{fmt.Sprintf("%s holds the policy that was taken back: put it right before the next reload", refused.file)}
}

// confirm is what clients ask for.
func (d *daemon) confirm(req api.ConfirmRequest, by string) (api.ConfirmResult, error) {
	result, err := d.engine.confirm(req, by)
	switch {
	case err != nil:
		d.log.Error("not confirmed", "error", err)
	case req.Revert:
		d.logRevert(result, by)
	default:
		d.log.Info("confirmed", "policy", result.Policy.File, "hash", shortHash(result.Policy.Hash), "by", by)
	}
	return result, err
}

// expire takes a policy back that nobody has confirmed in time.
func (d *daemon) expire() {
	d.engine.endTimed()
	result, reverted, err := d.engine.expire()
	if err != nil {
		d.log.Error("nobody has confirmed the policy", "error", err)
	}
	if reverted {
		d.logRevert(result, byDeadline)
	}
}

func (d *daemon) logRevert(result api.ConfirmResult, by string) {
	d.log.Warn("policy taken back", "policy", result.Policy.File, "hash", shortHash(result.Policy.Hash), "by", by)
	for _, note := range result.Notes {
		d.log.Warn(note)
	}
	d.cfg.Notifier.Notify(ready(d.summary()))
}
