// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"narthex/internal/api"
	"narthex/internal/datapath"
)

// eventQueue is how many events a client may be behind before it misses some.
const eventQueue = 4096

// eventHub has many listen to events of which the data path tells one. It reads them only
// while somebody does.
type eventHub struct {
	open func() (datapath.EventReader, error)
	log  *slog.Logger

	mu        sync.Mutex
	reader    datapath.EventReader // nil: nobody listens
	listeners map[*listener]bool
	stopped   bool

	told, missed uint64        // events, since the daemon started
	behind       atomic.Uint64 // of those told, what listeners missed
}

// listener is a client that listens.
type listener struct {
	filter   eventFilter
	queue    chan datapath.Event
	missed   atomic.Uint64
	misses   chan struct{}  // has room for one: missed is not 0
	ended    chan struct{}  // closed when there will be nothing more
	recorder bool           // of refusals alone, and it is no client
	admitted int            // events that the filter let through; the hub's alone
	behind   *atomic.Uint64 // what all listeners missed for want of reading
}

func newEventHub(open func() (datapath.EventReader, error), log *slog.Logger) *eventHub {
	return &eventHub{open: open, log: log, listeners: map[*listener]bool{}}
}

// join begins to listen. Whoever has joined leaves.
func (h *eventHub) join(filter eventFilter) (*listener, error) { return h.enter(filter, false) }

func (h *eventHub) enter(filter eventFilter, recorder bool) (*listener, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return nil, errors.New("the daemon is ending")
	}
	if h.reader == nil {
		reader, err := h.open()
		if err != nil {
			return nil, err
		}
		h.reader = reader
		go h.pump(reader)
	}
	l := &listener{
		recorder: recorder,
		filter:   filter, queue: make(chan datapath.Event, eventQueue),
		misses: make(chan struct{}, 1), ended: make(chan struct{}), behind: &h.behind,
	}
	h.listeners[l] = true
	h.narrow()
	return l, nil
}

// narrow has the programs tell of no more than is listened to. The caller holds mu.
func (h *eventHub) narrow() {
	if h.reader == nil {
		return
	}
	if err := h.reader.Refusals(len(h.clients()) == 0); err != nil {
		h.log.Warn("cannot say which events are listened to", "error", err)
	}
}

// clients are the listeners but for the recorder. The caller holds mu.
func (h *eventHub) clients() (list []*listener) {
	for l := range h.listeners {
		if !l.recorder {
			list = append(list, l)
		}
	}
	return list
}

// leave ends reading with the last who listens.
func (h *eventHub) leave(l *listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.listeners, l)
	if len(h.listeners) == 0 {
		h.closeReader()
	}
	h.narrow()
}

// stop ends listening for good.
func (h *eventHub) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	h.dismiss()
}

// dismiss ends it for all who listen now. The caller holds mu.
func (h *eventHub) dismiss() {
	for l := range h.listeners {
		close(l.ended)
	}
	clear(h.listeners)
	h.closeReader()
}

func (h *eventHub) closeReader() {
	if h.reader == nil {
		return
	}
	if err := h.reader.Close(); err != nil {
		h.log.Warn("cannot end listening to events", "error", err)
	}
	h.reader = nil
}

// pump spreads what a reader reads until it is closed.
func (h *eventHub) pump(reader datapath.EventReader) {
	for {
		e, err := reader.Next()
		if !h.spread(reader, e, err) {
			return
		}
	}
}

// spread tells all who listen, and reports whether to go on.
func (h *eventHub) spread(reader datapath.EventReader, e datapath.Event, err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reader != reader { // it was closed
		return false
	}
	if err != nil {
		h.log.Error("cannot read events", "error", err)
		h.dismiss()
		return false
	}
	if e.Kind == datapath.EventMissed {
		h.missed += e.Missed
	} else {
		h.told++
	}
	for l := range h.listeners {
		l.offer(e)
	}
	return true
}

// offer queues an event, and never waits.
func (l *listener) offer(e datapath.Event) {
	if e.Kind == datapath.EventMissed {
		l.miss(e.Missed)
		return
	}
	if !l.filter.admits(e) {
		return
	}
	if l.admitted++; l.filter.sample > 1 && l.admitted%l.filter.sample != 1 {
		return
	}
	select {
	case l.queue <- e:
	default:
		l.behind.Add(1)
		l.miss(1)
	}
}

func (l *listener) miss(n uint64) {
	l.missed.Add(n)
	select {
	case l.misses <- struct{}{}:
	default:
	}
}

// tellEvents answers with events, one per line, until the client goes or the daemon ends.
func (d *daemon) tellEvents(w http.ResponseWriter, r *http.Request) {
	filter, err := d.engine.eventFilter(r.URL.Query())
	if err != nil {
		answer(w, nil, err)
		return
	}
	l, err := d.events.join(filter)
	if err != nil {
		answer(w, nil, err)
		return
	}
	defer d.events.leave(l)
	s := eventStream{w: w, control: http.NewResponseController(w), signal: d.engine.agent.signalOf}
	// The server's limit on reading would end the request, of which there is no more to come.
	if err := s.control.SetReadDeadline(time.Time{}); err != nil {
		answer(w, nil, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	if s.control.Flush() == nil {
		s.follow(r, l)
	}
}

// eventStream is an answer that goes on.
type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	signal  func(datapath.Event) *api.EventSignal
}

// follow writes until there is nothing more to write, or nobody to write it to.
func (s eventStream) follow(r *http.Request, l *listener) {
	for {
		var err error
		select {
		case <-r.Context().Done():
			return
		case e := <-l.queue:
			err = s.tell(e)
		case <-l.misses:
			err = s.write(api.Event{Time: time.Now(), Kind: string(datapath.EventMissed), Missed: l.missed.Swap(0)})
		case <-l.ended:
			s.finish(l)
			return
		}
		if err == nil && len(l.queue) == 0 {
			err = s.control.Flush()
		}
		if err != nil {
			return // the client has gone, or does not read
		}
	}
}

// finish writes what is queued.
func (s eventStream) finish(l *listener) {
	for {
		select {
		case e := <-l.queue:
			if s.tell(e) != nil {
				return
			}
		default:
			return
		}
	}
}

// tell writes an event.
func (s eventStream) tell(e datapath.Event) error {
	told := eventStatus(e)
	told.Signal = s.signal(e)
	return s.write(told)
}

// write writes a line. A client that does not read for long is given up.
func (s eventStream) write(e api.Event) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
		return err
	}
	return json.NewEncoder(s.w).Encode(e)
}

func eventStatus(e datapath.Event) api.Event {
	s := api.Event{
		Time: e.Time, Kind: string(e.Kind), Shadow: e.Shadow, Client: e.Client.String(), Server: e.Server.String(),
		Service: e.Service, Class: e.Class, Rule: e.Rule, Reason: e.Reason, Answer: e.Answer, Waited: e.Waited.Seconds(), JA4: e.JA4,
	}
	switch {
	case e.Rule != "" && e.Request:
		s.RuleKind = "request"
	case e.Rule != "":
		s.RuleKind = "connection"
	}
	if e.Rated {
		s.Level = &api.Level{Tokens: e.Tokens, Burst: e.Burst}
	}
	return s
}
