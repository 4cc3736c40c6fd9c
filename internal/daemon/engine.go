// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"narthex/internal/daemon/api"
	"narthex/internal/datapath"
	"narthex/internal/netif"
)

// engine holds what is in force and changes it, one change at a time.
type engine struct {
	instance string
	log      *slog.Logger
	dp       Datapath
	net      Network
	notes    []string // on the start

	mu          sync.Mutex
	current     *enforceable
	snap        netif.Snapshot // the last that was applied
	plan        netif.Plan
	attachments []datapath.Attachment
	trouble     error // why the interfaces are not all as planned

	acting  sync.Mutex    // held while the data path changes or ticks; mu may be held, too
	applied chan struct{} // has room for one: there was a change
	limited atomic.Bool   // the policy in force may make requests wait
}

// start puts the first policy in force. Overrides that were set by hand on the same policy
// go on.
func (e *engine) start(next *enforceable) error {
	journal, err := e.dp.Journal()
	if err != nil {
		return fmt.Errorf("read journal: %w", err)
	}
	cookie, err := e.net.Cookie()
	if err != nil {
		return err
	}
	if err := checkNetwork(e.instance, journal, cookie); err != nil {
		return err
	}
	kept, ended := e.inherit(next, journal)
	if err := e.enforce(kept); err != nil {
		return err
	}
	if err := eraseOverrides(e.dp, ended); err != nil {
		return err
	}
	if err := e.dp.Record(keyNetwork, strconv.FormatUint(cookie, 10)); err != nil {
		return fmt.Errorf("record network namespace: %w", err)
	}
	return e.recordPolicy()
}

// inherit applies the overrides in the journal if they were set on this very policy, and
// returns those that end.
func (e *engine) inherit(next *enforceable, journal map[string]string) (*enforceable, []api.Override) {
	overrides := overridesIn(journal)
	if len(overrides) == 0 {
		return next, nil
	}
	if journal[keyPolicy] != next.tables.Hash {
		e.log.Warn("the policy has changed since: overrides end", "overrides", overrides)
		return next, overrides
	}
	with, err := next.with(overrides)
	if err != nil {
		e.log.Warn("overrides do not fit the policy: they end", "overrides", overrides, "error", err)
		return next, overrides
	}
	e.log.Info("overrides stay in force", "overrides", overrides)
	return with, nil
}

// reload replaces the policy and ends all overrides. On error everything is as before.
func (e *engine) reload(file string) (api.ReloadResult, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer spend()()
	if file == "" {
		file = e.current.file
	}
	next, err := load(file)
	if err != nil {
		return api.ReloadResult{}, err
	}
	ended := e.current.overrides
	if err := e.enforce(next); err != nil {
		return api.ReloadResult{}, err
	}
	if err := errors.Join(eraseOverrides(e.dp, ended), e.recordPolicy()); err != nil {
		e.log.Error("the new policy is in force, but a later start may take it for changed", "error", err)
	}
	return api.ReloadResult{
		Policy:   next.status(),
		Ended:    api.List(ended),
		Warnings: next.warningLines(),
		Notes:    api.List(e.currentNotes()),
	}, nil
}

func (e *engine) recordPolicy() error {
	if err := e.dp.Record(keyPolicy, e.current.tables.Hash); err != nil {
		return fmt.Errorf("record policy: %w", err)
	}
	return nil
}

// set overrides one limit of the policy in force, or ends that.
func (e *engine) set(req api.SetRequest) (api.SetResult, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer spend()()
	overrides := e.current.withoutOverride(req.Path)
	if !req.Policy {
		overrides = e.current.override(req.Path, req.Value)
	} else if !e.current.overridden(req.Path) {
		return e.nothingToEnd(req.Path)
	}
	next, err := e.current.with(overrides)
	if err != nil {
		return api.SetResult{}, &api.Error{Usage: true, Message: err.Error()}
	}
	buckets := bucketsAfter(req.Path, e.current.policy, next.policy)
	if err := e.apply(next, e.snap, e.plan); err != nil {
		return api.SetResult{}, err
	}
	if req.Policy {
		err = e.dp.Erase(keyOverride + req.Path)
	} else {
		err = e.dp.Record(keyOverride+req.Path, req.Value)
	}
	if err != nil {
		return api.SetResult{}, fmt.Errorf("%q is in force, but will not outlive the daemon: record it: %w", req.Path, err)
	}
	return api.SetResult{Changed: true, Buckets: buckets, Overrides: api.List(slices.Clone(next.overrides))}, nil
}

