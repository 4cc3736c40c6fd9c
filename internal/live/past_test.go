// SPDX-License-Identifier: Apache-2.0

package live

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"narthex/internal/api"
)

// An hour is remembered, and of it what charts show.
func TestPast(t *testing.T) {
	var p Past
	for i := range pastViews + 10 {
		p.See(start.Add(time.Duration(i)*PastEvery), api.Status{Services: []api.ServiceStatus{
			{Name: "web", Limit: "8", RoomStatus: &api.RoomStatus{InService: 3, Classes: []api.RoomClassStatus{{Name: "gold", Served: uint64(100 * i)}}}}, {Name: "mail"},
		}})
	}
	views := p.Views()
	last := views[len(views)-1]
	if len(views) != pastViews || !last.Time.Equal(start.Add((pastViews+9)*PastEvery)) || last.Interval != 10 {
		t.Errorf("%d views, the last %+v", len(views), last)
	}
	if s := last.Services[0]; s.Served != 10 || last.Status.Services[0].Limit != "8" || last.Status.Services[0].InService != 3 {
		t.Errorf("service %+v, %+v", s, last.Status.Services[0])
	}
	text, err := json.Marshal(last.Status)
	if err != nil || !strings.Contains(string(text), `"classes":[{}]`) || strings.Count(string(text), "classes") != 1 {
		t.Errorf("status %s, %v", text, err)
	}
}
