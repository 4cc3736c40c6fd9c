// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/lab/origin"
	"narthex/internal/live"
	"narthex/test/nettest"
)

const agreedPolicy = `
version: 1
services: [{name: shop, listen: ["*:80"], concurrency: 2, queue: {size: 8, max_wait: 20s}}, {name: mail, listen: ["*:25"], protocol: tcp, mode: shadow}]
classes: [{name: gold, priority: 1, max: 1}, {name: bronze, priority: 2}]
connections:
  - {name: made-up, from: [198.18.0.0/15], action: drop}
  - {name: partner, from: [%s], class: gold}
  - {name: others, rate: 1000/s, burst: 1000, per: source}
requests:
  - {name: banned, path: /banned, action: reject}
  - {name: login, path: /login, rate: 1/m, burst: 2}
`

// Status, metrics, top and the dashboard show the same figures of the same traffic, to the digit.
func TestAllFiguresAgree(t *testing.T) {
	t.Parallel()
	rig := nettest.Lab(t, 2)
	to, tell := netip.AddrPortFrom(rig.ServerV4, 80), netip.AddrPortFrom(rig.ServerV4, 8000)
	_, err := origin.Start(rig.Server, origin.Config{Listen: []netip.AddrPort{to}, Control: []netip.AddrPort{tell}})
	nettest.Check(t, err)
	address := freeAddress(t)
	in := start(t, rig.Server, fmt.Sprintf(agreedPolicy, rig.ClientsV4[0]), "--metrics", address)

	var wait sync.WaitGroup
	ask := func(client int, paths ...string) {
		wait.Go(func() {
			for _, path := range paths {
				_, _ = get(rig.Client, to, path, rig.ClientsV4[client], patience) // some are turned away
			}
		})
	}
	ask(0, "/wait?for=room")
	ask(1, "/wait?for=room")
	eventually(t, "there is no room", func() bool { return in.status().Services[0].InService == 2 })
	for i := range 24 {
		ask(i%2, "/", "/banned", "/login", "/", "/", "/")
	}
	eventually(t, "somebody waits", func() bool { return in.status().Services[0].Classes[1].Held > 0 })
	_, err = get(rig.Server, tell, "/go?for=room", netip.Addr{}, patience)
	nettest.Check(t, err)
	raw := nettest.Sender(t, rig.Client, "eth0")
	sendSYNs(t, rig, raw, to, 30)
	sendSYNs(t, rig, raw, netip.AddrPortFrom(rig.ServerV4, 25), 10)
	wait.Wait()

	var figures agreed
	// Neighbours are asked for and forgotten now and then, and that is counted, too.
	quiet := within(startPatience, func() bool {
		before := in.status()
		figures = in.figures(t, address)
		return cmp.Equal(before, in.status(), volatile...) && before.Services[0].InService == 0
	})
	if !quiet {
		t.Fatalf("after %v there is still something to count", startPatience)
	}
	if s := figures.status.Services[0]; s.Dropped != 30 || s.Classes[0].Served == 0 || s.Classes[1].Held == 0 || s.Classes[1].Rejected["rule"] == 0 {
		t.Errorf("there is too little to compare: %+v", s)
	}
	for name, other := range map[string]api.Status{"narthex status --json": figures.command, "narthex top": figures.top.Status, "the dashboard": figures.dashboard.Status} {
		if diff := cmp.Diff(figures.status, other, volatile...); diff != "" {
			t.Errorf("%s (-status +it):\n%s", name, diff)
		}
	}
	for name, view := range map[string]live.View{"top": figures.top, "the dashboard": figures.dashboard} {
		for i, s := range figures.status.Services {
			for j := range view.Services[i].Classes {
				c := view.Services[i].Classes[j]
				if view.Services[i].Name != s.Name || c.Name != s.Classes[j].Name || c.InService != s.Classes[j].InService || c.Waiting != s.Classes[j].Waiting {
					t.Errorf("%s has %+v of service %s, status %+v", name, c, s.Name, s.Classes[j])
				}
			}
		}
	}
	if diff := cmp.Diff(exposed(figures.status), figures.metrics); diff != "" {
		t.Errorf("metrics (-status +metrics):\n%s", diff)
	}
	tool := exec.Command("promtool", "check", "metrics")
	tool.Stdin = strings.NewReader(figures.text)
	if out, err := tool.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// volatile is what is no figure of the traffic: who looks at it is counted, too.
var volatile = cmp.Options{
	cmpopts.IgnoreFields(api.Status{}, "Events"), cmpopts.IgnoreFields(api.ServiceStatus{}, "CPU"), cmpopts.IgnoreFields(api.ServicePool{}, "CPU"),
	cmpopts.EquateEmpty(),
}

// agreed are the figures of one moment from everywhere.
type agreed struct {
	status, command api.Status
	top, dashboard  live.View
	metrics         map[string]float64
	text            string // of the metrics
}

func (in *instance) figures(t *testing.T, address string) (f agreed) {
	t.Helper()
	f.status = in.status()
	decode := func(text string, into any) {
		t.Helper()
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
	}
	decode(must(t, in.command("status", "--json")...), &f.command)
	decode(must(t, in.command("top", "--once", "--json")...), &f.top)
	f.dashboard = firstView(t, "http://"+address+"/live")
	f.text = fetch(t, "http://"+address+"/metrics")
	f.metrics = counters(t, f.text)
	maps.DeleteFunc(f.metrics, func(name string, _ float64) bool { return strings.Contains(name, "_cgroup_cpu_seconds_") }) // it goes on
	return f
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	nettest.Check(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, resp.Status, err)
	}
	return string(text)
}

