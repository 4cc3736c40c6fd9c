// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"strings"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// Notifier tells the service manager how things are.
type Notifier interface {
	Notify(state string)
	// Watchdog is how often the service manager wants a sign of life, 0 for never.
	Watchdog() time.Duration
}

// Systemd is the Notifier of a unit of type notify. Elsewhere it does nothing.
type Systemd struct{}

// Notify sends lines such as READY=1.
func (Systemd) Notify(state string) {
	_, _ = sd.SdNotify(false, state) // a manager that does not listen needs no telling
}

// Watchdog is WatchdogSec of the unit.
func (Systemd) Watchdog() time.Duration {
	every, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		return 0
	}
	return every
}

func ready(status string) string {
	return sd.SdNotifyReady + "\nSTATUS=" + oneLine(status)
}

// reloading carries the time since boot, by which systemd tells this reload from one
// before its request.
func reloading() (string, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return "", fmt.Errorf("read monotonic clock: %w", err)
	}
	return fmt.Sprintf("%s\nMONOTONIC_USEC=%d", sd.SdNotifyReloading, now.Nano()/int64(time.Microsecond)), nil
}

func oneLine(s string) string { return strings.Join(strings.Split(s, "\n"), "; ") }
