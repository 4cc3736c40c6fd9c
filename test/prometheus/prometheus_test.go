// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"narthex/internal/daemon"
	"narthex/internal/datapath"
	"narthex/test/daemontest"
)

// fullPolicy has something of everything that metrics speak of.
const fullPolicy = `version: 1
pools: [{name: nginx, concurrency: 8, between: shares}]
services:
  - {name: shop, listen: "*:80", concurrency: {max: 40}}
  - {name: mail, listen: "*:25", protocol: tcp, concurrency: 2}
  - {name: blog, listen: "*:81", pool: nginx}
classes:
  - {name: gold, priority: 1, max: 3}
  - {name: bronze, priority: 2}
connections:
  - {name: everyone, rate: 5/s, burst: 3, per: source}
requests:
  - {name: cgi, path: "/cgi/*", rate: 5/s, when: overload}
`

// newFake runs a daemon on a kernel in memory, with requests in its waiting rooms.
func newFake(t *testing.T) *subject {
	t.Helper()
	kernel, network := daemontest.NewKernel(), daemontest.NewNetwork("eth0")
	room := datapath.Room{InService: 3, Waiting: 2, Gathering: 1, Classes: []datapath.RoomClass{
		{InService: 1, Arrived: 10, Admitted: 9, Served: 8},
		{InService: 2, Waiting: 2, Arrived: 90, Admitted: 10, Held: 70, Released: 60, Served: 70, Rejected: [datapath.RejectLen]uint64{0: 5, 2: 3}},
	}}
	room.Classes[1].Wait.Buckets[20], room.Classes[1].Wait.Sum = 60, time.Minute
	room.Classes[1].Service.Buckets[12], room.Classes[1].Service.Sum = 70, time.Second
	kernel.SetRooms(room, room, room, room)
	return newSubject(t, fullPolicy, daemon.Config{
		Instance: "default",
		Kernel: daemon.Kernel{
			Open:   func(cfg datapath.Config, _ int) (daemon.Datapath, error) { return kernel.Open(cfg), nil },
			Remove: kernel.Remove,
		},
		OpenNetwork: func(string, *slog.Logger) (daemon.Network, error) { return network, nil },
	})
}

// promtool runs Prometheus's own tool.
func promtool(t *testing.T, in *bytes.Buffer, args ...string) {
	t.Helper()
	cmd := exec.Command("promtool", args...)
	if in != nil {
		cmd.Stdin = in
	}
	out, err := cmd.CombinedOutput()
	if err != nil || in != nil && len(out) > 0 {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// alertNames are those of the packaged rules.
func alertNames(t *testing.T) (names []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(read(t, filepath.Join(packaged, "prometheus", "alerts.yml")), -1) {
		names = append(names, m[1])
	}
	if len(names) == 0 {
		t.Fatal("there are no alerts")
	}
	return names
}

// TestAlerts runs the tests that are packaged with the rules, which look at every one of them
// while all is well and while nothing is.
func TestAlerts(t *testing.T) {
	promtool(t, nil, "check", "rules", filepath.Join(packaged, "prometheus", "alerts.yml"))
	promtool(t, nil, "test", "rules", filepath.Join(packaged, "prometheus", "alerts_test.yml"))
	text := read(t, filepath.Join(packaged, "prometheus", "alerts_test.yml"))
	for _, name := range alertNames(t) {
		calm := fmt.Sprintf("{alertname: %s, eval_time: 50m, exp_alerts: []}", name)
		if !strings.Contains(text, calm) {
			t.Errorf("it is not tested that %s does not fire while all is well", name)
		}
		fires := []string{fmt.Sprintf("alertname=%q", name), "alertname: " + name + "\n"}
		if !slices.ContainsFunc(fires, func(s string) bool { return strings.Contains(text, s) }) {
			t.Errorf("it is not tested that %s fires", name)
		}
	}
}

// TestPrometheus has a real one scrape a daemon with the packaged configuration, and asks for all
// that the alerts and the dashboard ask for.
func TestPrometheus(t *testing.T) {
	fake := newFake(t)
	var exposition bytes.Buffer
	fake.scrape(t, &exposition)
	promtool(t, &exposition, "check", "metrics")

	p := startServer(t, fake.address)
	eventually(t, "there are three scrapes", func() bool { return len(p.series(`count_over_time(up{job="narthex"}[10m]) >= 3`)) == 1 })
	if up := p.series(`up{job="narthex",node="web1"} == 1`); len(up) != 1 {
		t.Fatalf("the daemon is not up: %v", up)
	}
	// Of several machines each is a target with an instance of its own, beside Narthex's.
	if found := p.series(`narthex_enforcing{narthex_instance="default"}`); len(found) != 1 || found[0]["exported_instance"] != "" || found[0]["instance"] != fake.address {
		t.Errorf("the label instance is not the target's: %v", found)
	}
	expressions := p.alerts()
	d, _ := readDashboard(t)
	expressions = append(expressions, d.expressions()...)
	names := map[string]bool{}
	for _, e := range expressions {
		for _, name := range regexp.MustCompile(`narthex_\w+`).FindAllString(e, -1) {
			names[name] = name != "narthex_instance" // a label
		}
	}
	for name, metric := range names {
		if metric && len(p.series(name)) == 0 {
			t.Errorf("there is no metric %s", name)
		}
	}
	for _, e := range d.expressions() {
		// What is 0 here is left out of some panels.
		if all := strings.NewReplacer(" > 0", "", " == 1", " == 0").Replace(e); len(p.series(all)) == 0 {
			t.Errorf("the dashboard asks for %s, which has no data", e)
		}
		p.series(e)
	}
	for variable, query := range d.queries(t) {
		m := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`).FindStringSubmatch(query)
		if m == nil {
			t.Fatalf("variable %s asks for %q", variable, query)
		}
		selector := regexp.MustCompile(`\$\w+`).ReplaceAllString(m[1], ".*")
		if found := p.series(selector); len(found) == 0 || found[0][m[2]] == "" {
			t.Errorf("variable %s asks for %s, which has no values: %v", variable, query, found)
		}
	}
}

// alerts waits until every alert was evaluated, and returns their expressions.
func (s *server) alerts() (expressions []string) {
	s.t.Helper()
	var names []string
	eventually(s.t, "all alerts were evaluated", func() bool {
		var answer struct {
			Groups []struct {
				Rules []struct{ Name, Query, Health, LastError string }
			}
		}
		if wrong := s.ask("rules", url.Values{"type": {"alert"}}, &answer); wrong != "" {
			s.t.Fatal(wrong)
		}
		names, expressions = nil, nil
		for _, g := range answer.Groups {
			for _, r := range g.Rules {
				if r.Health == "unknown" {
					return false
				}
				if r.Health != "ok" {
					s.t.Errorf("alert %s is %s: %s", r.Name, r.Health, r.LastError)
				}
				names, expressions = append(names, r.Name), append(expressions, r.Query)
			}
		}
		return true
	})
	want := alertNames(s.t)
	slices.Sort(names) // Prometheus sorts groups, as a file need not
	slices.Sort(want)
	if !slices.Equal(names, want) {
		s.t.Errorf("Prometheus has the alerts %s, want %s", names, want)
	}
	return expressions
}
