// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/live"
)

// viewEvery is how often the status is read while somebody watches.
const viewEvery = time.Second

// liveHub has many watch views that are made once. While nobody watches it reads nothing and
// runs nothing.
type liveHub struct {
	status func() (api.Status, error)
	events *eventHub
	log    *slog.Logger
	every  time.Duration

	mu       sync.Mutex
	watchers map[chan live.View]bool
	last     *live.View // nil: the sampler has made none
	cancel   func()     // ends the sampler; nil: there is none
	stopped  bool
}

func newLiveHub(status func() (api.Status, error), events *eventHub, log *slog.Logger) *liveHub {
	return &liveHub{status: status, events: events, log: log, every: viewEvery, watchers: map[chan live.View]bool{}}
}

// watch returns views, about one a second and the first at once, until ctx is done or the
// daemon ends; then it closes the channel. Who reads slowly misses views and gets the latest.
// Views are shared: they may not be changed. The control socket and the dashboard's handler
// are fed by it.
func (d *daemon) watch(ctx context.Context) (<-chan live.View, error) { return d.live.watch(ctx) }

func (h *liveHub) watch(ctx context.Context) (<-chan live.View, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return nil, errors.New("the daemon is ending")
	}
	views := make(chan live.View, 1)
	h.watchers[views] = true
	switch {
	case h.cancel == nil:
		var sampling context.Context
		sampling, h.cancel = context.WithCancel(context.Background())
		go h.sample(sampling)
	case h.last != nil:
		views <- *h.last
	}
	context.AfterFunc(ctx, func() { h.leave(views) })
	return views, nil
}

// leave ends sampling with the last who watches.
func (h *liveHub) leave(views chan live.View) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.watchers[views] {
		return // by stop
	}
	delete(h.watchers, views)
	close(views)
	if len(h.watchers) == 0 {
		h.rest()
	}
}

// stop ends it for all who watch, for good.
func (h *liveHub) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	for views := range h.watchers {
		close(views)
	}
	clear(h.watchers)
	h.rest()
}

// rest ends the sampler. The caller holds mu.
func (h *liveHub) rest() {
	if h.cancel != nil {
		h.cancel()
	}
	h.cancel, h.last = nil, nil
}

// sample makes views until ctx is done.
func (h *liveHub) sample(ctx context.Context) {
	var meter live.Meter
	var ear ear
	defer ear.leave(h)
	tick := time.NewTicker(h.every)
	defer tick.Stop()
	ear.join(h)
	trouble := h.look(ctx, &meter, nil)
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-ear.told:
			meter.See(e)
		case <-ear.ended:
			ear.listener, ear.told, ear.ended = nil, nil, nil // the next tick listens again
		case <-tick.C:
			ear.join(h)
			trouble = h.look(ctx, &meter, trouble)
		}
	}
}

// ear listens to events for views, which have no sources without.
type ear struct {
	listener *listener // nil: it does not listen
	told     <-chan datapath.Event
	ended    <-chan struct{}
	trouble  string // that is in the log
}

// join listens unless it does.
func (a *ear) join(h *liveHub) {
	if a.listener != nil {
		return
	}
	l, err := h.events.join(eventFilter{})
	if err != nil {
		if a.trouble != err.Error() {
			a.trouble = err.Error()
			h.log.Warn("cannot listen to events, so that views have no sources", "error", err)
		}
		return
	}
	*a = ear{listener: l, told: l.queue, ended: l.ended}
}

func (a *ear) leave(h *liveHub) {
	if a.listener != nil {
		h.events.leave(a.listener)
	}
}

// look makes a view of the present and spreads it. An error is logged when it is another than
// the last.
func (h *liveHub) look(ctx context.Context, meter *live.Meter, last error) error {
	status, err := h.status()
	if err != nil {
		if last == nil || last.Error() != err.Error() {
			h.log.Warn("cannot read the status for those who watch", "error", err)
		}
		return err
	}
	h.spread(ctx, meter.View(time.Now(), status))
	return nil
}

// spread puts a view in the place of one that was not read.
func (h *liveHub) spread(ctx context.Context, v live.View) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil {
		return // another sampler may run by now
	}
	h.last = &v
	for views := range h.watchers {
		select {
		case <-views:
		default:
		}
		views <- v
	}
}
