// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// story is what happens on the machine: it executes commands, tells of them, and collects what
// is not as it should be.
type story struct {
	m      *machine
	told   bytes.Buffer
	faults []string
	err    error // why commands are not executed any more
}

// tell adds to the transcript.
func (s *story) tell(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.told.WriteString(text)
	_, _ = os.Stdout.WriteString(text)
}

// chapter begins a part of the transcript.
func (s *story) chapter(title string) { s.tell("\n# %s\n\n", title) }

// fault notes what is not as it should be. The story goes on.
func (s *story) fault(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.faults = append(s.faults, text)
	s.tell("!! %s\n", text)
}

// check notes a fault unless a condition holds.
func (s *story) check(holds bool, format string, args ...any) {
	if !holds && s.err == nil {
		s.fault(format, args...)
	}
}

// terminal returns the one of a name; none is the first.
func (s *story) terminal(name string) *terminal {
	for _, t := range s.m.terminals {
		if t.name == name {
			return t
		}
	}
	return s.m.terminals[0]
}

// command tells that a command is typed.
func (s *story) command(t *terminal, text string) {
	prompt := "$ "
	if t.name != terminalNames[0] {
		prompt = t.name + " terminal $ "
	}
	s.tell("%s%s\n", prompt, text)
}

// printed tells what a command printed.
func (s *story) printed(output string) {
	if output = strings.TrimRight(output, "\n"); output != "" {
		s.tell("%s\n", output)
	}
}

// try executes a command in the first terminal and returns what it printed.
func (s *story) try(text string) (output string, code int) {
	if s.err != nil {
		return "", 0
	}
	t := s.terminal("")
	s.command(t, text)
	output, code, err := t.run(text)
	s.printed(output)
	if err != nil {
		s.err = fmt.Errorf("%s: %w", text, err)
	}
	return output, code
}

// settle waits until systemd has started everything, and tells how that went.
func (s *story) settle() {
	_, _, s.err = s.terminal("").run("until [ -e /run/dbus/system_bus_socket ]; do sleep 1; done")
	s.do("systemctl is-system-running --wait")
}

// do executes a command that must succeed.
func (s *story) do(text string) (output string) {
	output, code := s.try(text)
	s.check(code == 0, "%s: exit code %d", text, code)
	return output
}
