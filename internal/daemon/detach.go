// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"narthex/internal/daemon/api"
)

const (
	// endLimit bounds how long Detach waits for a daemon that it has asked to stop.
	endLimit = 30 * time.Second
	// settleLimit bounds how long it waits for one that does not answer, which may be
	// about to end or to start.
	settleLimit = 2 * time.Second
	lockPoll    = 50 * time.Millisecond
)

// Detach takes an instance out of force, with or without a daemon, and reports whether
// there was anything. When it returns without error nothing is attached.
func Detach(ctx context.Context, kernel Kernel, runDir, instance, socket string) (found bool, err error) {
	stopped, patience := true, endLimit
	if err := api.NewClient(socket).Stop(ctx, api.StopRequest{}); errors.Is(err, api.ErrNoDaemon) {
		stopped, patience = false, settleLimit
	} else if err != nil {
		return false, err
	}
	lock, err := awaitLock(ctx, runDir, instance, patience)
	var busy *BusyError
	if errors.As(err, &busy) {
		return stopped, stubborn(busy, stopped, socket)
	}
	if err != nil {
		return stopped, err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	found, err = kernel.Remove(instance)
	if err != nil {
		return found || stopped, fmt.Errorf("remove instance %q: %w", instance, err)
	}
	removeRecord(runDir, instance)
	removeTemporary(socket, instance)
	if checkReplaceable(socket) == nil {
		os.Remove(socket)
	}
	return found || stopped, nil
}

func stubborn(busy *BusyError, stopped bool, socket string) error {
	if stopped {
		return fmt.Errorf("process %d was asked to stop and does not end: kill it and run `narthex detach` again", busy.PID)
	}
	return fmt.Errorf("process %d holds instance %q and does not answer on %s: name its socket with --socket, or stop it and run `narthex detach` again",
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
