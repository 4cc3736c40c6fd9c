// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Pos is a position in a policy file. Lines and columns count from 1; columns count
// characters, not bytes.
type Pos struct {
	Line, Col int
}

// Error is one thing that is wrong in a policy file.
type Error struct {
	File      string
	Line, Col int
	Msg       string // what is wrong, and what would be right
}

// Error returns FILE:LINE:COL: message.
func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Col, e.Msg)
}

// Errors is all that is wrong in a policy file, by position. An Errors without elements
// is not an error; return nil instead.
type Errors []*Error

// Error returns one line per error.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the errors one by one, for errors.As.
func (e Errors) Unwrap() []error {
	out := make([]error, len(e))
	for i, err := range e {
		out[i] = err
	}
	return out
}

// Warning is something in a policy file that is valid but surely not what was meant.
type Warning struct {
	File      string
	Line, Col int
	Msg       string
}

// String returns FILE:LINE:COL: message.
func (w Warning) String() string {
	return fmt.Sprintf("%s:%d:%d: %s", w.File, w.Line, w.Col, w.Msg)
}

// maxReports bounds how many errors, and how many warnings, are told about one file:
// nobody reads more at once, and one mistake repeated 10,000 times is one mistake.
const maxReports = 20

// maxKept bounds the errors, and the warnings, that are kept to find the first ones.
const maxKept = 1000

// diagnostics collects what is to be said about one file.
type diagnostics struct {
	file     string
	errors   Errors
	warnings []Warning
	dropped  int // errors beyond maxKept
	ignored  int // warnings beyond maxKept
}

func (d *diagnostics) errorf(at Pos, format string, args ...any) {
	if d.full() {
		d.dropped++
		return
	}
	d.errors = append(d.errors, &Error{d.file, at.Line, at.Col, fmt.Sprintf(format, args...)})
}

// full says that no more errors are kept, so that the work for good advice can be saved.
func (d *diagnostics) full() bool { return len(d.errors) >= maxKept }

func (d *diagnostics) warnf(at Pos, format string, args ...any) {
	if len(d.warnings) >= maxKept {
		d.ignored++
		return
	}
	d.warnings = append(d.warnings, Warning{d.file, at.Line, at.Col, fmt.Sprintf(format, args...)})
}

// err returns the errors by position, the first maxReports of them and how many are left,
// or nil if there are none.
func (d *diagnostics) err() error {
	if len(d.errors) == 0 {
		return nil
	}
	errs := slices.Clone(d.errors)
	slices.SortStableFunc(errs, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	if left := len(errs) - maxReports; left > 0 {
		next := errs[maxReports]
		errs = append(errs[:maxReports:maxReports],
			&Error{next.File, next.Line, next.Col, fmt.Sprintf("%s from here on; correct those above first", count(left+d.dropped, "more error"))})
	}
	return errs
}

// MergeWarnings returns the warnings of Parse and those of Compile by position.
func MergeWarnings(a, b []Warning) []Warning {
	w := slices.Concat(a, b)
	slices.SortStableFunc(w, func(a, b Warning) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	return w
}

// warned returns the warnings by position, bounded like the errors.
func (d *diagnostics) warned() []Warning {
	w := MergeWarnings(d.warnings, nil)
	if left := len(w) - maxReports; left > 0 {
		next := w[maxReports]
		next.Msg = count(left+d.ignored, "more warning") + " from here on"
		w = append(w[:maxReports:maxReports], next)
	}
	return w
}

// count returns "1 thing" or "3 things".
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// quote returns s in quotes, shortened: an error is read on a terminal.
func quote(s string) string {
	const most = 60
	if r := []rune(s[:min(len(s), 4*most)]); len(r) > most {
		s = string(r[:most-1]) + "…"
	}
	return fmt.Sprintf("%q", s)
}

// listing returns quoted names as in a sentence: "a", "b" or "c".
func listing(names []string, conjunction string) string {
	q := make([]string, len(names))
	for i, n := range names {
		q[i] = quote(n)
	}
	if len(q) < 2 {
		return strings.Join(q, "")
	}
	return strings.Join(q[:len(q)-1], ", ") + " " + conjunction + " " + q[len(q)-1]
}

// didYouMean asks for a guess, if there is one.
func didYouMean(guess string) string {
	if guess == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", guess)
}

// nearest returns the candidate that is most like word, or nothing if none is alike.
func nearest(word string, candidates []string) string {
	const longest = 64
	if len(word) > longest {
		return ""
	}
	return nearestWithin(len(word)/3+1, word, candidates)
}

// nearestWithin returns the candidate that is most like word and at most so many edits
// away, or nothing.
func nearestWithin(most int, word string, candidates []string) string {
	best, bestAt := "", most
	for _, c := range candidates {
		if len(c) > len(word)+bestAt || len(word) > len(c)+bestAt {
			continue // comparing is slow
		}
		if at := distance(strings.ToLower(word), strings.ToLower(c)); at <= bestAt && (best == "" || at < bestAt) {
			best, bestAt = c, at
		}
	}
	return best
}

// distance counts the single-byte edits and swaps of neighbours that make a into b.
func distance(a, b string) int {
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := 1; i <= len(a); i++ {
		older, prev, row := rows[(i+2)%3], rows[i%3], rows[(i+1)%3]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], older[j-2]+1)
			}
		}
	}
	return rows[(len(a)+1)%3][len(b)]
}
