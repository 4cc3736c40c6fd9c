// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"narthex/internal/api"
	"narthex/internal/lab"
)

const (
	readyTimeout   = 30 * time.Second
	commandTimeout = 30 * time.Second
)

// Narthex is a running instance, started as a user would start it.
type Narthex struct {
	Instance string // its name

	Startup time.Duration // from the start of the process until it said that it is ready

	program, socket string
	args            []string // of run
	cpus            []int    // its cores

	cmd    *exec.Cmd
	stderr bytes.Buffer
	done   chan struct{} // closed once the process has been waited for
}

// Start runs narthex on a namespace and waits until it reports that the policy is in
// force, as it would to systemd. It stops with the namespace, or with Stop.
func (b *Bench) Start(ctx context.Context, ns *lab.Namespace, policy string, flags ...string) (*Narthex, error) {
	dir, err := ns.TempDir(b.name)
	if err != nil {
		return nil, err
	}
	b.daemons++
	n := &Narthex{
		program:  b.Program,
		Instance: fmt.Sprintf("%s-%d-%d", b.name, os.Getpid(), b.daemons),
		socket:   filepath.Join(dir, "control.sock"),
		cpus:     b.ClientCPUs, // there it does not disturb the server
	}
	n.args = append([]string{"run", "--policy", policy, "--netns", ns.Name(), "--instance", n.Instance, "--socket", n.socket}, flags...)
	ns.OnClose(n.Stop)
	if err := n.launch(ctx, filepath.Join(dir, "notify.sock")); err != nil {
		return nil, errors.Join(err, n.Stop())
	}
	return n, nil
}

// launch starts the process and waits until it is ready.
func (n *Narthex) launch(ctx context.Context, socket string) error {
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer os.Remove(socket)
	defer notify.Close()
	cmd, done := exec.Command(n.program, n.args...), make(chan struct{})
	n.stderr.Reset()
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+notify.LocalAddr().String())
	cmd.Stderr = &n.stderr
	cmd.WaitDelay = time.Second
	// Ctrl-C on the terminal is for this program, which then stops narthex in its turn.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	begun := time.Now()
	if err := lab.Pinned(n.cpus, cmd.Start); err != nil {
		return fmt.Errorf("start narthex: %w", err)
	}
	n.cmd, n.done = cmd, done
	go func() {
		_ = cmd.Wait() // what it wrote says more than its exit status
		close(done)
	}()
	if err := n.awaitReady(ctx, notify); err != nil {
		return err
	}
	n.Startup = time.Since(begun)
	return nil
}

// awaitReady waits for READY=1 on the socket of sd_notify(3).
func (n *Narthex) awaitReady(ctx context.Context, notify *net.UnixConn) error {
	buf := make([]byte, 4096)
	deadline := time.Now().Add(readyTimeout)
	for {
		if err := notify.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			return err
		}
		got, err := notify.Read(buf)
		if err == nil && bytes.Contains(buf[:got], []byte("READY=1")) {
			return nil
		}
		select {
		case <-n.done:
			return fmt.Errorf("start narthex: it ended: %s", strings.TrimSpace(n.stderr.String()))
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("start narthex: not ready after %v", readyTimeout)
		}
	}
}

// Stop ends narthex and removes its every trace. Stopping twice is no error.
func (n *Narthex) Stop() error {
	var ended error
	if n.cmd != nil {
		ended = lab.Terminate(n.cmd.Process, n.done)
	}
	// Whatever the context says, this must still be done.
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	_, err := n.run(ctx, "detach")
	if err != nil && strings.Contains(err.Error(), "there is no instance") {
		err = nil // it has left nothing
	}
	return errors.Join(ended, err)
}

// Status reads the counters.
func (n *Narthex) Status(ctx context.Context) (api.Status, error) {
	return api.NewClient(n.socket).Status(ctx)
}

// Rule finds a rule's counters.
func Rule(s api.Status, name string) (api.RuleStatus, error) {
	for _, r := range s.Rules {
		if r.Name == name {
			return r, nil
		}
	}
	return api.RuleStatus{}, fmt.Errorf("status: no rule %q", name)
}

// Reload puts a policy in force and returns how long the command took.
func (n *Narthex) Reload(ctx context.Context, policy string) (time.Duration, error) {
	begun := time.Now()
	_, err := n.run(ctx, "reload", policy)
	return time.Since(begun), err
}

// Swap puts a policy in force as the command reload does, but from this process, as Status
// reads the counters. To start a process is to fork, and the fork holds the clients' sockets
// until it is the other program: for connections that were closed meanwhile events still
// come.
func (n *Narthex) Swap(ctx context.Context, policy string) (time.Duration, error) {
	begun := time.Now()
	_, err := api.NewClient(n.socket).Reload(ctx, api.ReloadRequest{File: policy})
	return time.Since(begun), err
}

// run runs one of narthex's commands on the instance and returns what it printed.
func (n *Narthex) run(ctx context.Context, name string, args ...string) ([]byte, error) {
	return Command(ctx, n.program, append([]string{name, "--instance", n.Instance, "--socket", n.socket}, args...)...)
}

// Command runs a program and adds to an error what it wrote to its standard error.
func Command(ctx context.Context, program string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("narthex %s: %w: %s", args[0], err, bytes.TrimSpace(exit.Stderr))
	}
	return out, err
}
