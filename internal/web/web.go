// SPDX-License-Identifier: Apache-2.0

// Package web serves the dashboard: one page, and what happens, to browsers that look at it.
// It can change nothing, and asks nobody but the daemon.
package web

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"narthex/internal/live"
)

// watch makes views of what happens, one per second, until its context is done. Its channel is
// closed then, and when the daemon ends.
type watch = func(context.Context) (<-chan live.View, error)

// mostHours is of how much time the past may be asked for.
const mostHours = 7 * 24

// Handler serves the dashboard at /, the views of feed as server-sent events at /live, what it remembers at /history, and
// metrics at /metrics. Address is where it is served, HOST:PORT: of names, only that host, the
// allowed ones and those of this machine's loopback are answered. The channel of feed.Watch has a view per second,
// and is closed when there are no more.
func Handler(feed live.Feed, address string, allowed []string, metrics http.Handler) http.Handler {
	page := http.NewServeMux()
	for path, f := range pageFiles() {
		page.Handle(path, f)
	}
	page.Handle("/live", newStream(feed.Watch))
	page.HandleFunc("/history", func(w http.ResponseWriter, r *http.Request) {
		hours, err := strconv.Atoi(cmp.Or(r.URL.Query().Get("hours"), "1"))
		if err != nil || hours < 1 || hours > mostHours {
			http.Error(w, fmt.Sprintf("hours: write a number from 1 to %d", mostHours), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(feed.Past(time.Duration(hours) * time.Hour)) // the browser has gone: nothing to tell it
	})
	mux := http.NewServeMux()
	mux.Handle("/metrics", metrics)
	mux.Handle("/", guard(address, allowed, page))
	return readOnly(mux)
}

// readOnly refuses what is not meant to read.
func readOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET is served here", http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	})
}
