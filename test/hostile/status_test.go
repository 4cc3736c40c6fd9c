// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"narthex/internal/api"
	"narthex/test/nettest"
)

// reading is what these tests read of the status.
type reading struct {
	PID      int `json:"pid"`
	Services []struct {
		Name      string       `json:"name"`
		Protocol  string       `json:"protocol"`
		InService int          `json:"in_service"`
		Waiting   int          `json:"waiting"`
		Gathering int          `json:"gathering"`
		Classes   []classCount `json:"classes"`
	} `json:"services"`
	Pool struct {
		Slots     int `json:"slots"`
		FreeSlots int `json:"free_slots"`
	} `json:"waiting_room"`
	Reasons map[string]struct {
		Passed  uint64 `json:"passed"`
		Dropped uint64 `json:"dropped"`
	} `json:"reasons"`
}

// classCount is what a service counts of a class.
type classCount struct {
	Name      string            `json:"name"`
	InService int               `json:"in_service"`
	Waiting   int               `json:"waiting"`
	Arrived   uint64            `json:"arrived"`
	Admitted  uint64            `json:"admitted"`
	Held      uint64            `json:"held"`
	Released  uint64            `json:"released"`
	GaveUp    uint64            `json:"gave_up"`
	Rejected  map[string]uint64 `json:"rejected"`
	Served    uint64            `json:"served"`
	Lost      uint64            `json:"lost"`
	Paused    uint64            `json:"paused"`
}

// tryRead asks the daemon, as `narthex status --json` does, but without another process each
// time.
func (in *instance) tryRead() (r reading, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	status, err := api.NewClient(filepath.Join("/run/narthex", in.name+".sock")).Status(ctx)
	if err != nil {
		return r, err
	}
	text, err := json.Marshal(status)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(text, &r)
}

func (in *instance) read() reading {
	in.t.Helper()
	r, err := in.tryRead()
	nettest.Check(in.t, err)
	return r
}

// class returns what a service counts of a class.
func (r reading) class(service, class string) classCount {
	for _, s := range r.Services {
		for _, c := range s.Classes {
			if s.Name == service && c.Name == class {
				return c
			}
		}
	}
	return classCount{}
}

// entered is how often requests, of HTTP, were let in, and how often they left service since their body
// did not come.
func (r reading) entered() (entered, paused uint64) {
	for _, s := range r.Services {
		if s.Protocol != "http" {
			continue // these are connections
		}
		for _, c := range s.Classes {
			entered += c.Admitted + c.Released
			paused += c.Paused
		}
	}
	return entered, paused
}

func (r reading) String() string {
	var b strings.Builder
	for _, s := range r.Services {
		fmt.Fprintf(&b, "%s: %d in service, %d waiting, %d gathering\n", s.Name, s.InService, s.Waiting, s.Gathering)
		for _, c := range s.Classes {
			if c.Arrived > 0 {
				fmt.Fprintf(&b, "  %+v\n", c)
			}
		}
	}
	fmt.Fprintf(&b, "%+v\nreasons: %v", r.Pool, r.Reasons)
	return b.String()
}

// calm is whether nothing is under way and nothing of it is left.
func (r reading) calm() bool {
	for _, s := range r.Services {
		if s.InService+s.Waiting+s.Gathering != 0 {
			return false
		}
	}
	return r.Pool.Slots > 0 && r.Pool.FreeSlots == r.Pool.Slots
}

// addsUp says what the counters contradict each other in, when nothing is under way.
func (r reading) addsUp() error {
	for _, s := range r.Services {
		for _, c := range s.Classes {
			var rejected uint64
			for _, n := range c.Rejected {
				rejected += n
			}
			// A rejection counts at arrival, or from the queue, or, where requests are put together,
			// in neither.
			arrived, held := c.Admitted+c.Held, c.Released+c.GaveUp
			switch {
			case c.Admitted+c.Released != c.Served+c.Paused || c.Lost != 0:
				return fmt.Errorf("%s, %s: what entered is not what left", s.Name, c.Name)
			case c.Arrived < arrived || c.Held < held || c.Arrived-arrived+c.Held-held > rejected:
				return fmt.Errorf("%s, %s: what came is not what became of it", s.Name, c.Name)
			}
		}
	}
	return nil
}
