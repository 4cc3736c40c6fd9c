// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"narthex/internal/api"
	"narthex/internal/daemon/openapi"
	"narthex/internal/policy"
)

// Limits of what a client may ask of the daemon.
const (
	largestRequest = 64 << 10
	readLimit      = 10 * time.Second
	writeLimit     = time.Minute // a reload of the largest policy answers late
	idleLimit      = 30 * time.Second
)

// controlConnections is how many the control socket has at once, where others than root may connect to it.
const controlConnections = 256

// The same for metrics and the dashboard, which anybody on the machine may ask for.
const (
	metricsConnections = 64               // at once, 32 of which may watch
	metricsRequest     = 16 << 10         // cookies of all that is served on localhost come with it
	metricsHeaderLimit = 5 * time.Second  // until a request has come
	metricsWriteLimit  = 15 * time.Second // a scrape may take 10 s, before it is sent
	metricsIdleLimit   = 10 * time.Second
)

// newServer returns a server with limits.
func newServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readLimit,
		ReadTimeout:       readLimit,
		WriteTimeout:      writeLimit,
		IdleTimeout:       idleLimit,
		MaxHeaderBytes:    largestRequest,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// newMetricsServer returns a server on whose connections nobody stays for long. Who watches does,
// for that sets its own limits.
func newMetricsServer(handler http.Handler, log *slog.Logger) *http.Server {
	s := newServer(handler, log)
	s.ReadHeaderTimeout, s.ReadTimeout = metricsHeaderLimit, metricsHeaderLimit
	s.WriteTimeout, s.IdleTimeout, s.MaxHeaderBytes = metricsWriteLimit, metricsIdleLimit, metricsRequest
	return s
}

// api returns what is served on the control socket.
func (d *daemon) api() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+api.PathStatus, func(w http.ResponseWriter, _ *http.Request) {
		status, err := d.status()
		answer(w, status, err)
	})
	mux.HandleFunc("GET "+api.PathAlive, func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, api.Alive{PID: os.Getpid()}) })
	mux.HandleFunc("GET "+api.PathEvents, d.tellEvents)
	mux.HandleFunc("GET "+api.PathRefusals, d.tellRefusals)
	mux.HandleFunc("GET "+api.PathLive, d.showLive)
	mux.HandleFunc("GET "+api.PathSamples, d.engine.agent.serveSamples)
	handleFrom(mux, api.PathReload, d.reload)
	handleFrom(mux, api.PathConfirm, d.confirm)
	mux.HandleFunc("GET "+api.PathShadow, func(w http.ResponseWriter, r *http.Request) {
		report, err := d.engine.shadowReport(r.URL.Query().Get("id"))
		answer(w, report, err)
	})
	handleFrom(mux, api.PathShadow, d.shadow)
	handleFrom(mux, api.PathShadowEnd, d.engine.endShadow)
	handleFrom(mux, api.PathSet, d.engine.set)
	mux.HandleFunc("GET "+api.PathTable, func(w http.ResponseWriter, r *http.Request) {
		table, err := d.engine.table(r.URL.Query().Get("kind"), r.URL.Query().Get("from"))
		answer(w, table, err)
	})
	handleFrom(mux, api.PathTableClear, d.engine.clearTable)
	handleFrom(mux, api.PathTableAdd, d.engine.addTable)
	handle(mux, api.PathDiff, d.engine.diff)
	handle(mux, api.PathExplain, d.engine.explain)
	handle(mux, api.PathStop, d.requestStop)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, usagef("there is no %s %s", r.Method, r.URL.Path))
	})
	mux.HandleFunc("GET "+openapi.PathDescription, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(openapi.Description) // the client has gone: nothing to tell it
	})
	return onlyAllowedPeers(mux)
}

func onlyAllowedPeers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		may, needs := peerOf(r).may, openapi.AccessTo(r.Method, r.URL.Path)
		switch {
		case may == openapi.AccessNone:
			fail(w, http.StatusForbidden, errors.New("no permission to use this socket: run this command as root"))
		case may < needs:
			fail(w, http.StatusForbidden, fmt.Errorf("no permission to do this: your group may %s: run this command as root", map[openapi.Access]string{
				openapi.AccessRead: "see everything and change nothing", openapi.AccessWrite: "change limits, and no more",
			}[may]))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// handle serves a POST whose body and answer are JSON.
func handle[Request, Result any](mux *http.ServeMux, path string, do func(Request) (Result, error)) {
	handleFrom(mux, path, func(req Request, _ string) (Result, error) { return do(req) })
}

// handleFrom is handle for what has to know who asks.
func handleFrom[Request, Result any](mux *http.ServeMux, path string, do func(req Request, from string) (Result, error)) {
	mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		var req Request
		body := json.NewDecoder(http.MaxBytesReader(w, r.Body, largestRequest))
		body.DisallowUnknownFields()
		err := body.Decode(&req)
		if err == nil && body.Decode(&struct{}{}) != io.EOF {
			err = errors.New("more than one value")
		}
		if err != nil {
			fail(w, http.StatusBadRequest, usagef("read request: %v", err))
			return
		}
		result, err := do(req, peerOf(r).name)
		answer(w, result, err)
	})
}

func answer(w http.ResponseWriter, result any, err error) {
	var wrong *api.Error
	var invalid policy.Errors
	switch {
	case err == nil:
		reply(w, http.StatusOK, result)
	case errors.As(err, &wrong):
		fail(w, http.StatusUnprocessableEntity, wrong)
	case errors.As(err, &invalid):
		fail(w, http.StatusUnprocessableEntity, usagef("%v", invalid))
	default:
		fail(w, http.StatusInternalServerError, err)
	}
}

func fail(w http.ResponseWriter, code int, err error) {
	var told *api.Error
	if !errors.As(err, &told) {
		told = &api.Error{Message: err.Error()}
	}
	reply(w, code, told)
}

func reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client has gone: nothing to tell it
}
