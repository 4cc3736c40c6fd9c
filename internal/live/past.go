// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"sync"
	"time"

	"narthex/internal/daemon/api"
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
	Past  func() []PastView                          // of the last hour, the oldest first
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
	slim := PastView{Time: v.Time, Interval: v.Interval, Services: v.Services}
	for i := range s.Services {
		one := PastService{}
		if room := s.Services[i].RoomStatus; room != nil {
			one = PastService{s.Services[i].Limit, room.InService, make([]struct{}, len(room.Classes))}
		}
		slim.Status.Services = append(slim.Status.Services, one)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.views = append(p.views, slim)
	p.views = p.views[max(len(p.views)-pastViews, 0):]
}

// Views returns what is remembered, the oldest first.
func (p *Past) Views() []PastView {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]PastView{}, p.views...)
}
