// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/live"
)

const roomPolicy = `version: 1
classes:
  - {name: gold, priority: 2}
  - {name: rest, priority: 1}
services:
  - {name: web, listen: "*:80", concurrency: 4}
connections:
  - {name: everyone, rate: 5/s, burst: 3, per: source}
`

// busy fills the waiting room of the first service.
func (w *world) busy() {
	gold := datapath.RoomClass{InService: 1, Arrived: 50, Admitted: 50, Served: 49}
	rest := datapath.RoomClass{InService: 3, Waiting: 17, Arrived: 900, Held: 600}
	w.kernel.SetRooms(datapath.Room{InService: 4, Waiting: 17, Classes: []datapath.RoomClass{gold, rest}})
}

func TestTopPrintsOneView(t *testing.T) {
	w := newWorld(t)
	w.busy()
	end := w.run("--policy", w.write("p.yaml", roomPolicy))
	defer end()
	for _, args := range [][]string{{"top"}, {"top", "--once"}} {
		got := w.do(args...)
		if got.Code != exitOK || got.Err != "" {
			t.Fatalf("narthex %s: %+v", args, got)
		}
		for _, want := range []string{"narthex default enforcing · policy p.yaml", "web", " 4/4 ", " 17 ", "limit 4", "gold", "rest", "TURNED AWAY requests 0/s"} {
			if !strings.Contains(got.Out, want) {
				t.Errorf("narthex %s: there is no %q:\n%s", args, want, got.Out)
			}
		}
		if strings.Contains(got.Out, "\x1b") {
			t.Errorf("narthex %s: colours where there is no terminal:\n%q", args, got.Out)
		}
	}
}

// Views of an interval have its rates, and the sources of the daemon's view.
func TestTopWithAnInterval(t *testing.T) {
	start := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	daemons := func(second int) *live.View {
		return &live.View{
			Time: start.Add(time.Duration(second)*time.Second + time.Duration(second%3)*10*time.Millisecond), Interval: 1,
			Status:   api.Status{Services: []api.ServiceStatus{{Name: "web", Counts: api.Counts{Matched: uint64(second * second)}}}},
			Services: []live.Service{{Name: "web", SYNs: 1000}}, Sources: []live.Source{{Client: "192.0.2.1"}},
		}
	}
	for _, eager := range []bool{false, true} {
		p := pacer{every: 3 * time.Second, eager: eager}
		got := map[int]float64{}
		for second := range 8 {
			if v := daemons(second); p.due(v) {
				got[second] = v.Services[0].SYNs
				if len(v.Sources) != 1 {
					t.Errorf("sources at %d: %v", second, v.Sources)
				}
			}
		}
		want := map[int]float64{0: 0, 3: 3, 6: 9} // 9 and 27 SYNs in 3 s
		if eager {
			want[1], want[2] = 1000, 1000
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("eager %v (-want +got):\n%s", eager, diff)
		}
	}
}

func TestTopPrintsJSON(t *testing.T) {
	w := newWorld(t)
	w.busy()
	end := w.run("--policy", w.write("p.yaml", roomPolicy))
	defer end()
	got := w.do("top", "--json", "--once")
	var v live.View
	if err := json.Unmarshal([]byte(got.Out), &v); err != nil || strings.Count(got.Out, "\n") != 1 {
		t.Fatalf("%v: %+v", err, got)
	}
	if v.Interval <= 0 || v.Services[0].Classes[1].Waiting != 17 || v.Status.Services[0].Waiting != 17 {
		t.Errorf("%+v", v)
	}

	ctx, cancel := context.WithCancel(t.Context())
	var out, errs screen
	code := make(chan int, 1)
	go func() { code <- Main(ctx, w.env(&out, &errs, "top", "--json")) }()
	lines := strings.SplitAfter(out.shows(t, 2), "\n")
	cancel()
	if c := <-code; c != exitOK {
		t.Errorf("interrupted: %d %s", c, &errs)
	}
	for _, line := range lines[:2] {
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Errorf("%v: %s", err, line)
		}
	}
}

func TestTopOnADumbTerminal(t *testing.T) {
	w := newWorld(t)
	w.busy()
	end := w.run("--policy", w.write("p.yaml", roomPolicy))
	var out, errs screen
	env := w.env(&out, &errs, "top")
	env.Screen, env.ASCII = DumbScreen, true
	code := make(chan int, 1)
	go func() { code <- Main(t.Context(), env) }()
	for range 6000 {
		if strings.Count(out.String(), "narthex default") >= 2 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	end()
	if c := <-code; c != exitFailure || !strings.Contains(errs.String(), "the daemon has ended") {
		t.Errorf("when the daemon ends: %d %s", c, &errs)
	}
	if got := out.String(); strings.Count(got, "narthex default") < 2 || strings.ContainsFunc(got, func(r rune) bool { return r > 126 || r == '\x1b' }) {
		t.Errorf("on a terminal without anything: %q", got)
	}
}

func TestTopWithoutADaemon(t *testing.T) {
	const nobody = "narthex: no daemon answers on DIR/default.sock: start it with `narthex run --policy FILE`\n"
	for _, args := range [][]string{{"top"}, {"top", "--once"}, {"top", "--json"}} {
		if got := newWorld(t).do(args...); got.Code != exitFailure || got.Err != nobody || got.Out != "" {
			t.Errorf("narthex %s: %+v", args, got)
		}
	}
	w := newWorld(t)
	var out, errs bytes.Buffer
	env := w.env(&out, &errs, "top")
	env.Screen = FullScreen
	if code := Main(t.Context(), env); code != exitFailure || strings.ReplaceAll(errs.String(), w.dir, "DIR") != nobody || out.Len() > 0 {
		t.Errorf("on a terminal: %d %q %q", code, &errs, &out)
	}
	if got := w.do("top", "--interval", "10ms"); got.Code != exitUsage || got.Err != "narthex: --interval 10ms: use 1s or more\n" {
		t.Errorf("an interval that is too short: %+v", got)
	}
}
