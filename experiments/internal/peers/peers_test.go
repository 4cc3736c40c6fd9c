// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"narthex/internal/lab"
	"narthex/internal/load"
	"narthex/test/nettest"
)

// rig is a server's namespace and its clients', those of one kind and of the other.
type rig struct {
	*lab.Lab
	t           *testing.T
	web, behind netip.AddrPort
	ours, other []netip.Addr
}

var greedy = netip.MustParsePrefix("10.77.2.0/24")

func newRig(t *testing.T) *rig {
	l := nettest.Lab(t, 1)
	other := greedy.Addr().Next()
	nettest.Check(t, l.Client.AddAddr(lab.Dev, netip.PrefixFrom(other, 16)))
	return &rig{l, t, netip.AddrPortFrom(l.ServerV4, 80), netip.AddrPortFrom(l.ServerV4, 8080), l.ClientsV4, []netip.Addr{other}}
}

// started checks that a server has started and that its configuration passes the check of
// its program without a word of complaint.
func (l *rig) started(s *lab.Server, err error) *lab.Server {
	l.t.Helper()
	nettest.Check(l.t, err)
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.PID()))
	nettest.Check(l.t, err)
	args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	check, quiet := "-t", []string{"Syntax OK", "syntax is ok", "test is successful", "Configuration file is valid"}
	if strings.Contains(args[0], "haproxy") {
		check = "-c"
	}
	args = slices.DeleteFunc(args, func(a string) bool { return a == "-db" || a == "-DFOREGROUND" })
	if strings.HasPrefix(args[0], "nginx: ") { // nginx changes its title
		args = append([]string{lab.NginxBinary}, strings.Fields(args[0])[4:]...)
	}
	out, err := l.Server.Command(args[0], append(args[1:], check)...).CombinedOutput()
	if err != nil {
		l.t.Fatalf("%q: %v: %s", args, err, out)
	}
	for word := range strings.Lines(string(out)) {
		if !slices.ContainsFunc(quiet, func(q string) bool { return strings.Contains(word, q) }) {
			l.t.Errorf("%v says %s", args, out)
		}
	}
	return s
}

func (l *rig) apache(a Apache) *lab.Server {
	l.t.Helper()
	if len(a.Listen) == 0 {
		a.Listen = []netip.AddrPort{l.web}
	}
	if a.Workers == 0 {
		a.Workers = 4
	}
	return l.started(a.Start(l.Server))
}

// offered is how many connections per second are opened, limited and burst what is let through.
const (
	offered = 200
	limited = 5
	burst   = 3
)

// clients ask for a path from some addresses.
func (l *rig) clients(sources []netip.Addr, path string) load.Client {
	return load.Client{NS: l.Client, Target: l.web, Sources: sources, Path: path, Duration: time.Minute, ConnectTimeout: load.OneSYN}
}

// loop is either kind of load.
type loop interface {
	Start(context.Context) (*load.Run, error)
}

// until has the loops run until what came of them is enough, or for half a minute.
func (l *rig) until(enough func([]*load.Report) bool, loops ...loop) (reports []*load.Report) {
	l.t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	var runs []*load.Run
	for _, loop := range loops {
		run, err := loop.Start(ctx)
		nettest.Check(l.t, err)
		runs, reports = append(runs, run), append(reports, nil)
	}
	totals := func() []*load.Report {
		for i, r := range runs {
			reports[i] = r.Total()
		}
		return reports
	}
	for ctx.Err() == nil && !enough(totals()) {
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	for _, r := range runs {
		_, err := r.Wait()
		nettest.Check(l.t, err)
	}
	return totals()
}

// outcomes says what came of a loop.
func outcomes(r *load.Report) (s string) {
	for o, n := range r.Outcomes {
		if n > 0 {
			s += fmt.Sprintf("%d %s, ", n, load.Outcome(o))
		}
	}
	return s + fmt.Sprintf("statuses %v", r.Statuses)
}

// only reports whether all requests that have ended did so in one of the given ways.
func only(r *load.Report, how ...load.Outcome) bool {
	for o, n := range r.Outcomes {
		if o := load.Outcome(o); n > 0 && o != load.Unfinished && !slices.Contains(how, o) {
			return false
		}
	}
	return true
}

// mustLimit has some ask for what is limited, and others for what is not, by path or by source.
func (l *rig) mustLimit(c Class, how load.Outcome) {
	l.t.Helper()
	sources, theirs := l.ours, "/free"
	if c.From.IsValid() {
		sources = l.other
	}
	if c.Path == "" {
		theirs = "/greedy"
	}
	begun := time.Now()
	r := l.until(func(r []*load.Report) bool {
		return r[0].Outcomes[load.OK] > 0 && r[0].Outcomes[how] > 50 && r[1].Outcomes[load.OK] > 50
	}, load.Open{Rate: offered, Client: l.clients(sources, In("/greedy", File8K))},
		load.Open{Rate: offered, Client: l.clients(l.ours, In(theirs, File1K))})
	most := limited*uint64(time.Since(begun)/time.Second+2) + 2*burst
	if ok := r[0].Outcomes[load.OK]; ok == 0 || ok > most || !only(r[0], load.OK, how) {
		l.t.Errorf("limited: %s; want at most %d ok and the rest %v", outcomes(r[0]), most, how)
	}
	if how == load.OtherStatus && r[0].Statuses[503] != r[0].Outcomes[how] {
		l.t.Errorf("limited: %s; want 503", outcomes(r[0]))
	}
	if r[1].Outcomes[load.OK] < 50 || !only(r[1], load.OK) {
		l.t.Errorf("not limited: %s; want all ok", outcomes(r[1]))
	}
}
