// SPDX-License-Identifier: Apache-2.0

// Package lists reads files of addresses and makes tables of them in which it is found in a few steps which
// of the files have an address.
package lists

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"narthex/internal/policy"
)

// List is a file that has been read.
type List struct {
	Entries  int       // as they are written
	Bytes    int64     // of the file
	Modified time.Time // the file
	v4       []span4   // ascending, apart from each other
	v6       []span6
}

// span4 is addresses from the first to the last.
type span4 struct{ first, last uint32 }

type span6 struct{ first, last key }

// Spans returns the numbers of spans of IPv4 and IPv6 that the entries make up.
func (l *List) Spans() (v4, v6 int) { return len(l.v4), len(l.v6) }

func (l *List) spans(is4 bool) int {
	if is4 {
		return len(l.v4)
	}
	return len(l.v6)
}

func (l *List) span(is4 bool, i int) (first, last key) {
	if is4 {
		s := l.v4[i]
		return key{hi: uint64(s.first) << 32}, key{uint64(s.last)<<32 | (1<<32 - 1), ^uint64(0)}
	}
	return l.v6[i].first, l.v6[i].last
}

// Has reports whether an address is in the list.
func (l *List) Has(a netip.Addr) bool {
	if a.Is4() {
		n := v4(a)
		i, found := slices.BinarySearchFunc(l.v4, n, func(s span4, n uint32) int { return cmp.Compare(s.first, n) })
		return found || i > 0 && n <= l.v4[i-1].last
	}
	k := keyOf(a)
	i, found := slices.BinarySearchFunc(l.v6, k, func(s span6, k key) int { return s.first.compare(k) })
	return found || i > 0 && k.compare(l.v6[i-1].last) <= 0
}

func v4(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

// Error says what is wrong in a file.
type Error struct {
	File string
	Line int // 0: the file as a whole
	What string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.What)
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.What)
}

// MaxFileBytes is the largest file that is read: room for 5 million prefixes of IPv6 in JSON.
const MaxFileBytes = 1 << 30

// Read reads a file with at most so many entries. The error is of type *Error.
func Read(file string, most int) (*List, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &Error{file, 0, policy.PathCause(err).Error()}
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, &Error{file, 0, policy.PathCause(err).Error()}
	case !info.Mode().IsRegular():
		return nil, &Error{file, 0, "it is no regular file"}
	case info.Size() > MaxFileBytes:
		return nil, &Error{file, 0, fmt.Sprintf("it has %d bytes; a list has at most %d", info.Size(), MaxFileBytes)}
	}
	data := make([]byte, 0, info.Size()+1)
	buffer := bytes.NewBuffer(data)
	if _, err := io.Copy(buffer, io.LimitReader(f, MaxFileBytes+1)); err != nil {
		return nil, &Error{file, 0, policy.PathCause(err).Error()}
	}
	l, err := Parse(file, buffer.Bytes(), most)
	if err != nil {
		return nil, err
	}
	l.Bytes, l.Modified = info.Size(), info.ModTime()
	return l, nil
}

// Parse reads what is in a file.
func Parse(file string, data []byte, most int) (*List, error) {
	r := &reader{file: file, most: most, list: &List{}}
	text := bytes.TrimSpace(data)
	switch {
	case len(text) == 0:
		return nil, &Error{file, 1, "the file is empty, as after a download that failed; a list without entries has a comment, as # none"}
	case text[0] == '{' || text[0] == '[' && !looksLikeIPv6(text):
		if err := r.json(data); err != nil {
			return nil, err
		}
	default:
		if err := r.lines(data); err != nil {
			return nil, err
		}
	}
	r.list.merge()
	return r.list, nil
}

// looksLikeIPv6 reports whether a text begins with an address in brackets, of which is said what is wrong better
// than by JSON.
func looksLikeIPv6(text []byte) bool {
	end := bytes.IndexByte(text, ']')
	_, err := netip.ParseAddr(string(text[1:max(end, 1)]))
	return end > 0 && err == nil
}

type reader struct {
	file     string
	most     int
	list     *List
	expected int // entries; 0: not known
}

// lines reads an entry a line. What is behind # or ; is a comment.
func (r *reader) lines(data []byte) error {
	r.expected = min(bytes.Count(data, []byte("\n"))+1, r.most)
	line := 0
	for text := range bytes.Lines(data) {
		line++
		if i := bytes.IndexAny(text, "#;"); i >= 0 {
			text = text[:i]
		}
		text = bytes.TrimSpace(text)
		if line == 1 {
			text = bytes.TrimPrefix(text, []byte("\ufeff"))
		}
		if len(text) == 0 {
			continue
		}
		if err := r.entry(string(text), line); err != nil {
			return err
		}
	}
	return nil
}

// entry adds an address, a prefix or FIRST-LAST.
func (r *reader) entry(text string, line int) error {
	if r.list.Entries == r.most {
		return &Error{r.file, line, fmt.Sprintf(`there are more than %d entries; give the list a "max" of as many as it can have`, r.most)}
	}
	if r.list.Entries++; r.list.Entries == 1 {
		r.list.grow(r.expected, !strings.Contains(text, ":"))
	}
	if p, err := netip.ParsePrefix(text); err == nil && p == p.Masked() && !p.Addr().Is4In6() {
		r.list.add(policy.PrefixRange(p))
		return nil
	}
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" && !a.Is4In6() {
		r.list.add(policy.Range{First: a, Last: a})
		return nil
	}
	words := strings.Fields(text)
	if len(words) == 3 && words[1] == "-" {
		text = words[0] + "-" + words[2]
	}
	of, err := policy.ParseRange(text)
	if err != nil {
		return &Error{r.file, line, err.Error()}
	}
	r.list.add(of)
	return nil
}

// grow makes room for entries that are like the first.
func (l *List) grow(n int, is4 bool) {
	if is4 {
		l.v4 = make([]span4, 0, n)
	} else {
		l.v6 = make([]span6, 0, n)
	}
}

func (l *List) add(r policy.Range) {
	if r.First.Is4() {
		l.v4 = append(l.v4, span4{v4(r.First), v4(r.Last)})
		return
	}
	l.v6 = append(l.v6, span6{keyOf(r.First), keyOf(r.Last)})
}

// merge sorts the spans and makes one of those that touch.
func (l *List) merge() {
	slices.SortFunc(l.v4, func(a, b span4) int { return cmp.Compare(a.first, b.first) })
	out4 := l.v4[:0]
	for _, s := range l.v4 {
		if n := len(out4); n > 0 && uint64(s.first) <= uint64(out4[n-1].last)+1 {
			out4[n-1].last = max(out4[n-1].last, s.last)
			continue
		}
		out4 = append(out4, s)
	}
	l.v4 = slices.Clip(out4)
	slices.SortFunc(l.v6, func(a, b span6) int { return a.first.compare(b.first) })
	out6 := l.v6[:0]
	for _, s := range l.v6 {
		n := len(out6)
		if n > 0 && (s.first.compare(out6[n-1].last) <= 0 || s.first == out6[n-1].last.next()) {
			if out6[n-1].last.compare(s.last) < 0 {
				out6[n-1].last = s.last
			}
			continue
		}
		out6 = append(out6, s)
	}
	l.v6 = slices.Clip(out6)
}
