// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"net/http"
	"time"

	"narthex/internal/api"
)

// watcherRoom is how many observations may wait for a watcher that is slow. Those beyond
// that it misses.
const watcherRoom = 256

// publish gives an observation to all watchers. It waits for nobody.
func (a *agent) publish(o observation) {
	for w := range a.watchers {
		select {
		case w <- o:
		default:
		}
	}
}

// watch begins to send observations to a channel, until the function that it returns is called.
func (a *agent) watch(to chan<- observation) (end func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watchers[to] = true
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.watchers, to)
	}
}

// serveSamples streams what is seen of services and decided, until the client leaves or the
// daemon ends.
func (a *agent) serveSamples(w http.ResponseWriter, r *http.Request) {
	stream := http.NewResponseController(w)
	// The server's limit on reading would end the request, of which there is no more to come.
	if err := stream.SetReadDeadline(time.Time{}); err != nil {
		answer(w, nil, err)
		return
	}
	seen := make(chan observation, watcherRoom)
	defer a.watch(seen)()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	lines := json.NewEncoder(w)
	for err := stream.Flush(); err == nil; {
		select {
		case <-r.Context().Done():
			return
		case <-a.ended:
			return
		case o := <-seen:
			if err = stream.SetWriteDeadline(time.Now().Add(writeLimit)); err == nil {
				err = lines.Encode(api.Sample{Service: o.service, Sample: o.sample, Decision: o.decision})
			}
			if err == nil && len(seen) == 0 {
				err = stream.Flush()
			}
		}
	}
}
