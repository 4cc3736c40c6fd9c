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
	s.printf("%s\n\n", s.paint(bold, "A web server, a preferred client, a greedy one. What can Narthex do?"))
	s.printf("  server     10.77.0.1:80 on one core, %s of CPU per request; not modified\n", millis(milliseconds(work)))
	s.printf("  preferred  10.77.1.1: %d clients, each asks, waits for the answer, asks again\n", preferredClients)
	s.printf("  greedy     %s: %s connections/s, whatever the answers\n\n", greedyNet, number(greedyRate))
	s.printf("The policy limits how many connections/s the greedy client may open:\n\n")
	for line := range strings.Lines(policyText) {
		s.printf("    %s", line)
	}
	s.printf("\n")
}

// The table's head.
const (
	head1 = "                        preferred client            greedy client"
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
	preferred := columns(p.Preferred)
	switch id {
	case without:
		preferred = s.paint(red, preferred)
	case with:
		preferred = s.paint(green, preferred)
	}
	greedy := fmt.Sprintf("%12s%12s", "–", "–")
	if p.Greedy != nil {
		greedy = columns(*p.Greedy)
	}
	text := fmt.Sprintf("%-20s%s  %s", phaseTexts[id].name, preferred, greedy)
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
	before, after := sum.Without.Preferred, sum.With.Preferred
	if !s.live {
		s.printf("\n")
	}
	s.printf("Overloaded, the preferred client got %s requests/s, at a median of %s.\n", number(before.Rate), millis(before.Median))
	s.printf("%s %s requests/s, at %s%s.\n", s.paint(bold, "With Narthex it got"), number(after.Rate), millis(after.Median), s.times(sum.Ratio))
	if best := sum.Alone.Preferred.Rate; best > 0 {
		s.printf("That is %.0f %% of what it gets when it is alone.\n", 100*after.Rate/best)
	}
	if g := sum.Greedy; g != nil {
		s.printf("Narthex passed %s SYNs of the greedy client and dropped %s.\n", number(float64(g.Passed)), number(float64(g.Dropped)))
	}
	s.printf("The server was neither changed nor restarted.\n")
}

// times says the ratio, if there is one.
func (s *screen) times(ratio float64) string {
	if ratio == 0 {
		return ""
	}
	return ": " + s.paint(bold, number(ratio)+" times as many")
}

// columns are one client's figures, 24 wide.
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