// nothingToEnd answers to the end of an override that there is not: what was asked for is
// so already, if there is such a limit.
func (e *engine) nothingToEnd(path string) (api.SetResult, error) {
	if !slices.Contains(e.current.policy.Paths(), path) {
		if err := e.current.policy.Clone().Override(path, ""); err != nil {
			return api.SetResult{}, &api.Error{Usage: true, Message: err.Error()}
		}
	}
	return api.SetResult{Overrides: api.List(slices.Clone(e.current.overrides))}, nil
}

// enforce puts a policy in force on the interfaces that there are now, all or nothing.
func (e *engine) enforce(next *enforceable) error {
	snap, err := e.net.Snapshot()
	if err != nil {
		return err
	}
	plan := netif.NewPlan(snap, next.wants())
	for _, a := range plan.Absent {
		if !e.waitsFor(a) {
			return fmt.Errorf("service %q: %w", a.Service, a.Err)
		}
	}
	if err := e.apply(next, snap, plan); err != nil {
		return adviseOnXDP(err)
	}
	e.trouble = nil
	e.logSilent()
	return nil
}

// waitsFor reports whether an absent interface is one that the policy in force names, too:
// a reload must not fail because it is away for a moment.
func (e *engine) waitsFor(a netif.Absent) bool {
	return e.current != nil && errors.As(a.Err, new(netif.ErrMissing)) &&
		slices.ContainsFunc(e.current.wants(), func(w netif.Want) bool { return slices.Contains(w.Interfaces, a.Interface) })
}

// adviseOnXDP says how to do without native XDP where a policy insists on it.
func adviseOnXDP(err error) error {
	if strings.Contains(err.Error(), "native XDP: the driver does not support it") {
		return fmt.Errorf("%w: write `xdp: auto` or `xdp: generic` in the policy", err)
	}
	return err
}

// refresh follows a change of interfaces or addresses. What fails is tried again with the
// next change, or when the caller asks.
func (e *engine) refresh(snap netif.Snapshot) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.follow(snap)
}

// retry tries again what could not be done for the interfaces.
func (e *engine) retry() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.trouble == nil {
		return nil
	}
	snap, err := e.net.Snapshot()
	if err != nil {
		return err
	}
	return e.follow(snap)
}

func (e *engine) follow(snap netif.Snapshot) error {
	plan := netif.NewPlan(snap, e.current.wants())
	if e.trouble = e.apply(e.current, snap, plan); e.trouble != nil {
		e.trouble = e.applyWhatWorks(snap, plan)
	}
	return e.trouble
}

// applyWhatWorks polices every interface that can be: one that cannot must not keep the
// others from it.
func (e *engine) applyWhatWorks(snap netif.Snapshot, plan netif.Plan) error {
	wanted := plan.Targets
	plan.Targets = slices.DeleteFunc(slices.Clone(wanted), func(t netif.Target) bool { return !e.attachedTo(t) })
	errs := []error{e.apply(e.current, snap, plan)}
	for _, t := range wanted {
		if e.attachedTo(t) {
			continue
		}
		with := plan
		with.Targets = append(slices.Clone(plan.Targets), t)
		err := e.apply(e.current, snap, with)
		if err == nil {
			plan = with
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (e *engine) attachedTo(t netif.Target) bool {
	return slices.ContainsFunc(e.attachments, func(a datapath.Attachment) bool { return a.Index == t.Index })
}

// apply tells the data path what to enforce and where. On error everything is as before.
func (e *engine) apply(next *enforceable, snap netif.Snapshot, plan netif.Plan) error {
	state := datapath.State{Tables: next.tables, Locals: snap.Locals}
	for _, t := range plan.Targets {
		state.Targets = append(state.Targets, datapath.Target{
			Name: t.Name, Index: t.Index, XDP: t.XDP, Services: t.Services, Ports: t.Ports, Uppers: t.Uppers,
		})
	}
	err := e.net.Do(func() error {
		e.acting.Lock()
		defer e.acting.Unlock()
		return e.dp.Apply(state)
	})
	if err == nil {
		e.logPlan(plan)
		e.current, e.snap, e.plan = next, snap, plan
		e.limited.Store(limits(next.tables))
		select {
		case e.applied <- struct{}{}:
		default: // there is an earlier change that the pulse has not seen
		}
	}
	now := e.dp.Attachments()
	e.logAttachments(now)
	e.attachments = now
	return err
}

// alive reports whether the maps can be read.
func (e *engine) alive() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, err := e.dp.Journal()
	return err
}

// currentNotes are sentences on what is not as one might expect.
func (e *engine) currentNotes() []string {
	notes := slices.Concat(e.notes, e.plan.Notes)
	for _, a := range e.plan.Absent {
		notes = append(notes, fmt.Sprintf("service %q: %v", a.Service, a.Err))
	}
	if e.trouble != nil {
		notes = append(notes, e.trouble.Error())
	}
	return notes
}
