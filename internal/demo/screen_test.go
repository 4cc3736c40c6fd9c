// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"narthex/test/nettest"
)

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 3: "3", 3.94: "3.9", 9.96: "10", 12.6: "13", 999: "999", 1000: "1,000", 1234567.8: "1,234,568",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v) is %q, want %q", v, got, want)
		}
	}
	for v, want := range map[float64]string{0: "–", 0.5: "0.5 ms", 9.97: "10 ms", 412.3: "412 ms", 4444: "4,444 ms"} {
		if got := millis(v); got != want {
			t.Errorf("millis(%v) is %q, want %q", v, got, want)
		}
	}
}

// example is a phase with figures as wide as they get.
var example = Phase{Gold: Figures{123456, 9876}, Bronze: &Figures{123456, 9876}}

func TestTableFitsAndIsRedrawnInPlace(t *testing.T) {
	var out bytes.Buffer
	s := &screen{w: &out, live: true}
	s.caption(phaseTexts[without].caption)
	first := out.Len()
	s.row(alone, Phase{Gold: Figures{1, 2}}, 0)
	s.row(without, example, 9*time.Second)
	lines := strings.Count(out.String()[:first], "\n")
	if up := fmt.Sprintf("\x1b[%dA", lines); strings.Count(out.String(), up) != 2 {
		t.Errorf("want %q twice, to draw %d lines in place: %q", up, lines, out.String())
	}
	for line := range strings.Lines(out.String()[first:]) {
		text := strings.NewReplacer("\x1b[2K", "", fmt.Sprintf("\x1b[%dA", lines), "", "\n", "").Replace(line)
		if n := utf8.RuneCountInString(text); n > width {
			t.Errorf("%d columns, want at most %d: %q", n, width, text)
		}
	}
}

func TestLinesOncePerSecond(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out)
	for left := 2 * time.Second; left >= 0; left -= 500 * time.Millisecond {
		s.row(with, example, left)
	}
	want := []string{head1, head2, "2 s", "1 s", "whole phase"}
	got := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(got) != len(want) {
		t.Fatalf("%d lines, want %d: %q", len(got), len(want), got)
	}
	for i := range want {
		if !strings.HasSuffix(got[i], strings.TrimSpace(want[i])) {
			t.Errorf("line %d is %q, want %q at its end", i, got[i], want[i])
		}
	}
}

func TestSummaryWithoutAnyRequestBefore(t *testing.T) {
	var out bytes.Buffer
	var p [phases]Phase
	p[with] = example
	newScreen(&out).summary(summarize(p, status{}))
	if text := out.String(); strings.Contains(text, "times as many") {
		t.Errorf("compares with nothing: %s", text)
	}
}

// terminal opens a pseudo-terminal of the given width.
func terminal(t *testing.T, columns uint16) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	nettest.Check(t, err)
	t.Cleanup(func() { master.Close() })
	nettest.Check(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	nettest.Check(t, err)
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	nettest.Check(t, err)
	t.Cleanup(func() { tty.Close() })
	nettest.Check(t, unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}))
	return tty
}

func TestTerminals(t *testing.T) {
	for _, c := range []struct {
		term, noColor string
		columns       uint16
		live, colour  bool
	}{
		{"xterm", "", 80, true, true},
		{"xterm", "1", 80, true, false},
		{"xterm", "", 79, false, true},
		{"dumb", "", 80, false, false},
	} {
		t.Setenv("TERM", c.term)
		t.Setenv("NO_COLOR", c.noColor)
		s := newScreen(terminal(t, c.columns))
		if s.live != c.live || s.colour != c.colour {
			t.Errorf("%+v: live %v, colour %v", c, s.live, s.colour)
		}
	}
}

// failing is a writer that always fails, such as a closed pipe.
type failing struct{}

var errFailing = errors.New("broken")

func (failing) Write([]byte) (int, error) { return 0, errFailing }

func TestKeepsTheFirstError(t *testing.T) {
	s := newScreen(failing{})
	s.intro()
	if !errors.Is(s.err, errFailing) {
		t.Errorf("got %v, want the writer's error", s.err)
	}
}
