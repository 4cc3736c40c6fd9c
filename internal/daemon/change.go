// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"narthex/internal/api"
)

// The keys of the journal of the last change.
const (
	keyChangeAt   = "change at" // Unix time in nanoseconds
	keyChangeWhat = "change what"
	keyChangeBy   = "change by"
)

// What changes the policy in force, beside `set` and its path.
const (
	byStart   = "start"
	byReload  = "reload"
	byConfirm = "confirm"
	byRevert  = "revert"
	bySIGHUP  = "SIGHUP"
)

// longestNote is the most that the journal takes as a value, in bytes.
const longestNote = 127

// noLogin is the login user of a process that nobody has logged in for.
const noLogin = ^uint32(0)

// loginOf returns the user that has logged in for a process, who stays the same through su and
// sudo, or noLogin.
func loginOf(pid int32) uint32 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/loginuid", pid))
	if err != nil {
		return noLogin // the kernel keeps no account of logins
	}
	uid, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	if err != nil {
		return noLogin
	}
	return uint32(uid)
}

// userName names a user, and who has logged in as another: root, or alice (as root).
func userName(uid, login uint32) string {
	name := nameOf(uid)
	if login == noLogin || login == uid {
		return name
	}
	return fmt.Sprintf("%s (as %s)", nameOf(login), name)
}

func nameOf(uid uint32) string {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil || u.Username == "" {
		return fmt.Sprintf("uid %d", uid)
	}
	return u.Username
}

// ownName names who has started this process.
func ownName() string { return userName(uint32(os.Geteuid()), loginOf(int32(os.Getpid()))) }

// noteChange keeps what has changed and who did it, for the status of this daemon and the next.
func (e *engine) noteChange(what, by string) {
	if by == bySIGHUP { // whoever sent it
		what, by = bySIGHUP, ""
	}
	e.change = api.Change{At: time.Now(), What: what, By: by}
	short := func(s string) string { return s[:min(len(s), longestNote)] }
	err := errors.Join(
		e.dp.Record(keyChangeAt, strconv.FormatInt(e.change.At.UnixNano(), 10)),
		e.dp.Record(keyChangeWhat, short(what)),
		e.dp.Record(keyChangeBy, short(by)),
	)
	if err != nil {
		e.log.Error("the next daemon will not know who changed the policy", "error", err)
	}
}

// changeIn returns the last change that a daemon before has noted of the same policy.
func changeIn(journal map[string]string, hash string) (api.Change, bool) {
	at, err := strconv.ParseInt(journal[keyChangeAt], 10, 64)
	if err != nil || journal[keyPolicy] != hash {
		return api.Change{}, false
	}
	return api.Change{At: time.Unix(0, at), What: journal[keyChangeWhat], By: journal[keyChangeBy]}, true
}

// policyStatus says which policy is in force, since when, and for how long.
func (e *engine) policyStatus() api.PolicyStatus {
	s := e.current.status()
	if e.change != (api.Change{}) {
		change := e.change
		s.Change = &change
	}
	s.Unconfirmed = e.unconfirmed.status()
	return s
}
