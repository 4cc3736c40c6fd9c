// SPDX-License-Identifier: Apache-2.0

// Package packaging tests what is installed: the package, the units, the image, and that the
// daemon needs no more privileges than they say.
package packaging

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"narthex/internal/api"
	"narthex/internal/lab"
	"narthex/internal/lab/reexec"
	"narthex/test/nettest"
)

// binary is the command, built as for a release.
var binary string

const repository = "../.."

func TestMain(m *testing.M) {
	reexec.Main()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("/tmp", "narthex-packaging-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "narthex")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", binary, "narthex/cmd/narthex")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	build.Stderr = os.Stderr
	// Daemons without root's privileges run it, too.
	if err := errors.Join(build.Run(), os.Chmod(dir, 0o755)); err != nil {
		return 1
	}
	return m.Run()
}

// patience bounds waits for what must happen soon; it is no figure.
const patience = 60 * time.Second

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v still not: %s", patience, what)
		}
	}
}

// open makes a folder that every user may write to.
func open(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "narthex-packaging-")
	nettest.Check(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	nettest.Check(t, os.Chmod(dir, 0o777))
	return dir
}

// write writes a file and returns its path.
func write(t *testing.T, path, text string) string {
	t.Helper()
	nettest.Check(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// output runs a command, which must succeed.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = repository
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

// daemon is a daemon under test.
type daemon struct {
	t      *testing.T
	cmd    *exec.Cmd
	socket string
	log    bytes.Buffer
	done   chan struct{}
}

// start starts a command that becomes a daemon, and waits until it enforces.
func start(t *testing.T, ns *lab.Namespace, socket string, command ...string) *daemon {
	t.Helper()
	d := &daemon{t: t, socket: socket, done: make(chan struct{})}
	cmd := ns.Command(command[0], command[1:]...)
	d.cmd = cmd.Cmd
	d.cmd.Stderr = &d.log
	nettest.Check(t, cmd.Start())
	go func() {
		_ = d.cmd.Wait()
		close(d.done)
	}()
	t.Cleanup(func() {
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
		<-d.done
		if t.Failed() {
			t.Logf("log of the daemon:\n%s", d.log.String())
		}
	})
	eventually(t, "the daemon answers", func() bool {
		select {
		case <-d.done:
			t.Fatalf("the daemon ended:\n%s", d.log.String())
		default:
		}
		s, err := d.ask()
		return err == nil && s.PID != 0
	})
	return d
}

func (d *daemon) ask() (api.Status, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return api.NewClient(d.socket).Status(ctx)
}

func (d *daemon) status() api.Status {
	d.t.Helper()
	s, err := d.ask()
	nettest.Check(d.t, err)
	return s
}

// interfaces returns where the first service is policed, in order.
func (d *daemon) interfaces() (names []string) {
	d.t.Helper()
	for _, i := range d.status().Services[0].Interfaces {
		names = append(names, i.Name)
	}
	slices.Sort(names)
	return names
}

// code waits for the daemon's end and returns its exit code.
func (d *daemon) code() int {
	d.t.Helper()
	select {
	case <-d.done:
	case <-time.After(patience):
		d.t.Fatal("the daemon does not end")
	}
	return d.cmd.ProcessState.ExitCode()
}
