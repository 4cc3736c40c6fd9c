// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// width is that of the widest line. A narrower terminal would wrap it, and redrawing
// would leave a trail.
const width = 80

// screen writes the demo. On a terminal it draws the table again and again in place;
// otherwise each figure is a line.
type screen struct {
	w      io.Writer
	live   bool
	colour bool
	err    error // of the first write that failed

	said  string
	rows  [phases]string
	drawn bool // the table, or its head where it is not redrawn
}

func newScreen(w io.Writer) *screen {
	s := &screen{w: w}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return s
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	s.live = err == nil && columns >= width
	s.colour = os.Getenv("NO_COLOR") == ""
	return s
}

func (s *screen) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(s.w, format, args...); s.err == nil {
		s.err = err
	}
}

// paint gives text a colour, if there are any.
func (s *screen) paint(colour, text string) string {
	if !s.colour {
		return text
	}
	return colour + text + "\x1b[0m"
}

// The colours: ANSI escape codes.
const (
	bold  = "\x1b[1m"
	red   = "\x1b[31m"
	green = "\x1b[32m"
)

// intro says what is being shown.
func (s *screen) intro() {
	s.printf("%s\n\n", s.paint(bold, "A web server, few clients that matter, many that want more than there is."))
	s.printf("  server   10.77.0.1:80 on one core, %s of CPU per request; not modified\n", millis(milliseconds(work)))
	s.printf("  gold     10.77.1.1: %d clients, each asks, waits for the answer, asks again\n", goldClients)
	s.printf("  bronze   %s: %d clients that do the same\n\n", bronzeAddr, bronzeClients)
	s.printf("The policy has two requests at a time in service, and the others wait:\n\n")
	for line := range strings.Lines(policyText) {
		s.printf("    %s", line)
	}
	s.printf("\n")
}

// The table's head.
const (
	head1 = "                          gold clients             bronze clients"
	head2 = "                      requests/s      median    requests/s      median"
)

// caption says what is going on.
func (s *screen) caption(text string) {
	s.said = text
	if s.live {
		s.draw()
		return
	}
	s.printf("%s\n", text)
}

// row shows the figures of a phase; left is how long it goes on, 0 once they are those
// of the whole phase.
func (s *screen) row(id phaseID, p Phase, left time.Duration) {
	gold := columns(p.Gold)
	switch id {
	case without:
		gold = s.paint(red, gold)
	case with:
		gold = s.paint(green, gold)
	}
	bronze := fmt.Sprintf("%12s%12s", "–", "–")
	if p.Bronze != nil {
		bronze = columns(*p.Bronze)
	}
	text := fmt.Sprintf("%-20s%s  %s", phaseTexts[id].name, gold, bronze)
	if left > 0 {
		text = fmt.Sprintf("%s  %3.0f s", text, math.Ceil(left.Seconds()))
	}
	if s.live {
		s.rows[id] = text
		s.draw()
		return
	}
	s.line(text, left)
}

// line writes a row for what is not a terminal: once per second, and the whole phase.
func (s *screen) line(row string, left time.Duration) {
	if !s.drawn {
		s.drawn = true
		s.printf("%s\n%s\n", head1, head2)
	}
	switch {
	case left == 0:
		s.printf("%s  whole phase\n", row)
	case left%time.Second == 0:
		s.printf("%s\n", row)
	}
}

// draw draws the table, over the one that is there.
func (s *screen) draw() {
	lines := []string{s.paint(bold, head1), head2}
	for id, row := range s.rows {
		if row == "" {
			row = phaseTexts[id].name
		}
		lines = append(lines, row)
	}
	lines = append(lines, "", s.said, "")
	if s.drawn {
		s.printf("\x1b[%dA", len(lines))
	}
	s.drawn = true
	for _, line := range lines {
		s.printf("\x1b[2K%s\n", line)
	}
}

// summary says what the demo has shown.
func (s *screen) summary(sum *Summary) {
	before, after := sum.Without.Gold, sum.With.Gold
	if !s.live {
		s.printf("\n")
	}
	s.printf("Overloaded, the gold clients got %s requests/s, at a median of %s.\n", number(before.Rate), millis(before.Median))
	s.printf("%s %s requests/s, at %s%s.\n", s.paint(bold, "With Narthex they got"), number(after.Rate), millis(after.Median), s.times(sum))
	s.printf("Narthex held %s requests meanwhile. The server was neither changed nor restarted.\n", number(float64(sum.Held)))
}

// times says the ratios, if there are any.
func (s *screen) times(sum *Summary) string {
	if sum.Ratio == 0 || sum.Median == 0 {
		return ""
	}
	return ": " + s.paint(bold, fmt.Sprintf("%s times as many, %s times sooner", number(sum.Ratio), number(sum.Median)))
}

// columns are the figures of one kind of clients, 24 wide.
func columns(f Figures) string {
	return fmt.Sprintf("%12s%12s", number(f.Rate), millis(f.Median))
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// number writes a number with separators between thousands, and one decimal if it is
// small.
func number(v float64) string {
	if v < 9.95 && v != math.Trunc(v) {
		return fmt.Sprintf("%.1f", v)
	}
	text := fmt.Sprintf("%.0f", v)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// millis writes milliseconds, and a dash for none.
func millis(ms float64) string {
	switch {
	case ms == 0:
		return "–"
	case ms < 9.95:
		return fmt.Sprintf("%.1f ms", ms)
	}
	return number(ms) + " ms"
}
