// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// patience bounds waits for what must happen soon; it is no figure.
const patience = 30 * time.Second

// commandPatience bounds a command, which may have to compile.
const commandPatience = 3 * time.Minute

// terminal is a shell that lives as long as its page.
type terminal struct {
	scene   *scene
	machine string
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	file    string // the command that is executed now

	foreground *background // what Ctrl-C ends
}

// mark ends the output of a command, before its exit code.
const mark = "\x01\x02"

// terminal returns the terminal of that name, which stays on the machine where it was opened.
func (s *scene) terminal(name, machine string) *terminal {
	s.t.Helper()
	key := name
	if machine == "client" {
		key += " on the client"
	}
	if t := s.terminals[key]; t != nil {
		return t
	}
	t := &terminal{scene: s, machine: machine, file: filepath.Join(s.t.TempDir(), "command")}
	t.cmd = s.inside(machine, "bash", "--norc", "--noprofile", "-c", "cd "+repository+" && exec bash --norc --noprofile 2>&1")
	in, err := t.cmd.StdinPipe()
	if err == nil {
		t.in = in
		var out io.ReadCloser
		if out, err = t.cmd.StdoutPipe(); err == nil {
			t.out = bufio.NewReader(out)
			err = t.cmd.Start()
		}
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.terminals[key] = t
	return t
}

// run executes a command to its end. It returns what it printed on both streams.
func (t *terminal) run(text string) (output string, code int, err error) {
	if err := os.WriteFile(t.file, []byte(text+"\n"), 0o600); err != nil {
		return "", 0, err
	}
	late := time.AfterFunc(commandPatience, func() { _ = syscall.Kill(-t.cmd.Process.Pid, syscall.SIGKILL) })
	defer late.Stop()
	if _, err := fmt.Fprintf(t.in, ". %s </dev/null; printf '\\001\\002%%d\\n' $?\n", t.file); err != nil {
		return "", 0, err
	}
	var b strings.Builder
	for {
		line, err := t.out.ReadString('\n')
		before, after, ended := strings.Cut(line, mark)
		b.WriteString(before)
		if ended {
			_, err = fmt.Sscan(after, &code)
			return b.String(), code, err
		}
		if err != nil {
			return b.String(), 0, fmt.Errorf("the terminal ended, or the command did not: %w", err)
		}
	}
}

func (t *terminal) close() {
	t.in.Close()
	_ = syscall.Kill(-t.cmd.Process.Pid, syscall.SIGKILL)
	_ = t.cmd.Wait()
}

// within waits until a condition holds, and returns false if that takes too long.
func within(d time.Duration, condition func() bool) bool {
	pause := 10 * time.Millisecond
	for end := time.Now().Add(d); !condition(); pause = min(2*pause, 250*time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(pause)
	}
	return true
}
