// SPDX-License-Identifier: Apache-2.0

package web

import (
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"

	"narthex/internal/live"
)

const (
	// mostWatchers bounds who looks at once: each costs the daemon a message per second.
	mostWatchers = 32
	// slowest is how long a message may take before its reader is given up.
	slowest = 5 * time.Second
	// retryLater is when who found no place may ask again, in seconds.
	retryLater = "10"
)

// stream sends views to browsers.
type stream struct {
	watch  watch
	places chan struct{} // one entry for each who watches

	mu     sync.Mutex
	of     time.Time // the view that event is of
	event  []byte
	encode func(live.View) ([]byte, error)
}

func newStream(w watch) *stream {
	return &stream{watch: w, places: make(chan struct{}, mostWatchers), encode: message}
}

// ServeHTTP sends a view per second until the browser goes or the daemon ends. HEAD asks
// whether there is a place.
func (s *stream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	default:
		w.Header().Set("Retry-After", retryLater)
		http.Error(w, "too many are watching: close a dashboard elsewhere", http.StatusServiceUnavailable)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	if r.Method == http.MethodHead {
		return
	}
	control := http.NewResponseController(w)
	// The server's limit on reading would end the request, of which there is no more to come.
	if err := control.SetReadDeadline(time.Time{}); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	views, err := s.watch(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	// It is not compressed: that would take a megabyte for each who watches.
	s.follow(r, views, sender{control: control, w: w, slowest: slowest})
}

// follow sends views until there are no more, or nobody takes them.
func (s *stream) follow(r *http.Request, views <-chan live.View, out sender) {
	if out.send([]byte(": narthex\n\n")) != nil {
		return
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case view, more := <-views:
			if !more {
				return
			}
			event, err := s.eventOf(view)
			if err != nil || out.send(event) != nil {
				return
			}
		}
	}
}

// eventOf encodes a view once for all who watch, as long as they keep up: its time tells it from
// others.
func (s *stream) eventOf(v live.View) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.event != nil && v.Time.Equal(s.of) {
		return s.event, nil
	}
	event, err := s.encode(v)
	if err == nil {
		s.of, s.event = v.Time, event
	}
	return event, err
}

// message is a view as an event: JSON has no line breaks.
func message(v live.View) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	const before, after = "data: ", "\n\n"
	m := make([]byte, 0, len(before)+len(text)+len(after))
	return append(append(append(m, before...), text...), after...), nil
}

// sender writes events, and sees that each goes out at once.
type sender struct {
	control *http.ResponseController
	w       io.Writer
	slowest time.Duration // that an event may take
}

func (s sender) send(text []byte) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(s.slowest)); err != nil {
		return err
	}
	if _, err := s.w.Write(text); err != nil {
		return err
	}
	return s.control.Flush()
}
