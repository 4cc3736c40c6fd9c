// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"narthex/internal/api"
	"narthex/internal/live"
	"narthex/internal/netif"
)

const (
	// retryAfter is when to attach again what could not be attached.
	retryAfter = 5 * time.Second
	// sweepEvery is how often connections are forgotten that ended unseen.
	sweepEvery = 30 * time.Second
	// finishLimit bounds how long requests on the sockets may hold up the end.
	finishLimit = 5 * time.Second
	// clearLimit bounds how long held requests are released one by one at the end; what is
	// left then is answered as rejected.
	clearLimit = 2 * time.Second
)

// serve answers clients and follows changes until it is time to end. If it ends by a fault
// of its own, the policy stays in force, as it would had it been killed.
func (d *daemon) serve(ctx context.Context) error {
	following, cancel := context.WithCancel(ctx)
	defer cancel()
	changed := make(chan netif.Snapshot)
	go d.engine.net.Run(following, changed)
	var beating sync.WaitGroup
	d.engine.adapt(following, &beating)
	beating.Go(func() { d.engine.pulse().run(following) })
	beating.Go(func() { d.engine.followLists(following) })
	d.startServers()
	if d.metrics != nil && d.cfg.Dashboard != nil {
		beating.Go(func() { d.remember(following.Done()) })
	}
	if d.refusals != nil {
		defer d.refusals.close()
		beating.Go(func() { d.refusals.record(following, d.events) })
	}
	d.cfg.Notifier.Notify(ready(d.summary()))
	keep, err := d.loop(ctx, changed)
	d.cfg.Notifier.Notify(sd.SdNotifyStopping)
	cancel()
	d.stopServers()
	beating.Wait()
	d.engine.mu.Lock()
	d.engine.endTrial("the daemon ends")
	d.engine.mu.Unlock()
	if !d.lock.Held() { // it was taken while this process hung on its way here
		return errors.Join(err, &TakenError{d.cfg.Instance}, d.end(true))
	}
	if !keep {
		d.clear()
	}
	return errors.Join(err, d.end(keep))
}

// clear lets nobody wait for what will not come. If that fails, the instance goes
// nevertheless: what is held is lost, and its clients send it again.
func (d *daemon) clear() {
	if err := d.engine.clear(clearLimit); err != nil {
		d.log.Error("cannot empty the waiting rooms", "error", err)
	}
}

// loop runs until it is time to end, and says whether to leave the policy in force.
func (d *daemon) loop(ctx context.Context, changed <-chan netif.Snapshot) (keep bool, err error) {
	watchdog := d.watchdog()
	retry := time.NewTicker(retryAfter)
	defer retry.Stop()
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	continued := make(chan os.Signal, 1) // after it was stopped
	signal.Notify(continued, unix.SIGCONT)
	defer signal.Stop(continued)
	for {
		if !d.lock.Held() {
			return true, nil
		}
		select {
		case <-continued:
			d.log.Warn("going on after having been stopped: what is in force was left to itself")
		case <-ctx.Done():
			d.log.Info("stopping", "keep", d.cfg.Keep)
			return d.cfg.Keep, nil
		case req := <-d.stop:
			d.log.Info("stopping on request", "keep", req.Keep)
			return req.Keep, nil
		case err := <-d.failed:
			return true, err
		case <-d.cfg.Reload:
			// The error was logged; the old policy is in force.
			_, _ = d.reload(api.ReloadRequest{}, bySIGHUP)
		case <-d.engine.expired:
			d.expire()
		case snap := <-changed:
			if err := d.engine.refresh(snap); err != nil {
				d.log.Error("cannot police all interfaces, will try again", "error", err)
			}
			if err := d.checkGone(); err != nil {
				return false, err
			}
		case <-retry.C:
			if err := d.engine.retry(); err != nil {
				d.log.Debug("tried again in vain", "error", err)
			}
			if err := d.checkGone(); err != nil {
				return false, err
			}
			d.expire() // if it failed before
		case <-sweep.C:
			if err := d.engine.sweep(); err != nil {
				d.log.Error("cannot forget connections that have ended", "error", err)
			}
			if err := d.engine.lookForDetours(); err != nil {
				d.log.Error("cannot tell whether connections go by", "error", err)
			}
		case <-watchdog:
			d.signOfLife()
		}
	}
}

