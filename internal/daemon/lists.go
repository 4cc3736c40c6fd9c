// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/lists"
	"narthex/internal/policy"
)

// listed is the lists of a policy. Policies that differ in overrides alone share them. Nil: there are none.
type listed struct {
	set    atomic.Pointer[lists.Set]
	kernel *datapath.Lists // guarded by engine.mu; nil: not in the data path

	mu     sync.Mutex
	states []listState
}

// listState is what has become of a list's file.
type listState struct {
	read     time.Time // the content in force
	reads    uint64    // times that it was read
	failures uint64    // times that it could not be
	wrong    string    // why the last time; empty: it could
	since    time.Time // of that
}

// openLists reads the lists of a policy.
func openLists(p *policy.Policy) (*listed, error) {
	set, err := lists.Open(p)
	if set == nil || err != nil {
		return nil, err
	}
	l := &listed{states: make([]listState, set.Len())}
	for i := range l.states {
		l.states[i] = listState{read: time.Now(), reads: 1}
	}
	l.set.Store(set)
	return l, nil
}

// bits returns the lists that an address is in.
func (l *listed) bits(a netip.Addr) uint64 {
	if l == nil {
		return 0
	}
	return l.set.Load().Bits(a)
}

// prepare puts the lists into the kernel's memory, if they are not.
func (l *listed) prepare(dp Datapath) error {
	if l == nil || l.kernel != nil {
		return nil
	}
	kernel, err := makeLists(dp, l.set.Load())
	if err == nil {
		l.kernel = kernel
	}
	return err
}

func makeLists(dp Datapath, set *lists.Set) (*datapath.Lists, error) {
	table, err := set.Table()
	if err != nil {
		return nil, err
	}
	return dp.NewLists(table)
}

// close gives up what is in the kernel's memory, if it is not in force.
func (l *listed) close() {
	if l != nil {
		l.kernel.Close()
		l.kernel = nil
	}
}

// inKernel returns what the data path is to have.
func (l *listed) inKernel() *datapath.Lists {
	if l == nil {
		return nil
	}
	return l.kernel
}

const (
	// rereadEvery is how often files of lists are looked at that nothing was heard of.
	rereadEvery = 10 * time.Second
	// policyEvery is how often it is looked whether another policy has other lists.
	policyEvery = time.Second
)

// followLists reads lists anew when their files change.
func (e *engine) followLists(ctx context.Context) {
	var watched *listed
	stop := func() {}
	var running sync.WaitGroup
	tick := time.NewTicker(policyEvery)
	defer tick.Stop()
	for {
		e.mu.Lock()
		now := e.current.listed
		e.mu.Unlock()
		if now != watched {
			stop()
			running.Wait()
			watched, stop = now, e.watchLists(ctx, now, &running)
		}
		select {
		case <-ctx.Done():
			stop()
			running.Wait()
			return
		case <-tick.C:
		}
	}
}

// watchLists follows the files of lists until it is stopped.
func (e *engine) watchLists(ctx context.Context, l *listed, running *sync.WaitGroup) (stop func()) {
	if l == nil {
		return func() {}
	}
	ctx, stop = context.WithCancel(ctx)
	set := l.set.Load()
	var files []lists.Version
	for i := range set.Len() {
		_, path, list := set.List(i)
		files = append(files, lists.Version{Path: path, Bytes: list.Bytes, Modified: list.Modified})
	}
	running.Go(func() { lists.Watch(ctx, files, rereadEvery, func(path string) { e.reread(l, path) }) })
	return stop
}

// reread reads the lists of a file anew. On error the last good ones stay.
func (e *engine) reread(l *listed, path string) {
	defer memory.spend()()
	set := l.set.Load()
	for i := range set.Len() {
		name, file, before := set.List(i)
		if file != path {
			continue
		}
		began := time.Now()
		err := e.replaceList(l, i)
		l.note(i, err)
		if err != nil {
			e.log.Error("a list cannot be read anew; what was read last stays in force", "list", name, "error", err)
			continue
		}
		_, _, after := l.set.Load().List(i)
		e.log.Info("a list has changed", "list", name, "entries", after.Entries, "before", before.Entries, "took", time.Since(began).Round(time.Millisecond))
	}
}

// replaceList puts a list in force as its file is now. Decisions go on meanwhile.
func (e *engine) replaceList(l *listed, list int) error {
	next, err := l.set.Load().Reread(list)
	if err != nil {
		return err
	}
	kernel, err := makeLists(e.dp, next)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current.listed != l {
		kernel.Close() // another policy has read them itself
		return nil
	}
	e.acting.Lock()
	defer e.acting.Unlock()
	if err := e.dp.SwapLists(kernel); err != nil {
		kernel.Close()
		return err
	}
	l.kernel.Close()
	l.kernel = kernel
	l.set.Store(next)
	return nil
}

// note keeps what became of reading a list.
func (l *listed) note(list int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.states[list]
	if err == nil {
		*s = listState{read: time.Now(), reads: s.reads + 1, failures: s.failures}
		return
	}
	if s.wrong == "" {
		s.since = time.Now()
	}
	s.wrong = err.Error()
	s.failures++
}

// listStatus says how the lists of the policy in force are.
func (e *engine) listStatus() ([]api.ListStatus, error) {
	l := e.current.listed
	if l == nil {
		return []api.ListStatus{}, nil
	}
	matches, err := e.dp.ListMatches()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	set := l.set.Load()
	out := make([]api.ListStatus, set.Len())
	for i := range out {
		name, path, list := set.List(i)
		s := l.states[i]
		v4, v6 := list.Spans()
		out[i] = api.ListStatus{
			Name: name, File: path, Entries: list.Entries, V4: v4, V6: v6, Bytes: list.Bytes,
			Modified: list.Modified, Read: s.read, Reads: s.reads, Failures: s.failures, Wrong: s.wrong, WrongSince: s.since, Matches: matches[i],
		}
	}
	return out, nil
}

// listNotes says which lists are not as their files are.
func (e *engine) listNotes() (notes []string) {
	l := e.current.listed
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.states {
		if s.wrong != "" {
			notes = append(notes, s.wrong+"; what the list had before stays in force")
		}
	}
	return slices.Clip(notes)
}
