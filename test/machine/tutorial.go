// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"narthex/test/docs/blocks"
)

const tutorialFile = "docs/tutorial.md"

// patience bounds waits for what the tutorial shows.
const patience = time.Minute

// busy is said where the daemon takes more than a moment, as everything does without KVM.
var busy = regexp.MustCompile(`(?m)^process \d+ runs and is busy: .*\n`)

// tutorial types the tutorial's commands and compares what they print with what it shows.
func (s *story) tutorial() error {
	text, err := os.ReadFile(tutorialFile)
	if err != nil {
		return err
	}
	list, err := blocks.Read(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", tutorialFile, err)
	}
	for i := range list {
		b := &list[i]
		if b.Has("skip") || b.Has("path") || strings.Contains(b.Text(), "make install") {
			continue // nginx and our package are installed; the short way is another one
		}
		if err := s.block(b); err != nil {
			return fmt.Errorf("%s:%d: %w", tutorialFile, b.Line, err)
		}
	}
	return nil
}

// block does what a block of the tutorial says.
func (s *story) block(b *blocks.Block) error {
	if path, ok := b.Words["file"]; ok {
		s.do(fmt.Sprintf("sudo tee %s >/dev/null <<'END'\n%sEND", path, b.Text()))
		return nil
	}
	commands, err := blocks.Commands(b)
	if err != nil {
		return err
	}
	for i, c := range commands {
		if err := s.step(b, c, i == len(commands)-1); err != nil {
			return fmt.Errorf("%s: %w", c.Text, err)
		}
	}
	return nil
}

// step executes one command of a block.
func (s *story) step(b *blocks.Block, c blocks.Command, last bool) error {
	t := s.terminal(b.Words["terminal"])
	switch {
	case c.Text == blocks.Interrupt:
		return s.interrupt(t)
	case strings.Contains(c.Text, "narthex run "):
		return s.goOn(t, c.Text, func(printed string) bool { return strings.Contains(printed, "in force") })
	case last && b.Has("background"):
		return s.goOn(t, c.Text, func(printed string) bool { return blocks.Begins(c.Shown, printed, b.Has("numbers")) })
	case last && b.Has("endless"):
		if err := s.goOn(t, c.Text, func(printed string) bool { return printed != "" }); err != nil {
			return err
		}
		return s.interrupt(t)
	}
	want := 0
	if last && b.Has("exit") {
		want, _ = strconv.Atoi(b.Words["exit"])
	}
	var output string
	var code int
	var err error
	as := func() bool {
		output, code, err = t.run(c.Text)
		shown := busy.ReplaceAllString(output, "")
		return err != nil || len(c.Shown) == 0 || blocks.Matches(c.Shown, shown, b.Has("numbers"))
	}
	s.command(t, c.Text)
	matches := as()
	if !matches && last && b.Has("retry") {
		matches = within(patience, as)
	}
	s.printed(output)
	s.check(code == want, "%s: exit code %d, not %d", c.Text, code, want)
	// Figures are those of another machine, and so is what follows from them.
	s.check(matches || b.Has("numbers"), "%s:%d shows something else:\n%s", tutorialFile, b.Line, strings.Join(c.Shown, "\n"))
	return err
}

// goOn starts a command and waits until it has printed what it should.
func (s *story) goOn(t *terminal, text string, as func(printed string) bool) error {
	s.command(t, text)
	if err := t.start(text); err != nil {
		return err
	}
	within(patience, func() bool { return as(t.output()) || t.ended() })
	if !as(t.output()) {
		return fmt.Errorf("in %v it has printed:\n%s", patience, t.output())
	}
	return nil
}

// interrupt ends by Ctrl-C what goes on in a terminal, and tells what it has printed.
func (s *story) interrupt(t *terminal) error {
	drawn := strings.Contains(t.output(), "\x1b[")
	output, err := t.interrupt()
	switch {
	case t.name != terminalNames[0]:
		s.tell("%s terminal ^C\n", t.name)
	default:
		s.tell("^C\n")
	}
	if !drawn {
		s.printed(output)
	}
	return err
}
