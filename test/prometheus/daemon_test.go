// SPDX-License-Identifier: Apache-2.0

// Package prometheus tests the metrics, the alert rules and the dashboard with a real
// Prometheus, and measures how long a scrape takes.
package prometheus

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"narthex/internal/api"
	"narthex/internal/daemon"
	"narthex/internal/metrics"
)

// patience bounds waits for what must happen soon; it is no figure.
const patience = time.Minute

type silent struct{}

func (silent) Notify(string)           {}
func (silent) Watchdog() time.Duration { return 0 }

// subject is a daemon that runs in this process.
type subject struct {
	client  *api.Client
	address string // HOST:PORT of its metrics
	dir     string
}

// newSubject runs a daemon until the test ends, and returns when it answers.
func newSubject(tb testing.TB, policy string, cfg daemon.Config) *subject {
	tb.Helper()
	dir, err := os.MkdirTemp("", "narthex") // short enough for a socket, unlike TempDir
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	cfg.Policy = filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(cfg.Policy, []byte(policy), 0o600); err != nil {
		tb.Fatal(err)
	}
	cfg.RunDir, cfg.Socket, cfg.Metrics = dir, daemon.SocketPath(dir, cfg.Instance), freeAddress(tb)
	cfg.Version, cfg.Notifier, cfg.MetricsHandler = "1.2.3", silent{}, metrics.Handler
	var log bytes.Buffer
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- daemon.Run(ctx, cfg) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("the daemon ended: %v\n%s", err, &log)
		}
	})
	s := &subject{client: api.NewClient(cfg.Socket), address: cfg.Metrics, dir: dir}
	eventually(tb, "the daemon answers", func() bool {
		select {
		case err := <-ended:
			ended <- err
			tb.Fatalf("the daemon ended: %v\n%s", err, &log)
		default:
		}
		_, err := s.client.Status(ctx)
		if err != nil && !errors.Is(err, api.ErrNoDaemon) {
			tb.Fatal(err)
		}
		return err == nil
	})
	return s
}

// freeAddress returns an address of this machine on which nobody listens.
func freeAddress(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// eventually waits until a condition holds.
func eventually(tb testing.TB, what string, condition func() bool) {
	tb.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("after %v still not: %s", patience, what)
		}
	}
}

// scrape reads the metrics as Prometheus does, and returns how many bytes they have on the wire.
func (s *subject) scrape(tb testing.TB, into io.Writer) (size int64) {
	tb.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+s.address+"/metrics", nil)
	if err != nil {
		tb.Fatal(err)
	}
	if into == io.Discard { // else the client would ask for it, too, but unpack it
		req.Header.Set("Accept-Encoding", "gzip")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	size, err = io.Copy(into, resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		tb.Fatalf("scrape: %s, %v", resp.Status, err)
	}
	return size
}
