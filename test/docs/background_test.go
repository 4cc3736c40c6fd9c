// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// background is a command that goes on while the page does. It has a terminal, as what is
// looked at by people.
type background struct {
	text string
	cmd  *exec.Cmd
	pty  *os.File
	done chan struct{}

	mu     sync.Mutex
	output strings.Builder
}

// background starts a command where the terminal is.
func (t *terminal) background(text string) (*background, error) {
	dir, _, err := t.run("pwd")
	if err != nil {
		return nil, err
	}
	b := &background{text: text, done: make(chan struct{})}
	b.cmd = t.scene.inside(t.machine, "bash", "--norc", "--noprofile", "-c", "cd "+strings.TrimSpace(dir)+"\n"+text)
	pty, tty, err := openPTY()
	if err != nil {
		return nil, err
	}
	defer tty.Close()
	b.pty = pty
	b.cmd.Stdin, b.cmd.Stdout, b.cmd.Stderr = tty, tty, tty
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	if err := b.cmd.Start(); err != nil {
		pty.Close()
		return nil, err
	}
	go b.read()
	go func() { _ = b.cmd.Wait(); close(b.done) }()
	t.scene.running = append(t.scene.running, b)
	return b, nil
}

// openPTY opens a terminal of 80 columns and 24 rows.
func openPTY() (pty, tty *os.File, err error) {
	pty, err = os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	fd := int(pty.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80})
	}
	if err == nil {
		tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		pty.Close()
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	return pty, tty, nil
}

// read collects what is printed until nobody has the terminal open any more.
func (b *background) read() {
	part := make([]byte, 4096)
	for {
		n, err := b.pty.Read(part)
		b.mu.Lock()
		b.output.Write(part[:n])
		b.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (b *background) printed() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.ReplaceAll(b.output.String(), "\r\n", "\n")
}

func (b *background) ended() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}

// interrupt ends a command by Ctrl-C, and waits for its end.
func (s *scene) interrupt(b *background) error {
	for i, r := range s.running {
		if r == b {
			s.running = append(s.running[:i], s.running[i+1:]...)
			break
		}
	}
	defer b.pty.Close()
	_, _ = b.pty.Write([]byte{3}) // fails if it has ended
	select {
	case <-b.done:
		return nil
	case <-time.After(patience):
		_ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL)
		<-b.done
		return fmt.Errorf("%s does not end by Ctrl-C; it has printed:\n%s", b.text, b.printed())
	}
}
