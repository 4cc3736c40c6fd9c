// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/internal/load"
)

// Gold clients, one of whom at a time is served, are held and released while bronze requests
// wait: one of those occupies the server and no more may. What is to be measured is a hold and
// a release, and not what the kernels do meanwhile about connections that do not answer:
//
//   - The clients would send their held requests again and again. On the route that they use
//     they wait for long before they do.
//   - The server's kernel sends the SYN-ACK of each waiting connection again after 1 s, 3 s and
//     7 s. Measured is between the last two.
//   - A kernel gives connections up once there are more than half the backlog of them.
const (
	flatGold    = 8
	flatBacklog = 65535
	flatOpen    = 1500 * time.Millisecond // time for all to connect
	flatQuiet   = 3500 * time.Millisecond // then until no SYN-ACK is sent again, 3 s after the last SYN
	flatLength  = 1900 * time.Millisecond // before the first one is, 7 s after the first SYN
)

var flatRoom = room{concurrency: 2, queue: "size: 30000, max_wait: 1m", bronze: "max: 1"}

var flatWaiting = []int{10, 1000, 20000}

// flat: what a hold and a release cost while many others wait.
func (b suite) flat(ctx context.Context) (figures []bench.Figure, err error) {
	// From here on the kernel counts the time of programs, which takes some, too.
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stats.Close()) }()
	st, err := b.stage("flat")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	if err := st.prepareFlat(); err != nil {
		return nil, err
	}
	last := len(flatWaiting) - 1
	list := []bench.Figure{
		{What: fmt.Sprintf("time of programs per request, %d waiting / %d", flatWaiting[last], flatWaiting[0]), Wanted: bench.AtMost(1.3)},
		{What: fmt.Sprintf("time of programs per request, %d waiting / %d", flatWaiting[1], flatWaiting[0]), Wanted: bench.AtMost(1.3)},
		{What: fmt.Sprintf("work per request, %d waiting / %d", flatWaiting[last], flatWaiting[0])},
	}
	for _, n := range flatWaiting {
		list = append(list, bench.Figure{What: fmt.Sprintf("time of programs per request, %d waiting", n), Unit: "µs"})
	}
	for _, n := range flatWaiting {
		list = append(list, bench.Figure{What: fmt.Sprintf("work per request, %d waiting", n), Unit: "µs"})
	}
	t := bench.NewTable(*runs, list...)
	for t.Next() {
		var programs, work [3]float64
		var why []string
		for _, i := range bench.Turned(t, 0, 1, 2) {
			var w string
			if programs[i], work[i], w, err = st.amid(ctx, flatWaiting[i]); err != nil {
				return t.Done(), err
			}
			why = append(why, w)
		}
		if t.Refuse(why...) {
			continue
		}
		t.Add(slices.Concat([]float64{programs[last] / programs[0], programs[1] / programs[0], work[last] / work[0]}, programs[:], work[:])...)
	}
	return t.Done(), nil
}

func (st *stage) prepareFlat() error {
	if err := st.rig.Server.Sysctl("core/somaxconn", fmt.Sprint(flatBacklog)); err != nil {
		return err
	}
	cmd := st.rig.Client.Command("ip", "route", "add", st.rig.ServerV4.String(), "dev", lab.Dev, "rto_min", "30s")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("have clients wait before they send again: %w: %s", err, out)
	}
	_, err := st.origin(origin.Config{Backlog: flatBacklog})
	return err
}

// amid measures gold clients while so many bronze requests wait. Times are per gold request,
// in microseconds.
func (st *stage) amid(ctx context.Context, waiting int) (programs, work float64, invalid string, err error) {
	n, err := st.narthex(ctx, flatRoom, "--slots", "32768")
	if err != nil {
		return 0, 0, "", err
	}
	defer func() { err = errors.Join(err, n.Stop()) }()
	attached, err := bench.OpenPrograms(n.Instance)
	if err != nil {
		return 0, 0, "", err
	}
	defer attached.Close()

	blocker := st.bronzeClients()
	blocker.Path, blocker.Timeout = "/wait?for=nobody", time.Minute
	blocked, err := bench.Gather(ctx, load.Closed{Client: blocker, Clients: 1})
	if err != nil {
		return 0, 0, "", err
	}
	defer blocked.End()
	c, err := bench.Gather(ctx, load.Closed{Client: st.goldClients(), Clients: flatGold})
	if err != nil {
		return 0, 0, "", err
	}
	defer c.End()
	if err := bench.Sleep(ctx, 100*time.Millisecond); err != nil {
		return 0, 0, "", err
	}
	end, err := st.Wait(st.rig, st.bronze, waiting, flatOpen)
	if err != nil {
		return 0, 0, "", err
	}
	defer func() { err = errors.Join(err, end()) }()
	if err := bench.Sleep(ctx, flatOpen+flatQuiet); err != nil {
		return 0, 0, "", err
	}
	before, err := attached.Spent()
	if err != nil {
		return 0, 0, "", err
	}
	s, err := st.Measure(ctx, c, 0, flatLength)
	if err != nil {
		return 0, 0, "", err
	}
	after, err := attached.Spent()
	if err != nil {
		return 0, 0, "", err
	}
	counts, err := readRoom(ctx, n)
	if err != nil {
		return 0, 0, "", err
	}
	programs = (after - before).Seconds() * 1e6 / float64(s.Answered())
	// That others take the core makes programs no slower.
	invalid = strings.Join(broken(s), ", ")
	if w := counts["bronze"].Waiting; invalid == "" && w < waiting*95/100 {
		invalid = fmt.Sprintf("%d of %d wait", w, waiting)
	}
	st.Progress("  %d waiting: %s µs of programs, %s µs of work per request; gold: %s; busy %.0f %%, clients %.0f %%; %s", counts["bronze"].Waiting,
		bench.Number(programs), bench.Number(s.PerAnswer()), bench.Outcomes(s.Reports[0]), 100*s.ServerBusy, 100*s.ClientBusy, invalid)
	return programs, s.PerAnswer(), invalid, nil
}
