// SPDX-License-Identifier: Apache-2.0

// Package daemon runs an instance: it puts a policy in force, follows the interfaces,
// answers on the control socket, and takes everything away at the end or leaves it.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/live"
)

// Config says what to run.
type Config struct {
	Instance   string
	Policy     string             // path of the policy file
	NetNS      string             // name or path of a network namespace, empty for that of the process
	RunDir     string             // where the lock is
	Socket     string             // path of the control socket
	Metrics    string             // address for metrics, empty for none
	Hosts      []string           // names under which a reverse proxy asks for the dashboard, in lower case
	ReadGroup  string             // whose members may see everything on the control socket; empty: none
	WriteGroup string             // whose members may change limits as well
	Refusals   string             // folder in which a sample of refusals is kept; empty: none are
	History    string             // folder in which what charts show is kept; empty: in memory alone
	Keep       bool               // leave the policy enforced at the end
	Without    []datapath.Feature // what the kernel is taken not to have, for tests
	Sources    int                // per-source buckets; 0, as with the next three, for the default
	Slots      int                // requests that can wait at once
	SlotSize   int                // bytes of the longest that can
	Flows      int                // connections that can be followed at once
	Version    string
	Log        *slog.Logger

	ShortAddresses bool // of clients whose refusals are kept, prefixes are written

	Reload <-chan os.Signal // each asks for a reload

	Kernel      Kernel
	OpenNetwork func(name string, log *slog.Logger) (Network, error)
	Notifier    Notifier
	// Confine gives up what is needed to start alone, and returns the names of the capabilities
	// that are left; nil: everything is kept.
	Confine func() (held []string, err error)
	// MetricsHandler makes the handler of /metrics.
	MetricsHandler func(status func() (api.Status, error)) http.Handler
	// Dashboard puts a page before it that shows what feed tells of; nil: there is none. It is
	// served on address.
	Dashboard func(feed live.Feed, address string, allowed []string, metrics http.Handler) http.Handler
}

// daemon is a running instance.
type daemon struct {
	cfg     Config
	log     *slog.Logger
	started time.Time
	engine  *engine
	groups  groups
	lock    *Lock
	control net.Listener
	metrics net.Listener // nil if there are no metrics
	stop    chan api.StopRequest
	failed  chan error // a server ended
	servers []*http.Server
	events  *eventHub
	reloads reloads
	live    *liveHub
	held    []string // capabilities; empty: not known

	refusals *refusalLog // nil: none are kept
	charts   *chartLog   // nil: they are kept in memory alone
	past     live.Past
}

// Run puts the policy in force, serves until ctx is done or a client asks to stop, and
// takes it out of force unless it is to be kept. If it cannot start, nothing stays in
// force that was not before.
func Run(ctx context.Context, cfg Config) (err error) {
	if err := CheckInstance(cfg.Instance); err != nil {
		return err
	}
	first, err := loadFirst(cfg)
	if err != nil {
		return err
	}
	lock, err := AcquireLock(cfg.RunDir, cfg.Instance)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	d := &daemon{
		cfg:     cfg,
		lock:    lock,
		log:     cfg.Log.With("instance", cfg.Instance),
		started: time.Now(),
		stop:    make(chan api.StopRequest, 1),
		failed:  make(chan error, 2),
	}
	if err := d.listen(); err != nil {
		return err
	}
	defer d.closeListeners()
	network, err := cfg.OpenNetwork(cfg.NetNS, d.log)
	if err != nil {
		return err
	}
	defer network.Close()
	if err := d.enforce(network, first); err != nil {
		return err
	}
	d.refusals = openRefusals(&cfg, d.log)
	if cfg.Metrics != "" {
		d.charts = openCharts(&cfg, d.log)
	}
	d.confine()
	memory.spend()() // what starting took
	return d.serve(ctx)
}

