// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/netif"
	"narthex/internal/policy"
)

// engine holds what is in force and changes it, one change at a time.
type engine struct {
	instance string
	pinned   func(instance string) (bool, error) // as Kernel.Pinned
	lock     *Lock
	log      *slog.Logger
	dp       Datapath
	net      Network
	agent    *agent
	notes    []string // on the start, for good
	runDir   string   // where the record is of what is to be confirmed
	runFile  string   // the policy file that the daemon was started with

	mu          sync.Mutex
	current     *enforceable
	took        string         // a note on what the start took back, until a reload; empty: nothing
	snap        netif.Snapshot // the last that was applied
	seen        netif.Snapshot // the last that was to be followed, perhaps in vain
	linger      netif.Linger   // what is gone of it, and still followed
	plan        netif.Plan
	attachments []datapath.Attachment
	trouble     error // why the interfaces are not all as planned
	detours     detours
	change      api.Change
	trial       *shadow       // nil: there was none
	unconfirmed *unconfirmed  // nil: the policy stays
	expired     chan struct{} // has room for one: a policy is perhaps to be taken back

	acting  sync.Mutex    // held while the data path changes or ticks; mu may be held, too
	applied chan struct{} // has room for one: there was a change
	limited atomic.Bool   // the policy in force may make requests wait

	unread, roomsRead int // looks since rooms were read, and how many they were; the pulse's alone
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
	s := e.succeed(next, journal)
	if s.next.wrong != nil {
		return s.next.wrong
	}
	if err := e.enforceFirst(&s, journal); err != nil {
		return err
	}
	if err := eraseOverrides(e.dp, s.ended); err != nil {
		return err
	}
	if err := e.dp.Record(keyNetwork, strconv.FormatUint(cookie, 10)); err != nil {
		return fmt.Errorf("record network namespace: %w", err)
	}
	if err := e.settle(&s, journal); err != nil {
		return err
	}
	return e.recordPolicy()
}

// reload replaces the policy and ends all overrides. On error everything is as before. Who asks
// for it is for the log.
func (e *engine) reload(req api.ReloadRequest, by string) (api.ReloadResult, error) {
	defer memory.spend()()
	next, err := e.lockWith(req.File)
	if err != nil {
		return api.ReloadResult{}, err
	}
	defer e.mu.Unlock()
	if err := e.checkConfirm(req); err != nil {
		return api.ReloadResult{}, err
	}
	pending, abandon, err := e.prepareConfirm(next, seconds(req.Confirm))
	if err != nil {
		return api.ReloadResult{}, err
	}
	ended, before := e.current.overrides, e.current.policy
	if err := e.enforce(next); err != nil {
		abandon()
		return api.ReloadResult{}, err
	}
	e.took = ""
	e.await(pending)
	if pending == nil {
		removeRecord(e.runDir, e.instance)
	}
	trialEnded := e.endTrial("reload by " + by)
	e.noteChange(byReload, by)
	e.agent.auditReload(before, next.policy, by)
	if err := errors.Join(eraseOverrides(e.dp, ended), e.recordPolicy()); err != nil {
		e.log.Error("the new policy is in force, but a later start may take it for changed", "error", err)
	}
	return api.ReloadResult{
		Policy:   e.policyStatus(),
		Trial:    trialEnded,
		Ended:    api.List(ended),
		Warnings: next.warningLines(),
		Notes:    api.List(e.currentNotes()),
	}, nil
}

// lockWith reads a policy file, that of the policy in force if none is named, and then takes mu;
// not on error. Nothing waits for the reading. If another policy comes in force meanwhile, it reads
// again, lest what was read first come in force last.
func (e *engine) lockWith(file string) (*enforceable, error) {
	for {
		e.mu.Lock()
		before := e.current
		e.mu.Unlock()
		next, err := load(cmp.Or(file, before.file), policy.ReadRegular)
		if err != nil {
			return nil, err
		}
		e.mu.Lock()
		if e.current == before {
			return next, nil
		}
		e.mu.Unlock()
	}
}

func (e *engine) recordPolicy() error {
	if err := e.dp.Record(keyPolicy, e.current.tables.Hash); err != nil {
		return fmt.Errorf("record policy: %w", err)
	}
	return nil
}

