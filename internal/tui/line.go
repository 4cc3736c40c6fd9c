// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
)

// The styles. Colour says nothing that the words do not say: a terminal may have none.
var (
	plain   = lipgloss.NewStyle()
	bold    = lipgloss.NewStyle().Bold(true)
	faint   = lipgloss.NewStyle().Faint(true)
	title   = lipgloss.NewStyle().Bold(true).Foreground(lipgloss.Cyan)
	good    = lipgloss.NewStyle().Foreground(lipgloss.Green)
	waits   = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
	bad     = lipgloss.NewStyle().Foreground(lipgloss.Red)
	alarm   = lipgloss.NewStyle().Bold(true).Reverse(true)
	topLine = lipgloss.NewStyle().Bold(true)
)

// column is a column of a table. The one whose width is 0 takes what the others leave.
type column struct {
	head  string
	width int
	right bool // as numbers are
}

type cell struct {
	text  string
	style lipgloss.Style
}

// as returns a cell in a style if it is not 0, and else a faint one: what is there stands out.
func as(style lipgloss.Style, text string) cell {
	if text == "0" || text == "-" || text == "" {
		style = faint
	}
	return cell{text, style}
}

// table is columns that fit a width.
type table struct {
	columns []column
	rows    [][]cell
}

const (
	leastName = 8
	mostName  = 40 // a wider column would put figures far from what they are of
)

// newTable gives the column without a width what is left, within bounds.
func newTable(width int, columns []column) *table {
	left := width
	for _, c := range columns {
		left -= c.width + 1
	}
	for i := range columns {
		if columns[i].width == 0 {
			columns[i].width = min(max(left+1, leastName), mostName)
		}
	}
	return &table{columns: columns}
}

func (t *table) add(cells ...cell) { t.rows = append(t.rows, cells) }

// head is the line above the rows.
func (t *table) head() string {
	cells := make([]cell, len(t.columns))
	for i, c := range t.columns {
		cells[i] = cell{c.head, title}
	}
	return t.line(cells)
}

func (t *table) lines() []string {
	lines := make([]string, len(t.rows))
	for i, row := range t.rows {
		lines[i] = t.line(row)
	}
	return lines
}

func (t *table) line(cells []cell) string {
	var b strings.Builder
	for i, c := range cells {
		col := t.columns[i]
		text := fitted(c.text, col.width)
		pad := strings.Repeat(" ", col.width-ansi.StringWidth(text))
		if i > 0 {
			b.WriteString(" ")
		}
		switch {
		case col.right:
			b.WriteString(pad + c.style.Render(text))
		case i == len(cells)-1:
			b.WriteString(c.style.Render(text))
		default:
			b.WriteString(c.style.Render(text) + pad)
		}
	}
	return b.String()
}

// fitted cuts a text to a width.
func fitted(text string, width int) string { return ansi.Truncate(text, max(width, 0), "…") }

// spread puts one text to the left and one to the right of a line.
func spread(left, right string, width int) string {
	gap := width - ansi.StringWidth(left) - ansi.StringWidth(right)
	if gap < 1 {
		return fitted(left, width-ansi.StringWidth(right)-1) + " " + right
	}
	return left + strings.Repeat(" ", gap) + right
}

// beside puts two blocks of lines side by side, the left one in so many columns.
func beside(left, right []string, width int) []string {
	lines := make([]string, max(len(left), len(right)))
	for i := range lines {
		if i < len(left) {
			lines[i] = fitted(left[i], width)
		}
		if i < len(right) {
			lines[i] += strings.Repeat(" ", width-ansi.StringWidth(lines[i])+2) + right[i]
		}
	}
	return lines
}

// toASCII writes what has to be written otherwise where a terminal has no UTF-8.
var toASCII = strings.NewReplacer("↑↓", "up/down", "µ", "u", "→", "->", "…", "~", "·", "-", "↑", "up", "↓", "down")
