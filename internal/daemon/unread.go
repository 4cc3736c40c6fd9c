// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"narthex/internal/adapt"
	"narthex/internal/netif"
)

// unreadShare is how many times as long as it ran until unread connections are looked for again:
// a look at a thousand of them takes a millisecond.
const unreadShare = 100

// addUnread adds to a sample what the service's servers have not read, if it is time to look and there is
// enough in service to queue.
func (a *agent) addUnread(s *steered, out *adapt.Sample) {
	out.Unread = -1
	if s.place == nil || !s.adaptive || out.InService < 2 || out.At < s.unread {
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begun := a.spent()
	type port struct {
		number uint16
		v6     bool
	}
	var asked []port
	var all netif.Unread
	for _, q := range s.place.accept {
		p := port{q.at.Port(), q.at.Addr().Is6()}
		if slices.Contains(asked, p) {
			continue
		}
		asked = append(asked, p)
		u, err := a.unread(p.number, p.v6)
		if err != nil {
			a.report("read what servers have not read", err)
			s.unread = out.At + locateEvery
			return
		}
		all.Accepted, all.Queued, all.QueuedFor = all.Accepted+u.Accepted, all.Queued+u.Queued, all.QueuedFor+u.QueuedFor
	}
	out.Unread = all.Accepted
	if all.Queued > 0 {
		out.QueuedFor = all.QueuedFor.Seconds() / float64(all.Queued)
	}
	s.unread = out.At + unreadShare*(a.spent()-begun)
}

// threadTime is how long the thread that asks has run.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
