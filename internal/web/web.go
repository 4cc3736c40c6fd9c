// SPDX-License-Identifier: Apache-2.0

// Package web serves the dashboard: one page, and what happens, to browsers that look at it.
// It can change nothing, and asks nobody but the daemon.
package web

import (
	"context"
	"net/http"

	"narthex/internal/live"
)

// watch makes views of what happens, one per second, until its context is done. Its channel is
// closed then, and when the daemon ends.
type watch = func(context.Context) (<-chan live.View, error)

// Handler serves the dashboard at /, the views of watch as server-sent events at /live, and
// metrics at /metrics. Address is where it is served, HOST:PORT: of names, only that host and
// those of this machine's loopback are answered. The channel of watch has a view per second,
// and is closed when there are no more.
func Handler(watch func(context.Context) (<-chan live.View, error), address string, metrics http.Handler) http.Handler {
	page := http.NewServeMux()
	for path, f := range pageFiles() {
		page.Handle(path, f)
	}
	page.Handle("/live", newStream(watch))
	mux := http.NewServeMux()
	mux.Handle("/metrics", metrics)
	mux.Handle("/", guard(address, page))
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
