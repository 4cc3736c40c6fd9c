// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"narthex/internal/figures"
	"narthex/internal/live"
)

const (
	// wide is from how many columns on rules and sources are side by side.
	wide = 130
	// fewRows is how many rows rules, sources and changes get before services are made shorter.
	fewRows    = 3
	mostRows   = 20
	changeRows = 6
)

// draw returns the screen, as many lines as the terminal has.
func (m *Model) draw() string {
	lines := []string{m.headLine()}
	if notice := m.notice(); notice != "" {
		lines = append(lines, alarm.Render(fitted(notice, m.width)))
	}
	room := m.height - len(lines) - 1
	switch {
	case m.helping:
		lines = append(lines, helpLines()...)
	case m.seen:
		lines = append(lines, m.body(room)...)
	default:
		lines = append(lines, "", "  waiting for the first view")
	}
	lines = lines[:min(len(lines), max(m.height-1, 0))]
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	return m.finished(append(lines, m.footLine()))
}

// finished makes one text of lines that are no wider than the terminal.
func (m *Model) finished(lines []string) string {
	for i, line := range lines {
		if m.opts.ASCII {
			line = toASCII.Replace(line)
		}
		lines[i] = strings.TrimRight(ansi.Truncate(line, m.width, ""), " ")
	}
	return strings.Join(lines, "\n")
}

// headLine says of what this is a view.
func (m *Model) headLine() string {
	if !m.seen {
		return topLine.Render("narthex top")
	}
	s, now := m.shown.view.Status, m.shown.view.Time
	state := "enforcing"
	if !s.Enforcing {
		state = alarm.Render("NOT ENFORCING")
	}
	left := fmt.Sprintf("%s %s", topLine.Render("narthex "+s.Instance), state)
	if s.Policy.File != "" {
		left += fmt.Sprintf(" · policy %s (%s) for %s", filepath.Base(s.Policy.File), shortHash(s.Policy.Hash),
			figures.Age(now.Sub(s.Policy.Loaded).Seconds()))
	}
	right := now.Local().Format(time.TimeOnly)
	if m.paused {
		right = alarm.Render("PAUSED") + " at " + right
	}
	return spread(left, right, m.width)
}

func shortHash(hash string) string {
	const digits = 8
	return hash[:min(len(hash), digits)]
}

// notice is what has to be known before all else; empty if there is nothing.
func (m *Model) notice() string {
	late := int(max(m.opts.Interval, time.Second)/time.Second) * ofLate
	switch {
	case m.lost != "":
		return "NO DAEMON, trying again: " + m.lost
	case m.seen && m.quiet > late:
		return fmt.Sprintf("NO NEWS from the daemon for %ds: what is shown is old", m.quiet)
	case m.note != "" && m.latest.view.Time.Before(m.noteUntil):
		return m.note
	}
	return ""
}

// footLine has the filter that is typed, or the keys.
func (m *Model) footLine() string {
	if m.typing {
		return fitted("filter: "+m.filter+"_"+faint.Render("  enter: keep, esc: show all"), m.width)
	}
	order := orders[m.sort].name
	if m.reverse {
		order += " reversed"
	}
	filter := "filter"
	if m.filter != "" {
		filter = "filter: " + m.filter + " (esc: all)"
	}
	return faint.Render(fitted(fmt.Sprintf("q quit  ? help  s sort: %s  / %s  p pause  ↑↓ service", order, filter), m.width))
}

// body fills so many lines with all there is to see.
func (m *Model) body(room int) []string {
	turned := m.turnedLines(m.width)
	notes := m.noteLines()
	lower := m.lower()
	upper := m.upper(room - len(turned) - len(notes) - least(lower))
	gaps := 0
	if room >= len(upper)+len(turned)+len(notes)+wanted(lower)+len(lower)+1 {
		gaps = 1 // there is room for empty lines
	}
	lines := append(upper, make([]string, gaps)...)
	lines = append(append(lines, turned...), notes...)
	return append(lines, fill(lower, room-len(lines), gaps)...)
}

// noteLines has the first of what is not as one might expect.
func (m *Model) noteLines() []string {
	notes := m.shown.view.Status.Notes
	if len(notes) == 0 {
		return nil
	}
	text := "note: " + notes[0]
	if more := len(notes) - 1; more > 0 {
		text = fmt.Sprintf("note (and %d more: `narthex status`): %s", more, notes[0])
	}
	return []string{waits.Render(fitted(text, m.width))}
}

