// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"narthex/internal/api"
)

// The keys of the journal, which lies beside the maps and outlives the daemon.
const (
	keyPolicy   = "policy"    // hash of the policy in force
	keyNetwork  = "network"   // cookie of the network namespace
	keyOverride = "override " // and the path: the value
	keyUntil    = "until "    // and the path: when that ends, in ns of the clock that nobody sets
)

// checkNetwork refuses to adopt what polices the interfaces of another namespace: their
// indexes mean other interfaces here.
func checkNetwork(instance string, journal map[string]string, cookie uint64) error {
	recorded, ok := journal[keyNetwork]
	if !ok || recorded == strconv.FormatUint(cookie, 10) {
		return nil
	}
	return fmt.Errorf("instance %q is in force in another network namespace: run `narthex detach --instance %s` first, or choose that one with --netns",
		instance, instance)
}

func overridesIn(journal map[string]string) []api.Override {
	var found []api.Override
	for key, value := range journal {
		if path, ok := strings.CutPrefix(key, keyOverride); ok {
			o := api.Override{Path: path, Value: value}
			if ns, err := strconv.ParseInt(journal[keyUntil+path], 10, 64); err == nil {
				o.Deadline = time.Duration(ns)
				until := time.Now().Add(o.Deadline - monotonic())
				o.Until = &until
			}
			found = append(found, o)
		}
	}
	slices.SortFunc(found, func(a, b api.Override) int { return cmp.Compare(a.Path, b.Path) })
	return found
}

// eraseOverrides removes overrides from the journal.
func eraseOverrides(dp Datapath, overrides []api.Override) error {
	var errs []error
	for _, o := range overrides {
		errs = append(errs, dp.Erase(keyOverride+o.Path), dp.Erase(keyUntil+o.Path))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove overrides: %w", err)
	}
	return nil
}

// recordOverride writes the override of a path down for the next daemon.
func recordOverride(dp Datapath, path string, overrides []api.Override) error {
	o := overrides[slices.IndexFunc(overrides, func(o api.Override) bool { return o.Path == path })]
	if o.Deadline == 0 {
		return errors.Join(dp.Erase(keyUntil+path), dp.Record(keyOverride+path, o.Value))
	}
	return errors.Join(dp.Record(keyUntil+path, strconv.FormatInt(int64(o.Deadline), 10)), dp.Record(keyOverride+path, o.Value))
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
	e.time(overrides)
	return with, nil
}
