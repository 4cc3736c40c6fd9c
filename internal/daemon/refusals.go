// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"narthex/internal/api"
	"narthex/internal/datapath"
)

const (
	// refusalBytes bounds a file of refusals. There are two: when one is full it replaces the other.
	refusalBytes = 32 << 20
	// refusalBurst is how many refusals are kept in a moment, and refusalPause after how long one
	// more is: with the size of the files, a flood that never ends is seen of more than a day.
	refusalBurst = 1000
	refusalPause = 500 * time.Millisecond
)

// refusalLog keeps a sample of refusals in files, so that they can be explained later.
type refusalLog struct {
	log   *slog.Logger
	short bool // addresses are cut to /24 and /48

	mu      sync.Mutex // of the files
	files   rotating
	trouble string // that is in the log
}

func refusalPath(dir, instance string) string { return filepath.Join(dir, instance+".refusals") }

// openRefusals returns nil if none are to be kept. That they cannot be is said, and no more: there
// is a server to protect.
func openRefusals(cfg *Config, log *slog.Logger) *refusalLog {
	if cfg.Refusals == "" {
		return nil
	}
	l := &refusalLog{log: log, files: rotating{path: refusalPath(cfg.Refusals, cfg.Instance), most: refusalBytes}, short: cfg.ShortAddresses}
	err := os.MkdirAll(cfg.Refusals, 0o750)
	if err == nil {
		err = l.files.open()
	}
	if err != nil {
		log.Warn("refusals are not kept: name another folder with --refusals, or off", "error", err)
		return nil
	}
	return l
}

// record keeps what the hub tells, until ctx is done. When it has had its fill it does not listen
// for a while, so that a flood costs nothing more.
func (l *refusalLog) record(ctx context.Context, hub *eventHub) {
	left, last := refusalBurst, time.Now()
	for ctx.Err() == nil {
		ear, err := hub.enter(eventFilter{}, true)
		if err == nil {
			for left > 0 && l.take(ctx, ear) {
				left--
			}
			hub.leave(ear)
		}
		select {
		case <-ctx.Done():
		case <-time.After(refusalPause):
		}
		earned := int(time.Since(last) / refusalPause)
		left, last = min(left+earned, refusalBurst), last.Add(time.Duration(earned)*refusalPause)
	}
}

// take keeps the next refusal, and returns false when there will be no more.
func (l *refusalLog) take(ctx context.Context, ear *listener) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-ear.ended:
			return false
		case <-ear.misses:
			ear.missed.Store(0)
		case e := <-ear.queue:
			if e.Kind != datapath.EventDrop && e.Kind != datapath.EventReject && e.Kind != datapath.EventDemote {
				continue
			}
			l.keep(eventStatus(e))
			return true
		}
	}
}

// keep writes a line.
func (l *refusalLog) keep(e api.Event) {
	if l.short {
		e.Client = shortened(e.Client)
	}
	line, err := json.Marshal(e)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		err = l.files.write(append(line, '\n'))
	}
	if err != nil && err.Error() != l.trouble {
		l.trouble = err.Error()
		l.log.Error("cannot keep a refusal", "error", err)
	}
}

func (l *refusalLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.files.close()
}

// shortened cuts a client's address to the prefix that it shares with others.
func shortened(client string) string {
	at, err := netip.ParseAddrPort(client)
	if err != nil {
		return ""
	}
	bits := 24
	if at.Addr().Is6() {
		bits = 48
	}
	prefix, err := at.Addr().Prefix(bits)
	if err != nil {
		return ""
	}
	return prefix.String()
}

// read calls tell with what was kept between two times. Lines that a crash has cut are left out.
func (l *refusalLog) read(from, to time.Time, tell func(api.Event) error) error {
	return l.files.read(func(line []byte) error {
		var e api.Event
		if json.Unmarshal(line, &e) != nil || e.Time.Before(from) || !to.IsZero() && e.Time.After(to) {
			return nil
		}
		return tell(e)
	})
}

// kept reports whether a filter lets through what was kept. Of a client whose address was cut, the
// prefix counts.
func (f *eventFilter) kept(e api.Event) bool {
	of := datapath.Event{Kind: datapath.EventKind(e.Kind), Service: e.Service, Class: e.Class, Rule: e.Rule, Reason: e.Reason}
	rest := *f
	rest.from = netip.Prefix{}
	if !rest.admits(of) || !f.from.IsValid() {
		return rest.admits(of)
	}
	if at, err := netip.ParseAddrPort(e.Client); err == nil {
		return f.from.Contains(at.Addr())
	}
	prefix, err := netip.ParsePrefix(e.Client)
	return err == nil && prefix.Overlaps(f.from)
}

// tellRefusals answers with what was kept, one event per line.
func (d *daemon) tellRefusals(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	var from, to time.Time
	var err error
	for key, at := range map[string]*time.Time{"since": &from, "until": &to} {
		if text := query.Get(key); text != "" {
			if *at, err = time.Parse(time.RFC3339Nano, text); err != nil {
				answer(w, nil, usagef("%s=%s: write a time like %s", key, text, time.RFC3339))
				return
			}
		}
		query.Del(key)
	}
	filter, err := eventFilterOf(query, nil)
	if err == nil && d.refusals == nil {
		err = usagef("refusals are not kept: start the daemon with --refusals /var/log/narthex")
	}
	if err != nil {
		answer(w, nil, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := bufio.NewWriter(w)
	lines := json.NewEncoder(out)
	n := 0
	err = d.refusals.read(from, to, func(e api.Event) error {
		if !filter.kept(e) {
			return nil
		}
		if n++; filter.sample > 1 && n%filter.sample != 1 {
			return nil
		}
		return lines.Encode(e)
	})
	if err = errors.Join(err, out.Flush()); err != nil {
		d.log.Debug("telling of refusals ended", "error", err)
	}
}
