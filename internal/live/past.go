// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"sync"
	"time"

	"narthex/internal/api"
)

const (
	// PastEvery is how often what is remembered is looked at.
	PastEvery = 10 * time.Second
	// pastViews is how much is remembered: an hour.
	pastViews = 360
)

// Feed is where a dashboard has its figures from.
type Feed struct {
	Watch func(context.Context) (<-chan View, error) // views, one a second
	// Past is what is remembered of so much time, at least an hour, the oldest first.
	Past func(of time.Duration) []PastView
}

// PastView is what is remembered of a View: what charts show.
type PastView struct {
	Time     time.Time  `json:"time"`
	Interval float64    `json:"interval_seconds"`
	Services []Service  `json:"services"`
	Status   PastStatus `json:"status"`
}

// PastStatus is what is remembered of a status.
type PastStatus struct {
	Services []PastService `json:"services"` // in the order of View.Services
}

// PastService is a service at a moment.
type PastService struct {
	Limit     string     `json:"limit,omitempty"`
	InService int        `json:"in_service"`
	Classes   []struct{} `json:"classes,omitempty"` // as many as it has; none without a waiting room
}

// Past remembers how it went, so that charts that are opened in the middle of an incident show how
// it began. The zero value is empty.
type Past struct {
	meter Meter

	mu    sync.Mutex
	views []PastView
}

// See remembers a status. It is not for several goroutines at once.
func (p *Past) See(now time.Time, s api.Status) {
	v := p.meter.View(now, s)
	if v.Interval == 0 {
		return // there are no rates yet
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.views = append(p.views, Slim(&v))
	p.views = p.views[max(len(p.views)-pastViews, 0):]
}

// Begin remembers views from before, the oldest first.
func (p *Past) Begin(views []PastView) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.views = views[max(len(views)-pastViews, 0):]
}

// Slim returns of a view what is remembered.
func Slim(v *View) PastView {
	slim := PastView{Time: v.Time, Interval: v.Interval, Services: v.Services}
	for i := range v.Status.Services {
		one := PastService{}
		if room := v.Status.Services[i].RoomStatus; room != nil {
			one = PastService{v.Status.Services[i].Limit, room.InService, make([]struct{}, len(room.Classes))}
		}
		slim.Status.Services = append(slim.Status.Services, one)
	}
	return slim
}

// Sound reports whether a view that was read has what charts go by.
func (v *PastView) Sound() bool {
	return v.Interval > 0 && !v.Time.IsZero() && len(v.Services) > 0 && len(v.Services) == len(v.Status.Services)
}

// Thin returns at most so many of the views, in order: of each stretch of time the one in which most were
// turned away or waited, so that an incident stays visible.
func Thin(views []PastView, most int) []PastView {
	if len(views) <= most {
		return views
	}
	from := views[0].Time
	stretch := views[len(views)-1].Time.Sub(from)/time.Duration(most) + 1
	var thin []PastView
	last := time.Duration(-1)
	for i := range views {
		at := views[i].Time.Sub(from) / stretch
		switch {
		case at != last:
			thin, last = append(thin, views[i]), at
		case views[i].worse(&thin[len(thin)-1]):
			thin[len(thin)-1] = views[i]
		}
	}
	return thin
}

// worse reports whether more were turned away, or as many, and more waited.
func (v *PastView) worse(than *PastView) bool {
	away, waiting := v.trouble()
	before, waited := than.trouble()
	return away > before || away == before && waiting > waited
}

func (v *PastView) trouble() (away float64, waiting int) {
	for i := range v.Services {
		away += v.Services[i].Rejected + v.Services[i].SYNsDropped
		for j := range v.Services[i].Classes {
			waiting += v.Services[i].Classes[j].Waiting
		}
	}
	return away, waiting
}

// Views returns what is remembered, the oldest first.
func (p *Past) Views() []PastView {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]PastView{}, p.views...)
}
