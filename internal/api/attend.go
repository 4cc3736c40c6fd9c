// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// PathAlive is answered at once by a daemon that runs, whatever else it does.
const PathAlive = "/v1/alive"

// Alive is the answer of PathAlive.
type Alive struct {
	PID int `json:"pid"`
}

// answerSoon is how long a daemon that runs may take to say that it does. With it, a command
// says within two seconds what keeps it waiting.
const answerSoon = 1500 * time.Millisecond

// HungError is the error of a client whose daemon has its socket open and does not answer.
type HungError struct {
	PID   int    // 0: it is not known
	State string // of the process, in a word; empty: it runs, or that is not known
}

func (e *HungError) Error() string {
	who := "the daemon"
	if e.PID != 0 {
		who = fmt.Sprintf("process %d", e.PID)
	}
	if e.State != "" {
		who += ", which is " + e.State + ","
	}
	return who + " does not answer"
}

// stateOf says what keeps a process from running.
func stateOf(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The state follows the name, which may have any character and ends with the last bracket.
	_, after, _ := strings.Cut(string(text[max(strings.LastIndexByte(string(text), ')'), 0):]), " ")
	switch state, _, _ := strings.Cut(after, " "); state {
	case "T":
		return "stopped"
	case "t":
		return "traced by a debugger"
	case "D":
		return "waiting in the kernel"
	case "Z":
		return "dead and not yet reaped"
	}
	return ""
}

// dial connects to the daemon, and notes which process that is.
func (c *Client) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.socket)
	if err != nil {
		return nil, err
	}
	if raw, err := conn.(*net.UnixConn).SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
				c.pid.Store(cred.Pid)
			}
		})
	}
	return conn, nil
}

// ping returns a *HungError if the daemon does not say soon that it runs. Any answer will do.
func (c *Client) ping(ctx context.Context) error {
	soon, cancel := context.WithTimeout(ctx, answerSoon)
	defer cancel()
	req, err := http.NewRequestWithContext(soon, http.MethodGet, "http://narthex"+PathAlive, nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	switch {
	case err == nil:
		return resp.Body.Close()
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, unix.EAGAIN): // EAGAIN: too many wait for it already
		pid := int(c.pid.Load())
		return &HungError{pid, stateOf(pid)}
	}
	return c.explain(err)
}

// send sends a request to a daemon that runs, and gives up when it no longer does. The request
// of a client that was told of a *HungError at once was never sent. The caller calls done when
// it has read the answer.
func (c *Client) send(client *http.Client, req *http.Request) (resp *http.Response, done func(), err error) {
	ctx := req.Context()
	if err := c.ping(ctx); err != nil {
		return nil, nil, err
	}
	attended, cancel := context.WithCancelCause(ctx)
	answered := make(chan struct{})
	go c.attend(attended, cancel, answered)
	done = func() { cancel(nil) }
	req = req.WithContext(attended)
	resp, err = client.Do(req)
	close(answered)
	if err != nil {
		defer done()
		return nil, nil, c.explain(cause(req, err))
	}
	return resp, done, nil
}

// attend looks again and again whether the daemon runs, and says once if what it was asked for
// takes long.
func (c *Client) attend(ctx context.Context, giveUp context.CancelCauseFunc, answered <-chan struct{}) {
	told := false
	tick := time.NewTicker(answerSoon)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := c.ping(ctx); errors.As(err, new(*HungError)) {
			giveUp(err)
			return
		}
		select {
		case <-answered:
			told = true
		default:
		}
		if !told && c.Busy != nil {
			c.Busy(int(c.pid.Load()))
		}
		told = true
	}
}

// cause returns what attend has found if that has ended a request, or else its error.
func cause(req *http.Request, err error) error {
	var hung *HungError
	switch {
	case !errors.As(context.Cause(req.Context()), &hung):
		return err
	case req.Method == http.MethodGet:
		return fmt.Errorf("%w any more", hung)
	}
	return fmt.Errorf("%w any more, and may yet do what was asked of it", hung)
}