// set overrides one limit of the policy in force, or ends that. Who asks for it is for the log.
func (e *engine) set(req api.SetRequest, by string) (api.SetResult, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer memory.spend()()
	if len(req.Values) > 0 && (req.Path != "" || req.Value != "" || req.Policy) {
		return api.SetResult{}, usagef("values go with none of the others")
	}
	if req.Policy && !e.current.overridden(req.Path) {
		return e.nothingToEnd(req.Path)
	}
	overrides := e.current.overrides
	if req.For < 0 || req.Policy && req.For > 0 {
		return api.SetResult{}, usagef("a time is of a value that is set: use one above 0")
	}
	for _, o := range req.All() {
		o.Until, o.Deadline = nil, 0
		if req.For > 0 {
			until := time.Now().Add(seconds(req.For))
			o.Until, o.Deadline = &until, monotonic()+seconds(req.For)
		}
		if overrides = without(overrides, o.Path); !req.Policy {
			overrides = append(overrides, o)
		}
	}
	next, err := e.current.with(overrides)
	if err != nil {
		return api.SetResult{}, &api.Error{Usage: true, Message: err.Error()}
	}
	before := e.current.policy
	var buckets string
	if len(req.Values) == 0 {
		buckets = bucketsAfter(req.Path, before, next.policy)
	}
	unclaim, err := e.claim(next.tables)
	if err != nil {
		return api.SetResult{}, err
	}
	if err := e.apply(next, e.snap, e.plan); err != nil {
		unclaim()
		return api.SetResult{}, err
	}
	e.noteChange("set "+req.Paths(), by)
	trialEnded := e.endTrial("set " + req.Paths() + " by " + by)
	for _, o := range req.All() {
		e.agent.auditSet(before, next.policy, o.Path, by)
		if req.Policy {
			err = eraseOverrides(e.dp, []api.Override{o})
		} else {
			err = recordOverride(e.dp, o.Path, next.overrides)
		}
		if err != nil {
			return api.SetResult{}, fmt.Errorf("%q is in force, but will not outlive the daemon: record it: %w", o.Path, err)
		}
	}
	e.time(next.overrides)
	return api.SetResult{Changed: true, Trial: trialEnded, Buckets: buckets, Overrides: api.List(slices.Clone(next.overrides))}, nil
}

// time has the main loop look when the next override ends.
func (e *engine) time(overrides []api.Override) {
	for _, o := range overrides {
		if o.Deadline > 0 {
			time.AfterFunc(o.Deadline-monotonic(), func() {
				select {
				case e.expired <- struct{}{}:
				default: // it looks already
				}
			})
		}
	}
}

// endTimed ends the overrides whose time is over.
func (e *engine) endTimed() {
	e.mu.Lock()
	overrides := slices.Clone(e.current.overrides)
	e.mu.Unlock()
	for _, o := range overrides {
		if o.Deadline == 0 || monotonic() < o.Deadline {
			continue
		}
		if _, err := e.set(api.SetRequest{Path: o.Path, Policy: true}, "the end of its time"); err != nil {
			e.log.Error("what was set for a time cannot end, and is tried again", "path", o.Path, "error", err)
		}
	}
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
	seen := snap
	snap = e.linger.Add(snap, time.Now())
	plan := netif.NewPlan(snap, next.wants())
	for _, a := range plan.Absent {
		if !e.waitsFor(a) {
			return fmt.Errorf("service %q: %w", a.Service, a.Err)
		}
	}
	unclaim, err := e.claim(next.tables)
	if err != nil {
		return err
	}
	if err := e.apply(next, snap, plan); err != nil {
		unclaim()
		return adviseOnXDP(err)
	}
	e.trouble, e.seen = nil, seen
	e.logSilent()
	return nil
}

// waitsFor reports whether an absent interface is one that the policy in force names, too, or the
// one that comes back unless that is confirmed: neither must fail because it is away for a moment.
func (e *engine) waitsFor(a netif.Absent) bool {
	if !errors.As(a.Err, new(netif.ErrMissing)) {
		return false
	}
	var known []netif.Want
	if e.current != nil {
		known = e.current.wants()
	}
	if e.unconfirmed != nil {
		known = append(known, e.unconfirmed.previous.wants()...)
	}
	return slices.ContainsFunc(known, func(w netif.Want) bool { return slices.Contains(w.Interfaces, a.Interface) })
}

