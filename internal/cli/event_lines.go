// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"narthex/internal/daemon/api"
)

// eventLines prints events in columns, which grow with what is in them. What comes next is not
// known, so that earlier lines may be narrower.
type eventLines struct {
	colours bool
	width   []int
}

// eventHeads are the columns' heads with the spaces that are usually needed.
var eventHeads = []string{
	"TIME        ", "WHAT  ", "CLIENT               ", "SERVICE", "CLASS  ", "RULE      ", "BUCKET", "REASON    ", "WAITED", "LIMIT",
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
	text := ""
	if l.width == nil {
		l.width = make([]int, len(eventHeads))
		text = l.line(eventHeads, "")
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
		text += l.line(eventCells(e), colour)
	}
	_, err := io.WriteString(w, text)
	return err
}

// remark is a line that is no event.
func (l *eventLines) remark(text string) string {
	if l.colours {
		return yellow + "... " + text + plain + "\n"
	}
	return "... " + text + "\n"
}

// line puts cells into columns, two of them in a colour unless that is empty.
func (l *eventLines) line(cells []string, colour string) string {
	var b strings.Builder
	for i, cell := range cells {
		width := utf8.RuneCountInString(cell)
		l.width[i] = max(l.width[i], width)
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

func eventCells(e api.Event) []string {
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
	return []string{
		e.Time.Local().Format("15:04:05.000"), what, e.Client, dash(e.Service), dash(e.Class), dash(e.Rule), bucket, dash(e.Reason), waited, limit,
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
