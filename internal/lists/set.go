// SPDX-License-Identifier: Apache-2.0

package lists

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"

	"narthex/internal/policy"
)

// Set is the lists of a policy with what is in them. It does not change.
type Set struct {
	files []file
	lists []*List
}

// file is where a list is.
type file struct {
	name, path string
	most       int
}

// Open reads the lists of a policy, whose paths are from its folder. Without lists there is no set. The error is
// of type policy.Errors.
func Open(p *policy.Policy) (*Set, error) {
	if len(p.Lists) == 0 {
		return nil, nil
	}
	s := &Set{}
	var wrong policy.Errors
	for i, l := range p.Lists {
		path, err := filepath.Abs(p.ListPath(i))
		if err != nil {
			return nil, err
		}
		f := file{l.Name, path, l.Max}
		list, err := Read(p.ListPath(i), l.Max)
		if err != nil {
			wrong = append(wrong, positioned(p.File, l, err))
			continue
		}
		s.files, s.lists = append(s.files, f), append(s.lists, list)
	}
	if wrong != nil {
		return nil, wrong
	}
	if n := s.Entries(); n > policy.MaxListEntries {
		l := p.Lists[len(p.Lists)-1]
		return nil, policy.Errors{{File: p.File, Line: l.Pos.Line, Col: l.Pos.Col, Msg: fmt.Sprintf("the lists have %d entries together, and there can be %d: leave some out", n, policy.MaxListEntries)}}
	}
	return s, nil
}

// positioned is an error of a file, at its line or at the list of the policy.
func positioned(in string, l policy.ListFile, err error) *policy.Error {
	e := new(Error)
	if errors.As(err, &e) && e.Line > 0 {
		return &policy.Error{File: e.File, Line: e.Line, Col: 1, Msg: e.What}
	}
	return &policy.Error{File: in, Line: l.Pos.Line, Col: l.Pos.Col, Msg: fmt.Sprintf("list %q: %v; name a file that can be read", l.Name, err)}
}

// Len returns how many lists there are; of no set, none.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return len(s.lists)
}

// List returns name, path and content of a list.
func (s *Set) List(i int) (name, path string, l *List) {
	return s.files[i].name, s.files[i].path, s.lists[i]
}

// Entries returns those of all lists together.
func (s *Set) Entries() int {
	n := 0
	for _, l := range s.lists {
		n += l.Entries
	}
	return n
}

// Bits returns the lists that an address is in.
func (s *Set) Bits(a netip.Addr) uint64 {
	var in uint64
	for i := range s.Len() {
		if s.lists[i].Has(a) {
			in |= 1 << i
		}
	}
	return in
}

// Table makes the table of the lists.
func (s *Set) Table() (*Table, error) { return Build(s.lists) }

// Reread returns a set in which one list is as its file is now. The error says what is wrong with it.
func (s *Set) Reread(i int) (*Set, error) {
	l, err := Read(s.files[i].path, s.files[i].most)
	if err != nil {
		return nil, err
	}
	next := &Set{s.files, append([]*List(nil), s.lists...)}
	next.lists[i] = l
	if n := next.Entries(); n > policy.MaxListEntries {
		return nil, &Error{s.files[i].path, 0, fmt.Sprintf("with it the lists have %d entries together, and there can be %d", n, policy.MaxListEntries)}
	}
	return next, nil
}