// listen opens the sockets, before anything is changed that would have to be taken back.
func (d *daemon) listen() (err error) {
	if d.groups.read, err = findGroup("read-group", d.cfg.ReadGroup); err != nil {
		return err
	}
	if d.groups.write, err = findGroup("write-group", d.cfg.WriteGroup); err != nil {
		return err
	}
	if d.cfg.Metrics != "" {
		d.metrics, err = net.Listen("tcp", metricsAddress(d.cfg.Metrics))
		if err != nil {
			return fmt.Errorf("listen for metrics on %q: %w: name another address with --metrics", d.cfg.Metrics, err)
		}
	}
	control, err := listenControl(d.cfg.Socket, d.cfg.Instance, d.groups.openTo())
	if err != nil {
		d.closeListeners()
		return err
	}
	d.control = control
	if d.groups.openTo() != groupless.openTo() {
		d.control = newBounded(control, controlConnections)
	}
	return nil
}

// metricsAddress keeps an address without a host, such as 9100 or :9100, to this machine.
func metricsAddress(s string) string {
	if !strings.Contains(s, ":") {
		s = ":" + s
	}
	if strings.HasPrefix(s, ":") {
		s = "127.0.0.1" + s
	}
	return s
}

func (d *daemon) closeListeners() {
	if d.metrics != nil {
		d.metrics.Close()
	}
	if d.control != nil {
		d.control.Close()
		if d.lock.Held() {
			os.Remove(d.cfg.Socket)
		}
	}
}

// enforce opens the data path and puts the first policy in force. On error a new data
// path is removed; one that was found goes on.
func (d *daemon) enforce(network Network, first *enforceable) error {
	dp, err := d.open(network, datapath.Config{
		Instance: d.cfg.Instance, Log: d.log, Services: len(first.tables.Services),
		Sources: d.cfg.Sources, Slots: d.cfg.Slots, SlotSize: d.cfg.SlotSize, Flows: d.cfg.Flows, Without: d.cfg.Without,
	}, len(first.tables.Rules)+len(first.policy.Requests))
	if err != nil {
		return err
	}
	d.engine = &engine{
		instance: d.cfg.Instance, pinned: d.cfg.Kernel.Pinned, lock: d.lock, log: d.log, dp: dp, net: network, notes: dp.Notes(),
		runDir: d.cfg.RunDir, runFile: first.file,
		applied: make(chan struct{}, 1), expired: make(chan struct{}, 1),
	}
	d.engine.agent = newAgent(d.engine)
	if !outlives(datapath.Root, ancestorRoots()) {
		d.engine.notes = append(slices.Clone(d.engine.notes), fmt.Sprintf(
			"%s is mounted for this process alone: enforcement ends with it; run outside of `ip netns exec` and use --netns", datapath.Root))
	}
	for _, note := range d.engine.notes {
		d.log.Warn(note)
	}
	if err := d.engine.start(first); err != nil {
		return errors.Join(err, d.end(dp.Adopted()))
	}
	now := d.engine.current // perhaps another one: what is to be confirmed, or was taken back
	for _, w := range append(now.warningLines(), d.engine.unenforced()...) {
		d.log.Warn(w)
	}
	if missing := dp.Missing(); len(missing) > 0 {
		d.log.Warn("the kernel lacks features", "missing", datapath.MissingText(missing))
	}
	d.log.Info("in force", "policy", now.file, "hash", shortHash(now.tables.Hash),
		"services", len(now.tables.Services), "rules", len(now.tables.Rules), "request_rules", len(now.policy.Requests), "adopted", dp.Adopted())
	return nil
}

// end lets the data path go and removes it unless it is to stay.
func (d *daemon) end(keep bool) error {
	err := d.engine.dp.Close()
	if keep {
		return err
	}
	removeRecord(d.cfg.RunDir, d.cfg.Instance)
	os.Remove(claimsPath(d.cfg.RunDir, d.cfg.Instance))
	removing := d.engine.net.Do(func() error {
		_, err := d.cfg.Kernel.Remove(d.cfg.Instance)
		return err
	})
	if removing != nil {
		err = errors.Join(err, fmt.Errorf("remove what is attached: %w; run `narthex detach --instance %s`", removing, d.cfg.Instance))
	}
	return err
}
