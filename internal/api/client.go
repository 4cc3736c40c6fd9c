// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// answerLimit bounds how long a client waits; the largest policy takes seconds.
const answerLimit = time.Minute

// ErrNoDaemon is wrapped by the error of a client whose socket nobody answers on.
var ErrNoDaemon = errors.New("no daemon answers")

// Client talks to a daemon.
type Client struct {
	// Busy is called once if the daemon runs, and takes long to do what it is asked for; nil: it is not.
	Busy func(pid int)

	socket string
	http   *http.Client
	pid    atomic.Int32 // of the daemon; 0: not known
}

// NewClient returns a client of the daemon that listens on the socket.
func NewClient(socket string) *Client {
	c := &Client{socket: socket}
	c.http = &http.Client{
		Transport: &http.Transport{DialContext: c.dial, DisableKeepAlives: true},
		Timeout:   answerLimit,
	}
	return c
}

// Status asks how things are.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	err = c.do(ctx, http.MethodGet, PathStatus, nil, &s)
	return s, err
}

// Reload replaces the policy.
func (c *Client) Reload(ctx context.Context, req ReloadRequest) (r ReloadResult, err error) {
	err = c.do(ctx, http.MethodPost, PathReload, req, &r)
	return r, err
}

// Set overrides one limit, or ends that.
func (c *Client) Set(ctx context.Context, req SetRequest) (r SetResult, err error) {
	err = c.do(ctx, http.MethodPost, PathSet, req, &r)
	return r, err
}

// Explain asks what would decide a connection.
func (c *Client) Explain(ctx context.Context, req ExplainRequest) (r ExplainResult, err error) {
	err = c.do(ctx, http.MethodPost, PathExplain, req, &r)
	return r, err
}

// Stop asks the daemon to end. It has begun to when this returns.
func (c *Client) Stop(ctx context.Context, req StopRequest) error {
	return c.do(ctx, http.MethodPost, PathStop, req, &struct{}{})
}

func (c *Client) do(ctx context.Context, method, path string, body, answer any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://narthex"+path, bytes.NewReader(encoded))
	if err != nil {
		return err
	}
	resp, done, err := c.send(c.http, req)
	if err != nil {
		return err
	}
	defer done()
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return failure(resp)
	}
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		return fmt.Errorf("read the daemon's answer on %q: %w", c.socket, cause(resp.Request, err))
	}
	return nil
}

// explain turns an error of the connection into a sentence.
func (c *Client) explain(err error) error {
	switch {
	case errors.As(err, new(*HungError)):
		return err
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("%w on %s: start it with `narthex run --policy FILE`", ErrNoDaemon, c.socket)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("no permission to use %s: run this command as root", c.socket)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the daemon on %q runs and has not done in %s what was asked of it, and may yet: see its log, and `narthex status`", c.socket, c.http.Timeout)
	}
	return fmt.Errorf("ask the daemon on %q: %w", c.socket, err)
}

func failure(resp *http.Response) error {
	const longest = 64 << 10
	var told Error
	text, _ := io.ReadAll(io.LimitReader(resp.Body, longest))
	if err := json.Unmarshal(text, &told); err != nil || told.Message == "" {
		return fmt.Errorf("the daemon answered %s", resp.Status)
	}
	return &told
}
