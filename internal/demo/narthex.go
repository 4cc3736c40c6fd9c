// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"narthex/internal/datapath"
	"narthex/internal/lab"
)

// Timeouts of the narthex commands.
const (
	readyTimeout  = 10 * time.Second
	detachTimeout = 10 * time.Second
)

// narthex is the program under demonstration, as a user would start it.
type narthex struct {
	executable, instance, socket, policy, netns string
	cpus                                        []int

	cmd    *exec.Cmd
	stderr bytes.Buffer
	done   chan struct{} // closed once the process has been waited for
}

// newNarthex prepares narthex to protect a namespace. Its files go into dir.
func newNarthex(executable, dir, netns string, cpus []int) (*narthex, error) {
	n := &narthex{
		executable: executable,
		instance:   fmt.Sprintf("demo-%d", os.Getpid()),
		socket:     filepath.Join(dir, "narthex.sock"),
		policy:     filepath.Join(dir, "policy.yaml"),
		netns:      netns,
		cpus:       cpus,
	}
	return n, os.WriteFile(n.policy, []byte(policyText), 0o600)
}

// leftover matches the instances of demos; the group is the demo's process.
var leftover = regexp.MustCompile(`^demo-(\d+)$`)

// detachLeftovers removes the instances below root of demos that were killed together
// with their narthex. Their namespaces are package lab's to remove.
func (n *narthex) detachLeftovers(ctx context.Context, root string) error {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // no instance has ever been here
	}
	for _, e := range entries {
		m := leftover.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		if pid, convErr := strconv.Atoi(m[1]); convErr != nil || !errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			continue
		}
		old := narthex{executable: n.executable, instance: e.Name(), socket: n.socket}
		err = errors.Join(err, old.detach(ctx))
	}
	return err
}

// start starts narthex and waits until it enforces the policy.
func (n *narthex) start(ctx context.Context) error {
	if err := n.detachLeftovers(ctx, datapath.Root); err != nil {
		return err
	}
	n.cmd = exec.Command(n.executable, "run",
		"--policy", n.policy, "--netns", n.netns, "--instance", n.instance, "--socket", n.socket)
	n.cmd.Stderr = &n.stderr
	n.cmd.WaitDelay = time.Second // not for others that inherited its stderr
	// Ctrl-C on the terminal is for the demo, which then stops narthex in its turn.
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := lab.Pinned(n.cpus, n.cmd.Start); err != nil {
		return fmt.Errorf("start narthex: %w", err)
	}
	n.done = make(chan struct{})
	go func() {
		_ = n.cmd.Wait() // what it wrote says more than its exit status
		close(n.done)
	}()
	return n.await(ctx)
}

// await waits until `narthex status` says that the policy is enforced.
func (n *narthex) await(ctx context.Context) error {
	timeout := time.After(readyTimeout)
	for {
		_, err := n.status(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-n.done:
			return fmt.Errorf("start narthex: it ended: %s", strings.TrimSpace(n.stderr.String()))
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout:
			return fmt.Errorf("start narthex: not enforcing after %v: %w", readyTimeout, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// status is what the demo reads of `narthex status --json`.
type status struct {
	Services []struct {
		Classes []struct {
			Held uint64 `json:"held"`
		} `json:"classes"`
	} `json:"services"`
}

// status asks narthex for its counters. It is an error if it does not enforce a policy.
func (n *narthex) status(ctx context.Context) (status, error) {
	var s status
	out, err := n.command(ctx, "status", "--json").Output()
	if err != nil {
		return s, fmt.Errorf("ask narthex for its status: %w", withStderr(err))
	}
	if err := json.Unmarshal(out, &s); err != nil {
		return s, fmt.Errorf("read the status of narthex: %w", err)
	}
	return s, nil
}

// stop ends narthex, if it was started, and removes its every trace.
func (n *narthex) stop() error {
	if n.done == nil {
		return nil
	}
	err := lab.Terminate(n.cmd.Process, n.done)
	// Whatever ended the demo, this must still be done.
	ctx, cancel := context.WithTimeout(context.Background(), detachTimeout)
	defer cancel()
	return errors.Join(err, n.detach(ctx))
}

// detach removes the instance, if there is still something of it.
func (n *narthex) detach(ctx context.Context) error {
	_, err := n.command(ctx, "detach").Output()
	if err = withStderr(err); err != nil && !strings.Contains(err.Error(), "there is no instance") {
		return fmt.Errorf("detach instance %q: %w", n.instance, err)
	}
	return nil
}

// command is one of narthex's commands to the demo's instance.
func (n *narthex) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	args = append([]string{name, "--instance", n.instance, "--socket", n.socket}, args...)
	cmd := exec.CommandContext(ctx, n.executable, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	return cmd
}

// withStderr adds what a command wrote to its standard error.
func withStderr(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	return err
}