// watchdog ticks twice as often as the service manager wants to hear of the daemon, or
// never.
func (d *daemon) watchdog() <-chan time.Time {
	every := d.cfg.Notifier.Watchdog()
	if every <= 0 {
		return nil
	}
	return time.Tick(every / 2)
}

// signOfLife is sent from the main loop, and only while the maps can be read.
func (d *daemon) signOfLife() {
	if err := d.engine.alive(); err != nil {
		d.log.Error("cannot read the maps", "error", err)
		return
	}
	d.cfg.Notifier.Notify(sd.SdNotifyWatchdog)
}

// reload is what SIGHUP and clients ask for.
func (d *daemon) reload(req api.ReloadRequest, by string) (api.ReloadResult, error) {
	if note, err := reloading(); err == nil {
		d.cfg.Notifier.Notify(note)
	}
	result, err := d.engine.reload(req, by)
	d.reloads.note(err)
	if err != nil {
		d.log.Error("the old policy stays in force", "error", err)
		d.cfg.Notifier.Notify(ready("reload failed, the old policy stays in force: " + err.Error()))
		return result, err
	}
	for _, w := range result.Warnings {
		d.log.Warn(w)
	}
	about := []any{"policy", result.Policy.File, "hash", shortHash(result.Policy.Hash), "by", by}
	if len(result.Ended) > 0 {
		about = append(about, "ended_overrides", result.Ended)
	}
	d.log.Info("reloaded", about...)
	d.cfg.Notifier.Notify(ready(d.summary()))
	return result, nil
}

// requestStop makes the main loop end; the answer is sent before.
func (d *daemon) requestStop(req api.StopRequest) (struct{}, error) {
	select {
	case d.stop <- req:
	default: // it is ending
	}
	return struct{}{}, nil
}

// summary is a line for the service manager.
func (d *daemon) summary() string {
	d.engine.mu.Lock()
	defer d.engine.mu.Unlock()
	var on []string
	for _, a := range d.engine.attachments {
		on = append(on, a.Name)
	}
	if len(on) == 0 {
		return "waiting for an interface to police"
	}
	slices.Sort(on)
	return "policing " + strings.Join(on, ", ")
}

func (d *daemon) startServers() {
	d.events = newEventHub(d.engine.dp.Events, d.log)
	d.live = newLiveHub(d.status, d.events, d.log)
	control := newServer(d.api(), d.log)
	control.RegisterOnShutdown(d.events.stop)
	control.RegisterOnShutdown(d.live.stop)
	control.RegisterOnShutdown(d.engine.agent.end)
	control.ConnContext = d.groups.withPeer
	d.startServer(control, d.control)
	if d.metrics != nil {
		handler := d.cfg.MetricsHandler(d.status)
		if d.cfg.Dashboard != nil {
			handler = d.cfg.Dashboard(live.Feed{Watch: d.watch, Past: d.pastOf}, metricsAddress(d.cfg.Metrics), d.cfg.Hosts, handler)
		}
		d.startServer(newMetricsServer(d.withHealth(handler), d.log), newBounded(d.metrics, metricsConnections))
		d.log.Info("serving metrics", "address", d.metrics.Addr().String())
	}
}

// withHealth serves what orchestrators and load balancers ask beside metrics: /healthz, that the daemon runs;
// /readyz, that a policy is enforced. By whatever name they ask for it: there is nothing to be read.
func (d *daemon) withHealth(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", next)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !d.engine.enforcing() {
			http.Error(w, "no interface is policed", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

func (d *daemon) startServer(server *http.Server, listener net.Listener) {
	d.servers = append(d.servers, server)
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			d.failed <- fmt.Errorf("serve on %s: %w", listener.Addr(), err)
		}
	}()
}

func (d *daemon) stopServers() {
	ctx, cancel := context.WithTimeout(context.Background(), finishLimit)
	defer cancel()
	for _, server := range d.servers {
		if err := server.Shutdown(ctx); err != nil {
			server.Close()
		}
	}
}
