// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"narthex/internal/api"
	"narthex/internal/live"
)

const (
	// chartBytes bounds a file of what charts show, of which there are two. chartLine is what begins each.
	chartBytes = 16 << 20
	chartLine  = "{\"narthex_history\":1}\n"
	// chartEvery is how often a view is kept, chartAge how long, and chartPoints how many are told at once.
	chartEvery  = time.Minute
	chartAge    = 7 * 24 * time.Hour
	chartPoints = 700
	inMemory    = time.Hour
)

// chartLog keeps what charts show, so that they show it after a restart, too.
type chartLog struct {
	log     *slog.Logger
	meter   live.Meter
	last    time.Time
	trouble string // that is in the log

	mu    sync.Mutex // of the files
	files rotating
}

// openCharts returns nil if nothing is to be kept. That it cannot be is said, and no more.
func openCharts(cfg *Config, log *slog.Logger) *chartLog {
	if cfg.History == "" {
		return nil
	}
	c := &chartLog{log: log, files: rotating{path: filepath.Join(cfg.History, cfg.Instance+".history"), most: chartBytes, first: chartLine}}
	err := os.MkdirAll(cfg.History, 0o750)
	if err == nil {
		err = c.files.open()
	}
	if err != nil {
		log.Warn("the dashboard's charts are not kept: name another folder with --history, or off", "error", err)
		return nil
	}
	return c
}

// see keeps a view each minute. It is not for several goroutines at once.
func (c *chartLog) see(now time.Time, s api.Status) {
	if since := now.Sub(c.last); since >= 0 && since < chartEvery {
		return
	}
	c.last = now
	v := c.meter.View(now, s)
	if v.Interval == 0 {
		return // there are no rates yet
	}
	line, err := json.Marshal(live.Slim(&v))
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		err = c.files.write(append(line, '\n'))
	}
	switch {
	case err == nil:
		c.trouble = ""
	case err.Error() != c.trouble:
		c.trouble = err.Error()
		c.log.Warn("cannot keep what charts show", "error", err)
	}
}

// read returns what was kept between two times. Lines that are broken, or not in the order of time, are left out.
func (c *chartLog) read(from, to time.Time) (views []live.PastView) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.files.read(func(line []byte) error {
		var v live.PastView
		if json.Unmarshal(line, &v) == nil && v.Sound() && !v.Time.Before(from) && !v.Time.After(to) &&
			(len(views) == 0 || v.Time.After(views[len(views)-1].Time)) {
			views = append(views, v)
		}
		return nil
	})
	if err != nil {
		c.log.Warn("cannot read what charts show", "error", err)
	}
	return views
}

func (c *chartLog) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.files.close()
}

// pastOf returns how it went for so much time: of the last hour as it is in memory, else as it was kept.
func (d *daemon) pastOf(of time.Duration) []live.PastView {
	recent := d.past.Views()
	if of <= inMemory || d.charts == nil {
		return recent
	}
	now := time.Now()
	to := now
	if len(recent) > 0 {
		to = recent[0].Time.Add(-time.Nanosecond)
	}
	return live.Thin(append(d.charts.read(now.Add(-min(of, chartAge)), to), recent...), chartPoints)
}

// remember keeps how it went, for dashboards.
func (d *daemon) remember(following <-chan struct{}) {
	if d.charts != nil {
		defer d.charts.close()
		now := time.Now()
		d.past.Begin(d.charts.read(now.Add(-inMemory), now))
	}
	tick := time.NewTicker(live.PastEvery)
	defer tick.Stop()
	for {
		if s, err := d.status(); err == nil {
			now := time.Now()
			d.past.See(now, s)
			if d.charts != nil {
				d.charts.see(now, s)
			}
		}
		select {
		case <-following:
			return
		case <-tick.C:
		}
	}
}