// firstView reads the first view that the dashboard is sent.
func firstView(t *testing.T, url string) (v live.View) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	nettest.Check(t, err)
	resp, err := http.DefaultClient.Do(req)
	nettest.Check(t, err)
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("%s: %s, %v", url, resp.Status, err)
		}
		if data, is := strings.CutPrefix(line, "data:"); is {
			nettest.Check(t, json.Unmarshal([]byte(data), &v))
			return v
		}
	}
}

// counters are the counters of Narthex's metrics, by name and labels. Those of what looks at
// the daemon are left out, and those that begin with the daemon.
func counters(t *testing.T, text string) map[string]float64 {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewBufferString(text))
	nettest.Check(t, err)
	found := map[string]float64{}
	for name, f := range families {
		if !strings.HasPrefix(name, "narthex_") || strings.HasPrefix(name, "narthex_events") || strings.HasPrefix(name, "narthex_policy") {
			continue
		}
		for _, m := range f.Metric {
			key := name
			for _, l := range m.Label {
				if l.GetName() != "narthex_instance" {
					key += " " + l.GetValue()
				}
			}
			switch {
			case m.Counter != nil:
				found[key] = m.Counter.GetValue()
			case m.Histogram != nil:
				found[key+" sum"], found[key+" count"] = m.Histogram.GetSampleSum(), float64(m.Histogram.GetSampleCount())
			case strings.HasPrefix(name, "narthex_requests_"), strings.HasPrefix(name, "narthex_slots"), strings.HasPrefix(name, "narthex_flows"):
				found[key] = m.Gauge.GetValue()
			}
		}
	}
	return found
}

// exposed is what metrics have to say of a status, as counters returns it.
func exposed(s api.Status) map[string]float64 {
	want := map[string]float64{}
	verdicts := func(name, of string, c datapath.Counts) {
		want[name+" "+of+" passed"], want[name+" "+of+" dropped"] = float64(c.Passed), float64(c.Dropped)
		want[name+" "+of+" would_drop"] = float64(c.WouldDrop)
	}
	for _, r := range s.Rules {
		verdicts("narthex_rule_syns_total", r.Name, r.Counts.Counts)
	}
	for _, r := range s.Requests {
		verdicts("narthex_rule_requests_total", r.Name, r.Counts.Counts)
	}
	for reason, c := range s.Reasons {
		verdicts("narthex_unruled_packets_total", reason, c)
	}
	w := s.WaitingRoom
	want["narthex_slots"], want["narthex_slots_free"] = float64(w.Slots), float64(w.FreeSlots)
	want["narthex_flows"], want["narthex_flows_used"] = float64(w.Flows), float64(w.UsedFlows)
	for _, service := range s.Services {
		verdicts("narthex_syns_total", service.Name, service.Counts.Counts)
		if service.RoomStatus == nil {
			continue
		}
		want["narthex_requests_gathering "+service.Name] = float64(service.Gathering)
		want["narthex_requests_waiting_limit "+service.Name] = float64(service.QueueSize)
		if a := service.Adaptation; a != nil {
			want["narthex_service_overloads_total "+service.Name] = float64(a.Overloads)
		}
		for _, c := range service.Classes {
			of := " " + c.Name + " " + service.Name
			for name, n := range map[string]uint64{
				"": c.Arrived, "admitted_": c.Admitted, "held_": c.Held, "released_": c.Released, "gave_up_": c.GaveUp, "ahead_": c.Ahead,
				"would_hold_": c.WouldHold, "served_": c.Served, "lost_": c.Lost, "paused_": c.Paused,
			} {
				want["narthex_requests_"+name+"total"+of] = float64(n)
			}
			for _, reason := range datapath.RejectNames() {
				want["narthex_requests_rejected_total "+c.Name+" "+reason+" "+service.Name] = float64(c.Rejected[reason])
			}
			want["narthex_request_bytes_total"+of], want["narthex_answer_bytes_total"+of] = float64(c.BytesIn), float64(c.BytesOut)
			want["narthex_requests_in_service"+of], want["narthex_requests_waiting"+of] = float64(c.InService), float64(c.Waiting)
			for name, d := range map[string]api.Durations{"wait": c.Wait, "service": c.Service} {
				of := "narthex_request_" + name + "_seconds" + of
				want[of+" sum"], want[of+" count"] = d.Sum, float64(d.Count)
			}
		}
	}
	return want
}

// freeAddress returns an address of this machine on which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	nettest.Check(t, err)
	defer l.Close()
	return l.Addr().String()
}
