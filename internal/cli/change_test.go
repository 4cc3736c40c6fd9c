// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"narthex/internal/api"
	"narthex/internal/datapath"
)

var hashes = regexp.MustCompile(`[0-9a-f]{12}`)
var times = regexp.MustCompile(`\d\d:\d\d:\d\d`)

// said runs a command and leaves out what is different each time.
func (w *world) said(args ...string) result {
	w.t.Helper()
	got := w.do(args...)
	clean := func(s string) string {
		return times.ReplaceAllString(hashes.ReplaceAllString(s, "HASH"), "TIME")
	}
	return result{got.Code, clean(got.Out), clean(got.Err)}
}

func TestConfirm(t *testing.T) {
	w := newWorld(t)
	end := w.run("--policy", w.write("p.yaml", webPolicy))
	next := w.write("q.yaml", strings.Replace(webPolicy, "5/s", "6/s", 1))
	steps := []struct {
		args string
		want result
	}{
		{"confirm", result{Code: 1, Err: "narthex: there is nothing to confirm: the policy in force stays; `narthex status` says which it is and since when\n"}},
		{"reload --confirm 1ms", result{Code: 2, Err: "narthex: --confirm 1ms: use a time from 1s to 24h0m0s, such as 60s\n"}},
		{"reload --confirm 1m --shadow", result{Code: 2, Err: "narthex: --shadow puts nothing in force that could be confirmed: use one of the two\n"}},
		{"set connections.everyone.burst 4", result{Out: "connections.everyone.burst is 4 until the next reload; the buckets of its sources keep their level\n"}},
		{"reload " + next + " --confirm 1h", result{Out: "connections.everyone.burst is no longer 4 but as in the policy\ninstance default: DIR/q.yaml is in force until TIME, unless it is confirmed (HASH)\n"}},
		{"reload", result{Code: 1, Err: "narthex: the policy in force is not confirmed and would be taken back at TIME: keep it with `narthex confirm`, take it back with `narthex confirm --revert`, or give `narthex reload` a --confirm, too\n"}},
		{"confirm --revert", result{
			Out: "connections.everyone.burst is 4 again\ninstance default: DIR/p.yaml is in force again (HASH)\n",
			Err: "DIR/q.yaml holds the policy that was taken back: put it right before the next reload\n",
		}},
		{"reload " + next + " --confirm 1h", result{Out: "connections.everyone.burst is no longer 4 but as in the policy\ninstance default: DIR/q.yaml is in force until TIME, unless it is confirmed (HASH)\n"}},
		{"confirm", result{Out: "instance default: DIR/q.yaml stays in force (HASH)\n"}},
	}
	for _, s := range steps {
		if diff := cmp.Diff(s.want, w.said(strings.Fields(s.args)...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s.args, diff)
		}
		if strings.HasPrefix(s.args, "reload /") && !strings.Contains(w.said("status").Out, "\nnot confirmed: DIR/p.yaml (HASH) comes back at TIME; `narthex confirm` keeps this one\n") {
			t.Errorf("status: %s", w.said("status").Out)
		}
	}
	if out := w.said("status").Out; !strings.Contains(out, "\nlast change: confirm by ") || strings.Contains(out, "not confirmed") {
		t.Errorf("status: %s", out)
	}
	end()
}

