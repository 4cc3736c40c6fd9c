// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"narthex/internal/api"
)

// Kill ends the daemon as a crash does. What it has put in force stays so.
func (n *Narthex) Kill() error {
	if err := n.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill narthex: %w", err)
	}
	<-n.done
	return nil
}

// Restart starts a daemon that adopts what the last one has left, and waits until it is ready.
func (n *Narthex) Restart(ctx context.Context) error {
	return n.launch(ctx, filepath.Join(filepath.Dir(n.socket), "notify.sock"))
}

// Ended reports whether the daemon has ended, and what it wrote to its standard error.
func (n *Narthex) Ended() (said string, ended bool) {
	select {
	case <-n.done:
		return strings.TrimSpace(n.stderr.String()), true
	default:
		return "", false
	}
}

// PID is the process of the daemon.
func (n *Narthex) PID() int { return n.cmd.Process.Pid }

// Set overrides one limit.
func (n *Narthex) Set(ctx context.Context, path, value string) error {
	_, err := api.NewClient(n.socket).Set(ctx, api.SetRequest{Path: path, Value: value})
	return err
}