// upper draws the services in so many lines: all with their details if that fits, else the
// chosen one alone, with as many of the others as fit around it.
func (m *Model) upper(room int) []string {
	head := serviceTable(m.width).head()
	if len(m.services()) == 0 {
		return []string{head, faint.Render("no service or class has the text of the filter")}
	}
	room = max(room, 2) - 1
	lines, from, to := m.serviceLines(m.width, func(int) bool { return true })
	if len(lines) > room {
		chosen := m.chosenOf(m.services())
		lines, from, to = m.serviceLines(m.width, func(i int) bool { return i == chosen })
	}
	if len(lines) <= room {
		return append([]string{head}, lines...)
	}
	rest := room - 1 // a line says what is left out
	first := max(0, min(from-(rest-(to-from))/2, len(lines)-rest))
	first = min(first, from)
	left := fmt.Sprintf("  %d more lines: use the arrows, / or a larger window", len(lines)-rest)
	return append(append([]string{head}, lines[first:first+rest]...), faint.Render(left))
}

// lower are the parts below the services, from the left to the right and downwards.
func (m *Model) lower() [][]block {
	var parts [][]block
	if m.width >= wide {
		half := (m.width - 2) / 2
		parts = [][]block{{m.ruleBlock(half), m.sourceBlock(m.width - 2 - half)}}
	} else {
		parts = [][]block{{m.ruleBlock(m.width)}, {m.sourceBlock(m.width)}}
	}
	if pools := m.poolBlock(m.width); len(pools.rows) > 0 {
		parts = append([][]block{{pools}}, parts...)
	}
	if changes := m.changeBlock(m.width); len(changes.rows) > 0 {
		changes.rows = changes.rows[:min(len(changes.rows), changeRows)]
		parts = append(parts, []block{changes})
	}
	return parts
}

// height is how many rows a part wants.
func height(part []block) (rows int) {
	for _, b := range part {
		rows = max(rows, len(b.rows), 1)
	}
	return min(rows, mostRows)
}

// least is how many lines the parts need.
func least(parts [][]block) (lines int) {
	for _, part := range parts {
		lines += 1 + min(height(part), fewRows)
	}
	return lines
}

// wanted is how many lines they have use for.
func wanted(parts [][]block) (lines int) {
	for _, part := range parts {
		lines += 1 + height(part)
	}
	return lines
}

// fill draws the parts in so many lines, with gaps before each. They grow in turn as long as
// there is room.
func fill(parts [][]block, room, gaps int) (lines []string) {
	rows := make([]int, len(parts))
	used := len(parts) * (1 + gaps)
	for grown := true; grown && used < room; {
		grown = false
		for i, part := range parts {
			if rows[i] < height(part) && used < room {
				rows[i]++
				used++
				grown = true
			}
		}
	}
	for i, part := range parts {
		if rows[i] == 0 {
			continue
		}
		drawn := part[0].draw(rows[i])
		if len(part) > 1 {
			drawn = beside(drawn, part[1].draw(rows[i]), ansi.StringWidth(part[0].head))
		}
		lines = append(append(lines, make([]string, gaps)...), drawn...)
	}
	return lines
}

func (b block) draw(rows int) []string {
	lines := []string{b.head}
	if len(b.rows) == 0 {
		return append(lines, faint.Render(b.none))
	}
	return append(lines, b.rows[:min(rows, len(b.rows))]...)
}

// Plain draws everything of a view as text, however long, in so many columns.
func Plain(v live.View, width int, ascii bool) string {
	m := New(Options{ASCII: ascii})
	m.width, m.still = width, true
	m.take(v)
	lines := []string{m.headLine()}
	services, _, _ := m.serviceLines(width, func(int) bool { return true })
	lines = append(append(lines, "", serviceTable(width).head()), services...)
	lines = append(append(append(lines, ""), m.turnedLines(width)...), m.noteLines()...)
	lower := m.lower()
	lines = append(lines, fill(lower, wanted(lower)+len(lower), 1)...)
	return ansi.Strip(m.finished(lines)) + "\n"
}