func TestShadow(t *testing.T) {
	w := newWorld(t)
	end := w.run("--policy", w.write("p.yaml", webPolicy))
	next := w.write("q.yaml", strings.Replace(webPolicy, "burst: 3", "burst: 1", 1))
	none := result{Code: 1, Err: "narthex: no policy is tried out: begin with `narthex reload --shadow FILE`\n"}
	for _, args := range []string{"shadow", "shadow --json", "shadow --end", "shadow --watch"} {
		if diff := cmp.Diff(none, w.said(strings.Fields(args)...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", args, diff)
		}
	}
	if got := w.said("reload", "--shadow", w.write("bad.yaml", "nonsense")); got.Code != 2 || !strings.Contains(got.Err, "bad.yaml:1:1: ") {
		t.Errorf("a trial of nonsense: %+v", got)
	}
	want := result{Out: "instance default: DIR/q.yaml is tried out beside DIR/p.yaml (HASH, HASH); nothing else changes\n" +
		"`narthex shadow` shows what it would do differently, `narthex shadow --end` ends the trial\n"}
	if diff := cmp.Diff(want, w.said("reload", "--shadow", next)); diff != "" {
		t.Errorf("reload --shadow (-want +got):\n%s", diff)
	}
	for range 3 {
		w.kernel.Copy(datapath.Mirrored{
			Time: time.Now(), Weight: 1, Client: netip.MustParseAddrPort("10.0.0.1:4000"), Server: netip.MustParseAddrPort("192.0.2.1:80"),
			Service: "web", SYN: true, Kind: datapath.EventPass, Rule: "everyone",
		})
	}
	w.kernel.Copy(datapath.Mirrored{Missed: 2})
	w.kernel.Copy(datapath.Mirrored{Missed: 1}) // by then the one before is counted
	got := w.said("shadow").Out
	for _, want := range []string{
		"DIR/q.yaml (HASH) tried out beside DIR/p.yaml (HASH), for ",
		"\n3 SYNs and 0 requests: 1 would be decided as now, 2 otherwise\nthe kernel has done in 100.0% of them what is worked out here for the policy in force\n",
		"\nNOW -> WOULD BE\n2 SYNs to web: pass in class default (rule everyone) -> drop (rule everyone)\n    TIME  10.0.0.1\n",
		"\nRULE      OF           MATCHED  DROPPED  REJECTED  DEMOTED  KERNEL\neveryone  connections        3   0 -> 2         0        0  3 matched, 0 turned away\n",
		"\nnote: waiting is not tried out: ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("shadow lacks %q:\n%s", want, got)
		}
	}
	if out := w.said("status").Out; !strings.Contains(out, "\ntrial of DIR/q.yaml (HASH) by ") {
		t.Errorf("status: %s", out)
	}
	if got := w.said("set", "connections.everyone.burst", "2"); !strings.HasPrefix(got.Out, trialEnded+"\n") {
		t.Errorf("set: %+v", got)
	}
	if got := w.said("shadow", "--watch"); got.Code != 0 || !strings.Contains(got.Out, "\nended: set connections.everyone.burst by ") {
		t.Errorf("watching a trial that has ended: %+v", got)
	}
	if out := w.said("status").Out; !strings.Contains(out, " has ended: set connections.everyone.burst by ") {
		t.Errorf("status: %s", out)
	}
	if got := w.said("reload", "--shadow", next, "--for", "10ms"); got.Code != 0 || !strings.Contains(got.Out, "\nended: its time is over\n") ||
		got.Err != "instance default: DIR/q.yaml is tried out beside DIR/p.yaml (HASH, HASH); nothing else changes\n" {
		t.Errorf("reload --shadow --for: %+v", got)
	}
	replaced := make(chan result, 1)
	go func() { replaced <- w.said("reload", "--shadow", next, "--for", "5s") }()
	for !strings.Contains(w.said("status").Out, "\ntrial of ") {
		time.Sleep(time.Millisecond)
	}
	if got := w.said("reload", "--shadow", next); got.Code != 0 || got.Err != "the trial before has ended\n" {
		t.Errorf("a trial in place of another one: %+v", got)
	}
	select {
	case got := <-replaced:
		if got.Code != 1 || got.Out != "" || !strings.Contains(got.Err, "narthex: the trial has ended and is forgotten") {
			t.Errorf("the one before: %+v", got)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it waits for the other one")
	}
	if got := w.said("shadow", "--end"); got.Code != 0 || !strings.Contains(got.Out, "\nended: ended by ") {
		t.Errorf("shadow --end: %+v", got)
	}
	if diff := cmp.Diff(none, w.said("shadow")); diff != "" {
		t.Errorf("after the end (-want +got):\n%s", diff)
	}
	end()
}

func TestAges(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m", 200 * time.Minute: "3h20m", 50 * time.Hour: "2d",
	} {
		if got := ageText(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
	for want, c := range map[string]api.Change{
		"set classes.gold.max by alice": {What: "set classes.gold.max", By: "alice"}, "start": {What: "start"},
		"the policy was taken back by alice": {What: "revert", By: "alice"}, "the policy was taken back, as nobody has confirmed it": {What: "revert"},
	} {
		if got := lastChange(c); got != want {
			t.Errorf("%+v: %s, want %s", c, got, want)
		}
	}
	var b strings.Builder
	printChange(&b, api.Status{Policy: api.PolicyStatus{Change: &api.Change{What: "SIGHUP", At: time.Unix(0, 0)}, Unconfirmed: &api.Unconfirmed{
		Until: time.Unix(0, 0), Previous: api.Previous{File: "p", Hash: "0123456789abcdef"}, Fault: "no",
	}}}, time.Unix(60, 0))
	if got := times.ReplaceAllString(b.String(), "TIME"); got != "last change: SIGHUP, 1m ago\nnot confirmed: p (0123456789ab) comes back at TIME; `narthex confirm` keeps this one\nnote: it could not be taken back: no\n" {
		t.Errorf("%q", got)
	}
}
