// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"unicode/utf8"
)

// table prints rows of cells in columns as wide as they have to be.
type table struct {
	right []bool // which columns are aligned to the right, as numbers are
	rows  [][]string
}

// newTable takes the heads of the columns; those that begin with > are of numbers.
func newTable(heads ...string) *table {
	t := &table{right: make([]bool, len(heads))}
	row := make([]string, len(heads))
	for i, head := range heads {
		row[i], t.right[i] = strings.CutPrefix(head, ">")
	}
	t.rows = append(t.rows, row)
	return t
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(b *strings.Builder) { t.printAfter(b, "") }

// printIndented prints a table that belongs to the line above it.
func (t *table) printIndented(b *strings.Builder) { t.printAfter(b, "  ") }

// printAfter begins each line with the margin.
func (t *table) printAfter(b *strings.Builder, margin string) {
	width := make([]int, len(t.right))
	for _, row := range t.rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if t.right[i] {
				line.WriteString(pad + cell + "  ")
			} else {
				line.WriteString(cell + pad + "  ")
			}
		}
		b.WriteString(margin + strings.TrimRight(line.String(), " ") + "\n")
	}
}