// adviseOnXDP says how to do without native XDP where a policy insists on it.
func adviseOnXDP(err error) error {
	if strings.Contains(err.Error(), "native XDP: the driver does not support it") {
		return fmt.Errorf("%w: write `xdp: auto` or `xdp: generic` in the policy", err)
	}
	return err
}

// refresh follows a change of interfaces or addresses. What fails is tried again with the
// next change, or when the caller asks. What is as it was last is no change.
func (e *engine) refresh(snap netif.Snapshot) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if snap.Equal(e.seen) {
		return nil
	}
	return e.follow(snap)
}

// retry tries again what could not be done for the interfaces, and lets go of addresses that are gone.
func (e *engine) retry() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.trouble == nil && !e.linger.Pending() {
		return nil
	}
	snap, err := e.net.Snapshot()
	if err != nil {
		return err
	}
	return e.follow(snap)
}

func (e *engine) follow(snap netif.Snapshot) error {
	e.seen = snap
	snap = e.linger.Add(snap, time.Now())
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
	if err := next.listed.prepare(e.dp); err != nil {
		return err
	}
	state := datapath.State{Tables: next.tables, Locals: snap.Locals, Lists: next.listed.inKernel()}
	for _, t := range plan.Targets {
		state.Targets = append(state.Targets, datapath.Target{
			Name: t.Name, Index: t.Index, XDP: t.XDP, Services: t.Services, Ports: t.Ports, Uppers: t.Uppers,
		})
	}
	err := e.net.Do(func() error {
		e.acting.Lock()
		defer e.acting.Unlock()
		if !e.lock.Held() {
			return &TakenError{e.instance}
		}
		if err := e.dp.Apply(state); err != nil {
			return err
		}
		e.agent.follow(e.tablesInForce(), next.tables, e.dp.Adopted())
		return nil
	})
	if err == nil {
		e.logPlan(plan)
		if e.current != nil && e.current.listed != next.listed {
			e.current.listed.close()
		}
		e.current, e.snap, e.plan = next, snap, plan
		e.limited.Store(limits(next.tables))
		select {
		case e.applied <- struct{}{}:
		default: // there is an earlier change that the pulse has not seen
		}
	}
	if errors.As(err, new(*TakenError)) {
		return err // attachments that are gone were another's to remove, and their pins may be another's by now
	}
	now := e.dp.Attachments()
	e.logAttachments(now)
	e.attachments = now
	return err
}

// tablesInForce returns those of the policy in force, nil if there is none yet.
func (e *engine) tablesInForce() *policy.Tables {
	if e.current == nil {
		return nil
	}
	return e.current.tables
}

// enforcing reports whether any interface is policed.
func (e *engine) enforcing() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.attachments) > 0
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
	notes := slices.Clone(e.notes)
	if e.took != "" {
		notes = append(notes, e.took)
	}
	notes = append(notes, e.unenforced()...)
	notes = append(notes, e.listNotes()...)
	notes = append(notes, e.plan.Notes...)
	for _, a := range e.plan.Absent {
		notes = append(notes, fmt.Sprintf("service %q: %v", a.Service, a.Err))
	}
	if e.trouble != nil {
		notes = append(notes, e.trouble.Error())
	}
	return notes
}

// unenforced says of each service what of its policy the kernel lacks the means for.
func (e *engine) unenforced() []string {
	lacking := slices.ContainsFunc(e.dp.Missing(), func(m datapath.Missing) bool { return m.Feature == datapath.FeatureGate })
	var notes []string
	if t := e.tablesInForce(); lacking && t != nil {
		for i := range t.Services {
			if datapath.NeedsGate(&t.Services[i]) {
				notes = append(notes, fmt.Sprintf("service %q: its limit and the request rules are not enforced, for which this kernel lacks the means", t.Services[i].Name))
			}
		}
	}
	return notes
}
