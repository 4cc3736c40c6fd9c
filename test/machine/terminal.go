// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"sync"
	"time"
)

// commandLimit bounds a command; everything is slow without KVM.
const commandLimit = 5 * time.Minute

// mark ends what a command prints, before its exit code.
const mark = "\x01\x02"

// terminal is a shell at a serial line.
type terminal struct {
	name string
	conn net.Conn

	running string // the command that goes on, if one does
	serial  int    // of the last mark that was asked for

	mu      sync.Mutex
	printed strings.Builder // since the last command
	closed  bool            // the machine is gone
}

func newTerminal(name string, conn net.Conn) *terminal {
	t := &terminal{name: name, conn: conn}
	go func() {
		_, _ = io.Copy(t, conn)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.closed = true
	}()
	return t
}

// Write collects what the machine prints.
func (t *terminal) Write(part []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.printed.Write(part)
}

// output is what was printed since the last command began, as it stands there in the end: what is
// printed behind a carriage return is printed over the line.
func (t *terminal) output() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	for line := range strings.Lines(strings.ReplaceAll(t.printed.String(), "\r\n", "\n")) {
		b.WriteString(line[strings.LastIndexByte(line, '\r')+1:])
	}
	return b.String()
}

// begin forgets what was printed and types a text.
func (t *terminal) begin(text string) error {
	t.mu.Lock()
	t.printed.Reset()
	t.mu.Unlock()
	_, err := io.WriteString(t.conn, text)
	return err
}

// setUp makes of a shell that talks to people one that is read by a program.
const setUp = ` stty -echo -onlcr cols 160 rows 48; cd; exec env NO_COLOR=1 LC_ALL=C.UTF-8 bash --norc --noprofile --noediting
PS1= PS2=; unset HISTFILE
`

// prepare waits for the shell that a boot starts, and sets it up.
func (t *terminal) prepare(ctx context.Context) error {
	prompts := func() bool { return strings.HasSuffix(escapes.ReplaceAllString(t.output(), ""), "$ ") }
	if err := until(ctx, prompts); err != nil {
		return err
	}
	t.running = "" // of the boot before
	t.serial++
	if err := t.begin(setUp + t.sayMark()); err != nil {
		return err
	}
	return until(ctx, t.ended)
}

// escapes are what commands send to draw on a terminal, and to give it colours.
var escapes = regexp.MustCompile(`\x1b(\[[0-9;?]*[a-zA-Z]|[()=>][A-Z0-9]?)`)

// run executes a command to its end.
func (t *terminal) run(text string) (output string, code int, err error) {
	if err := t.start(text); err != nil {
		return "", 0, err
	}
	t.running = ""
	if err := t.wait(); err != nil {
		return t.output(), 0, err
	}
	return t.result()
}

// start begins a command. Bash reads all of the group first, so that the command's input is empty.
func (t *terminal) start(text string) error {
	if t.running != "" {
		return fmt.Errorf("in the %s terminal %q goes on", t.name, t.running)
	}
	t.running = text
	t.serial++
	return t.begin("{ " + text + "\n" + t.sayMark() + "}\n")
}

// sayMark is a command that prints the mark.
func (t *terminal) sayMark() string {
	return fmt.Sprintf("printf '\\001\\002%d %%d\\n' $?\n", t.serial)
}

// ended reports whether the mark has been printed.
func (t *terminal) ended() bool {
	_, after, ok := strings.Cut(t.output(), fmt.Sprintf("%s%d ", mark, t.serial))
	return ok && strings.Contains(after, "\n")
}

// wait waits for the mark.
func (t *terminal) wait() error {
	within(commandLimit, func() bool { return t.ended() || t.gone() })
	switch {
	case t.ended():
		return nil
	case t.gone():
		return errors.New("the machine is gone")
	}
	return fmt.Errorf("it does not end in %v", commandLimit)
}

// gone reports whether the machine has been ended.
func (t *terminal) gone() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

// result is what the command that has ended printed, and its exit code.
func (t *terminal) result() (output string, code int, err error) {
	output, after, _ := strings.Cut(t.output(), mark)
	output = escapes.ReplaceAllString(output, "")
	_, err = fmt.Sscanf(after, "%d %d", new(int), &code)
	return output, code, err
}

// interrupt is Ctrl-C. It discards what was typed, and of a group all that follows the command.
// So the mark is asked for until the shell prints it.
func (t *terminal) interrupt() (output string, err error) {
	if t.running == "" {
		return "", fmt.Errorf("nothing goes on in the %s terminal", t.name)
	}
	t.running = ""
	if _, err := io.WriteString(t.conn, "\x03"); err != nil {
		return "", err
	}
	for end := time.Now().Add(commandLimit); !within(5*time.Second, t.ended); {
		if time.Now().After(end) {
			return t.output(), errors.New("it does not end by Ctrl-C")
		}
		if _, err := io.WriteString(t.conn, t.sayMark()); err != nil {
			return "", err
		}
	}
	output, _, err = t.result()
	return output, err
}

// until waits until a condition holds.
func until(ctx context.Context, condition func() bool) error {
	for !condition() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// within waits until a condition holds, and returns false if that takes too long.
func within(d time.Duration, condition func() bool) bool {
	for end := time.Now().Add(d); !condition(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
