// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// terminal is a pseudo-terminal on which `narthex top` runs.
type terminal struct {
	t      *testing.T
	master *os.File
	out    screen
	errs   screen
	code   chan int
}

// top starts the command on a terminal.
func (w *world) top(columns, rows uint16, args ...string) *terminal {
	w.t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { master.Close(); slave.Close() })
	if err := pty.Setsize(master, &pty.Winsize{Cols: columns, Rows: rows}); err != nil {
		w.t.Fatal(err)
	}
	term := &terminal{t: w.t, master: master, code: make(chan int, 1)}
	go func() { _, _ = io.Copy(&term.out, master) }()
	env := w.env(slave, &term.errs, append([]string{"top"}, args...)...)
	env.Stdin, env.Screen = slave, FullScreen
	go func() { term.code <- Main(w.t.Context(), env) }()
	return term
}

// shows waits until all of the texts were written since the offset, and returns where that is.
// Escape sequences do not count: only what has changed is drawn, in pieces.
func (term *terminal) shows(offset int, wanted ...string) int {
	term.t.Helper()
	var got string
	for range 6000 {
		raw := term.out.String()
		got = ansi.Strip(raw[offset:])
		if !slices.ContainsFunc(wanted, func(want string) bool { return !strings.Contains(got, want) }) {
			return len(raw)
		}
		time.Sleep(5 * time.Millisecond)
	}
	term.t.Fatalf("the terminal does not show %q: %q %s", wanted, got, &term.errs)
	return 0
}

// redraws makes the terminal larger and smaller, so that all is drawn anew, until the texts
// are there.
func (term *terminal) redraws(wanted ...string) {
	term.t.Helper()
	got := ""
	for i := range 300 {
		from := len(term.out.String())
		if err := pty.Setsize(term.master, &pty.Winsize{Cols: uint16(100 + i%2), Rows: 30}); err != nil {
			term.t.Fatal(err)
		}
		// The terminal is not this process's, so that the kernel does not tell it.
		if err := unix.Kill(os.Getpid(), unix.SIGWINCH); err != nil {
			term.t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		got = ansi.Strip(term.out.String()[from:])
		if !slices.ContainsFunc(wanted, func(want string) bool { return !strings.Contains(got, want) }) {
			return
		}
	}
	term.t.Fatalf("the terminal does not show %q: %q %s", wanted, got, &term.errs)
}

func (term *terminal) types(keys string) {
	term.t.Helper()
	if _, err := io.WriteString(term.master, keys); err != nil {
		term.t.Fatal(err)
	}
}

func TestTopWithoutColours(t *testing.T) {
	t.Setenv("TERM", "xterm-256color")
	w := newWorld(t)
	w.busy()
	end := w.run("--policy", w.write("p.yaml", roomPolicy))
	defer end()
	for _, tt := range []struct {
		none string
		want bool
	}{{"", true}, {"1", false}} {
		t.Setenv("NO_COLOR", tt.none)
		term := w.top(80, 24)
		term.shows(0, "gold", "TURNED AWAY")
		term.types("q")
		if code := <-term.code; code != exitOK {
			t.Errorf("%d: %s", code, &term.errs)
		}
		if got := colour.MatchString(term.out.String()); got != tt.want {
			t.Errorf("NO_COLOR=%s: coloured %v", tt.none, got)
		}
	}
}

// colour is a sequence that sets one for the text.
var colour = regexp.MustCompile(`\x1b\[(\d+;)*3[0-8][;m]`)

func TestTopOnATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm-256color")
	w := newWorld(t)
	w.busy()
	policy := w.write("p.yaml", roomPolicy)
	end := w.run("--policy", policy)
	term := w.top(80, 24)
	at := term.shows(0, "narthex default", "SERVICE/CLASS", "web", "4/4", "17", "gold", "rest", "TURNED AWAY", "q quit")
	if !strings.Contains(term.out.String(), "\x1b[?1049h") {
		t.Error("the screen of before is written over")
	}
	term.types("?")
	at = term.shows(at, "this help")
	term.types("?")
	term.shows(at, "SERVICE/CLASS")
	term.redraws("SERVICE/CLASS")

	end()
	term.redraws("NO DAEMON, trying again")
	end = w.run("--policy", policy)
	defer end()
	term.redraws("the daemon answers again", "SERVICE/CLASS")
	term.types("q")
	select {
	case code := <-term.code:
		if code != exitOK || term.errs.String() != "" {
			t.Errorf("q ends with %d: %s", code, &term.errs)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("q does not end it")
	}
	for range 6000 {
		if strings.Contains(term.out.String(), "\x1b[?1049l") {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Error("the screen of before does not come back")
}
