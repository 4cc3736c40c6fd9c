// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"narthex/internal/api"
)

const (
	// endLimit bounds how long Detach waits for a daemon that it has asked to stop.
	endLimit = 30 * time.Second
	// settleLimit bounds how long it waits for one that does not answer, which may be
	// about to end or to start.
	settleLimit = 2 * time.Second
	lockPoll    = 50 * time.Millisecond
)

// Detachment is what to take out of force.
type Detachment struct {
	Instance string
	RunDir   string
	Client   *api.Client
	Socket   string           // that the client talks to
	Force    bool             // also if a daemon hangs, which is not waited for
	Waiting  func(holder int) // called if the daemon takes long to end
}

// Detach takes an instance out of force, with or without a daemon, and reports whether
// there was anything. When it returns without error nothing is attached.
func Detach(ctx context.Context, kernel Kernel, what Detachment) (found bool, err error) {
	stopped, patience := true, endLimit
	switch err := what.Client.Stop(ctx, api.StopRequest{}); {
	case errors.Is(err, api.ErrNoDaemon):
		stopped, patience = false, settleLimit
	case err != nil && what.Force && errors.As(err, new(*api.HungError)):
		stopped, patience = false, 0
	case err != nil:
		return false, err
	}
	lock, err := what.lock(ctx, stopped, patience)
	if err != nil {
		return stopped, err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	found, err = kernel.Remove(what.Instance)
	if err != nil {
		return found || stopped, fmt.Errorf("remove instance %q: %w", what.Instance, err)
	}
	removeRecord(what.RunDir, what.Instance)
	os.Remove(claimsPath(what.RunDir, what.Instance))
	removeTemporary(what.Socket, what.Instance)
	if what.Force || checkReplaceable(what.Socket) == nil {
		removeSocket(what.Socket)
	}
	return found || stopped, nil
}

// lock waits for the end of a daemon that was asked to stop, or takes its place.
func (what *Detachment) lock(ctx context.Context, stopped bool, patience time.Duration) (*Lock, error) {
	if what.Force {
		patience = min(patience, settleLimit)
	}
	lock, err := awaitLock(ctx, what.RunDir, what.Instance, min(patience, settleLimit))
	var busy *BusyError
	if errors.As(err, &busy) && patience > settleLimit {
		what.Waiting(busy.PID)
		lock, err = awaitLock(ctx, what.RunDir, what.Instance, patience-settleLimit)
	}
	switch {
	case !errors.As(err, &busy):
		return lock, err
	case what.Force:
		return SeizeLock(what.RunDir, what.Instance)
	}
	return nil, stubborn(busy, stopped, what.Socket)
}

// removeSocket removes a socket, and nothing else that is there.
func removeSocket(path string) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
		os.Remove(path)
	}
}

func stubborn(busy *BusyError, stopped bool, socket string) error {
	if stopped {
		return fmt.Errorf("process %d was asked to stop and does not end: run `narthex detach --force`, which does not wait for it", busy.PID)
	}
	return fmt.Errorf("process %d holds instance %q and does not answer on %s: name its socket with --socket, or run `narthex detach --force`, which does without it",
		busy.PID, busy.Instance, socket)
}

func awaitLock(ctx context.Context, runDir, instance string, patience time.Duration) (*Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		lock, err := AcquireLock(runDir, instance)
		if err == nil || !errors.As(err, new(*BusyError)) {
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(lockPoll):
		}
	}
}
