// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"narthex/internal/api"
)

// eventLines prints events in columns, which grow with what is in them. What comes next is not
// known: when a column has grown, the heads come again.
type eventLines struct {
	colours bool
	dated   bool // they are of the past
	ja4     bool // there was a fingerprint: from then on they have a column
	width   []int
}

// eventHeads are the columns' heads with the spaces that are usually needed.
var eventHeads = []string{
	"TIME        ", "WHAT  ", "CLIENT               ", "SERVICE", "CLASS  ", "RULE      ", "BUCKET", "REASON    ", "WAITED", "LIMIT", "ANSWER",
}

// eventColumns are what is coloured.
const (
	eventWhat = 1
	eventRule = 5
)

// The colours of a terminal (ECMA-48).
const (
	red, yellow, green, dim, plain = "\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[2m", "\x1b[0m"
)

// colourOf is by how bad an event is for a client.
var colourOf = map[string]string{
	"drop": red, "reject": red, "demote": yellow, "hold": yellow, "admit": green, "release": green,
}

func (l *eventLines) print(w io.Writer, e api.Event) error {
	text, moved := "", l.width == nil
	if moved {
		l.width = make([]int, len(eventHeads))
		l.widen(eventHeads)
	}
	if e.JA4 != "" && !l.ja4 {
		l.ja4, l.width, moved = true, append(l.width, 0), true
	}
	if e.Missed == 0 {
		moved = l.widen(l.cells(e)) || moved
	}
	if moved {
		text = l.line(l.heads(), "") // over the columns as they are from here on
	}
	switch {
	case e.Missed == 1:
		text += l.remark("1 event missed")
	case e.Missed > 0:
		text += l.remark(fmt.Sprintf("%d events missed", e.Missed))
	default:
		colour := colourOf[e.Kind]
		if e.Shadow {
			colour = dim
		}
		text += l.line(l.cells(e), colour)
	}
	_, err := io.WriteString(w, text)
	return err
}

func (l *eventLines) heads() []string {
	if l.ja4 {
		return append(slices.Clone(eventHeads), "JA4")
	}
	return eventHeads
}

func (l *eventLines) cells(e api.Event) []string {
	cells := eventCells(e, l.dated)
	if l.ja4 {
		cells = append(cells, dash(e.JA4))
	}
	return cells
}

// remark is a line that is no event.
func (l *eventLines) remark(text string) string {
	if l.colours {
		return yellow + "... " + text + plain + "\n"
	}
	return "... " + text + "\n"
}

// widen makes room for cells, and reports whether that moves a column.
func (l *eventLines) widen(cells []string) (moved bool) {
	for i, cell := range cells {
		if width := utf8.RuneCountInString(cell); width > l.width[i] {
			l.width[i] = width
			moved = moved || i < len(cells)-1
		}
	}
	return moved
}

// line puts cells into columns, two of them in a colour unless that is empty.
func (l *eventLines) line(cells []string, colour string) string {
	var b strings.Builder
	for i, cell := range cells {
		width := utf8.RuneCountInString(cell)
		coloured := l.colours && colour != "" && (i == eventWhat || i == eventRule)
		if coloured {
			b.WriteString(colour)
		}
		b.WriteString(cell)
		if coloured {
			b.WriteString(plain)
		}
		if i < len(cells)-1 {
			b.WriteString(strings.Repeat(" ", l.width[i]-width+2))
		}
	}
	return b.String() + "\n"
}

func eventCells(e api.Event, dated bool) []string {
	what, bucket, waited, limit := e.Kind, "-", "-", "-"
	if e.Shadow {
		what = "would " + what
	}
	if e.Level != nil {
		// Down: who is turned away for want of a token is not to be seen with 1.0.
		bucket = fmt.Sprintf("%.1f/%d", math.Floor(e.Level.Tokens*10)/10, e.Level.Burst)
	}
	if e.Waited > 0 {
		waited = span(e.Waited)
	}
	if e.Signal != nil {
		limit = signalText(e.Signal)
	}
	clock := "15:04:05.000"
	if dated {
		clock = "01-02 15:04:05"
	}
	return []string{
		e.Time.Local().Format(clock), what, e.Client, dash(e.Service), dash(e.Class), dash(e.Rule), bucket, dash(e.Reason), waited, limit, dash(e.Answer),
	}
}

// signalText says what the limit was, and what had set it.
func signalText(s *api.EventSignal) string {
	text := "unlimited"
	if s.Limit > 0 {
		text = strconv.Itoa(s.Limit)
	}
	text += " by " + s.SetBy
	if s.Overload {
		text += ", overload"
	}
	return text
}
