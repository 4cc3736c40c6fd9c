// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/policy"
	"narthex/test/daemontest"
)

// fakeNotifier keeps what was said.
type fakeNotifier struct {
	mu    sync.Mutex
	said  []string
	every time.Duration
}

func (n *fakeNotifier) Notify(state string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.said = append(n.said, state)
}

func (n *fakeNotifier) Watchdog() time.Duration { return n.every }

func (n *fakeNotifier) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.said)
}

// machine is where a test's daemons run.
type machine struct {
	t        *testing.T
	dir      string
	kernel   *daemontest.Kernel
	network  *daemontest.Network
	notifier *fakeNotifier
	reload   chan os.Signal
}

func newMachine(t *testing.T, interfaces ...string) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "narthex") // short enough for a socket, unlike t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &machine{
		t: t, dir: dir, kernel: daemontest.NewKernel(), network: daemontest.NewNetwork(interfaces...),
		notifier: &fakeNotifier{}, reload: make(chan os.Signal),
	}
}

const onePolicy = `version: 1
services:
  - {name: web, listen: "*:80"}
connections:
  - {name: everyone, rate: 5/s, burst: 3, per: source}
`

// write makes a policy file.
func (m *machine) write(name, text string) string {
	m.t.Helper()
	path := filepath.Join(m.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
	return path
}

func (m *machine) config(file string) Config {
	return Config{
		Instance: "test", Policy: file, RunDir: m.dir, Socket: SocketPath(m.dir, "test"), Version: "v0",
		Log: slog.New(slog.DiscardHandler), Reload: m.reload, Kernel: m.bpf(), Notifier: m.notifier,
		OpenNetwork: func(string, *slog.Logger) (Network, error) { return m.network, nil },
		MetricsHandler: func(func() (api.Status, error)) http.Handler {
			return http.NotFoundHandler()
		},
	}
}

// bpf is the machine's kernel as the daemon sees it.
func (m *machine) bpf() Kernel {
	return Kernel{
		Open:   func(cfg datapath.Config, _ int) (Datapath, error) { return m.kernel.Open(cfg), nil },
		Remove: m.kernel.Remove,
		Pinned: m.kernel.Pinned,
	}
}

// running is a daemon in the background.
type running struct {
	t      *testing.T
	cancel context.CancelFunc
	ended  chan error
	client *api.Client
}

// start runs a daemon until it answers.
func (m *machine) start(cfg Config) *running {
	m.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{t: m.t, cancel: cancel, ended: make(chan error, 1), client: api.NewClient(cfg.Socket)}
	go func() { r.ended <- Run(ctx, cfg) }()
	m.t.Cleanup(cancel)
	for {
		select {
		case err := <-r.ended:
			m.t.Fatalf("the daemon ended: %v", err)
		case <-time.After(time.Millisecond):
		}
		if _, err := r.client.Status(ctx); err == nil {
			return r
		} else if !errors.Is(err, api.ErrNoDaemon) {
			m.t.Fatal(err)
		}
	}
}

// end stops it as SIGTERM does.
func (r *running) end() {
	r.t.Helper()
	r.cancel()
	if err := <-r.ended; err != nil {
		r.t.Fatal(err)
	}
}

func (r *running) status() api.Status {
	r.t.Helper()
	s, err := r.client.Status(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// eventually waits for what another goroutine does.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 2000 {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("never: %s", what)
}

func targetNames(s datapath.State) []string {
	var names []string
	for _, t := range s.Targets {
		names = append(names, t.Name)
	}
	return names
}

func burstOf(s datapath.State, rule string) uint32 {
	i := slices.IndexFunc(s.Tables.Rules, func(r policy.RuleTable) bool { return r.Name == rule })
	return s.Tables.Rules[i].Burst
}
