// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"narthex/internal/api"
	"narthex/internal/netif"
	"narthex/internal/policy"
)

// enforceable is a policy that is in force or could be.
type enforceable struct {
	file      string         // absolute path
	text      []byte         // as it was read
	asWritten *policy.Policy // without overrides
	policy    *policy.Policy // with them
	tables    *policy.Tables
	listed    *listed
	overrides []api.Override // by path
	warnings  []policy.Warning
	loaded    time.Time
	// wrong says that the file cannot be read, and this is what it held when it was put in force
	// to be confirmed: it may go on, and not begin.
	wrong error
}

// AdviseOnPolicy says what to do about a policy file that cannot be read.
func AdviseOnPolicy(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: name a policy file that exists", err)
	case errors.Is(err, unix.EISDIR):
		return fmt.Errorf("%w: name the policy file in it", err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: run this command as root, or make the file readable", err)
	}
	return err
}

// load reads a policy that can be enforced: by policy.ReadRegular in a daemon that runs, which must
// not wait for a pipe.
func load(file string, read func(string) ([]byte, error)) (*enforceable, error) {
	text, err := read(file)
	if err != nil {
		return nil, AdviseOnPolicy(err)
	}
	return parse(file, text)
}

// parse makes a policy that can be enforced of its text.
func parse(file string, text []byte) (*enforceable, error) {
	p, warnings, err := policy.Parse(file, text)
	if err != nil {
		return nil, err
	}
	tables, more, err := policy.Compile(p)
	if err != nil {
		return nil, err
	}
	listed, err := openLists(p)
	if err != nil {
		return nil, err
	}
	tables.InLists = listed.bits
	absolute, err := filepath.Abs(file)
	if err != nil {
		return nil, fmt.Errorf("find policy %q: %w", file, err)
	}
	return &enforceable{
		file:      absolute,
		text:      text,
		asWritten: p,
		policy:    p,
		tables:    tables,
		listed:    listed,
		warnings:  policy.MergeWarnings(warnings, more),
		loaded:    time.Now(),
	}, nil
}

// with returns the policy as written with these overrides and no others.
func (f *enforceable) with(overrides []api.Override) (*enforceable, error) {
	p := f.asWritten.Clone()
	for _, o := range ratesFirst(overrides) {
		if err := p.Override(o.Path, o.Value); err != nil {
			return nil, err
		}
	}
	if err := p.CheckBounds(); err != nil {
		return nil, err
	}
	tables, _, err := policy.Compile(p)
	if err != nil {
		return nil, err
	}
	tables.InLists = f.listed.bits
	next := *f
	next.policy, next.tables = p, tables
	next.overrides = slices.Clone(overrides)
	slices.SortFunc(next.overrides, func(a, b api.Override) int { return cmp.Compare(a.Path, b.Path) })
	return &next, nil
}

// ratesFirst is the order in which overrides fit: a rate that sets itself has no burst, one that was set has.
func ratesFirst(overrides []api.Override) []api.Override {
	rate := func(o api.Override) int {
		if strings.HasSuffix(o.Path, ".rate") {
			return 0
		}
		return 1
	}
	ordered := slices.Clone(overrides)
	slices.SortStableFunc(ordered, func(a, b api.Override) int { return rate(a) - rate(b) })
	return ordered
}

// without returns the overrides but for that of a path.
func without(overrides []api.Override, path string) []api.Override {
	return slices.DeleteFunc(slices.Clone(overrides), func(o api.Override) bool { return o.Path == path })
}

func (f *enforceable) overridden(path string) bool {
	return slices.ContainsFunc(f.overrides, func(o api.Override) bool { return o.Path == path })
}

func (f *enforceable) wants() []netif.Want {
	wants := make([]netif.Want, len(f.tables.Services))
	for i, s := range f.tables.Services {
		wants[i] = netif.Want{
			Service: s.Name, Interfaces: s.Interfaces, XDP: s.XDP, Requests: s.Room.Ruled || s.Room.Mark != 0 || f.tables.HasRoom(i),
		}
	}
	return wants
}

func (f *enforceable) status() api.PolicyStatus {
	return api.PolicyStatus{File: f.file, Hash: f.tables.Hash, Loaded: f.loaded}
}

func (f *enforceable) warningLines() []string {
	lines := make([]string, len(f.warnings))
	for i, w := range f.warnings {
		lines[i] = w.String()
	}
	return lines
}
