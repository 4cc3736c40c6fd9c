// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"narthex/internal/api"
	"narthex/internal/datapath"
)

// screen is what a command has written so far.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// shows waits for a number of lines, of whatever was written at once.
func (s *screen) shows(t *testing.T, lines int) string {
	t.Helper()
	for range 2000 {
		if text := s.String(); strings.Count(text, "\n") >= lines {
			return text
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("no %d lines:\n%s", lines, s)
	return ""
}

// showing is `narthex events` in the background.
type showing struct {
	out, errs screen
	code      chan int
}

// events starts the command and waits until it listens.
func (w *world) events(change func(*Env), args ...string) *showing {
	w.t.Helper()
	s := &showing{code: make(chan int, 1)}
	env := w.env(&s.out, &s.errs, append([]string{"events"}, args...)...)
	if change != nil {
		change(&env)
	}
	go func() { s.code <- Main(w.t.Context(), env) }()
	if got := s.errs.shows(w.t, 1); got != "listening to events of instance default\n" {
		w.t.Fatalf("narthex events %s: %s", args, got)
	}
	return s
}

// ends waits for the command's end.
func (s *showing) ends(t *testing.T, want int) {
	t.Helper()
	select {
	case code := <-s.code:
		if code != want {
			t.Errorf("exit code %d, want %d: %s", code, want, &s.errs)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("it does not end:\n%s", &s.out)
	}
}

var eventsPolicy = webPolicy + `classes: [{name: gold, priority: 1}, {name: bronze, priority: 2}]
requests: [{name: login, path: /login, rate: 5/s}]
`

func turnedAway() datapath.Event {
	return datapath.Event{
		Time: time.Date(2026, 11, 22, 10, 0, 0, 123e6, time.Local), Kind: datapath.EventReject,
		Client: netip.MustParseAddrPort("192.0.2.7:50000"), Server: netip.MustParseAddrPort("198.51.100.1:80"),
		Service: "web", Class: "gold", Rule: "login", Request: true, Reason: "rule", Answer: "429 slow", Rated: true, Tokens: 0.25, Burst: 5,
	}
}

var moreEvents = []datapath.Event{
	{
		Time: turnedAway().Time, Kind: datapath.EventDrop, Client: netip.MustParseAddrPort("[2001:db8:1:2:3:4:5:6]:50000"),
		Server: turnedAway().Server, Service: "web", Reason: "syn_data",
	},
	{
		Time: turnedAway().Time, Kind: datapath.EventReject, Client: turnedAway().Client, Server: turnedAway().Server,
		Service: "web", Class: "bronze", Reason: "max_wait", Answer: "503", Waited: 1500 * time.Millisecond,
	},
	{
		Time: turnedAway().Time, Kind: datapath.EventDemote, Shadow: true, Client: turnedAway().Client, Server: turnedAway().Server,
		Service: "web", Class: "bronze", Rule: "login", Request: true, Reason: "rule", Rated: true, Tokens: -0.04, Burst: 5,
	},
}

func TestEvents(t *testing.T) {
	w := newWorld(t)
	end := w.run("--policy", w.write("p.yaml", eventsPolicy))
	s := w.events(nil)
	w.kernel.Tell(turnedAway())
	s.out.shows(t, 2) // at once
	for _, e := range moreEvents {
		w.kernel.Tell(e)
	}
	s.out.shows(t, 8)
	w.kernel.Tell(datapath.Event{Kind: datapath.EventMissed, Missed: 12})
	s.out.shows(t, 9)
	w.kernel.Tell(datapath.Event{Kind: datapath.EventMissed, Missed: 1})
	const want = `TIME          WHAT    CLIENT                 SERVICE  CLASS    RULE        BUCKET  REASON      WAITED  LIMIT  ANSWER
10:00:00.123  reject  192.0.2.7:50000        web      gold     login       0.2/5   rule        -       -      429 slow
TIME          WHAT    CLIENT                        SERVICE  CLASS    RULE        BUCKET  REASON      WAITED  LIMIT  ANSWER
10:00:00.123  drop    [2001:db8:1:2:3:4:5:6]:50000  web      -        -           -       syn_data    -       -      -
TIME          WHAT    CLIENT                        SERVICE  CLASS    RULE        BUCKET  REASON      WAITED  LIMIT                ANSWER
10:00:00.123  reject  192.0.2.7:50000               web      bronze   -           -       max_wait    1.5s    unlimited by policy  503
TIME          WHAT          CLIENT                        SERVICE  CLASS    RULE        BUCKET  REASON      WAITED  LIMIT                ANSWER
10:00:00.123  would demote  192.0.2.7:50000               web      bronze   login       -0.1/5  rule        -       -                    -
... 12 events missed
... 1 event missed
`
	if diff := cmp.Diff(want, s.out.shows(t, 10)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	end()
	s.ends(t, 1) // the daemon is gone
	if got := s.errs.String(); !strings.HasSuffix(got, "narthex: the daemon has ended\n") {
		t.Errorf("said %q", got)
	}
}

// The first fingerprint gives all events from then on a column of their own.
func TestEventsWithFingerprints(t *testing.T) {
	w := newWorld(t)
	end := w.run("--policy", w.write("p.yaml", eventsPolicy))
	s := w.events(nil)
	printed := turnedAway()
	printed.JA4 = "t13d1516h2_8daaf6152771_e5627efa2ab1"
	for _, e := range []datapath.Event{turnedAway(), printed, turnedAway()} {
		w.kernel.Tell(e)
	}
	const want = `TIME          WHAT    CLIENT                 SERVICE  CLASS    RULE        BUCKET  REASON      WAITED  LIMIT  ANSWER
10:00:00.123  reject  192.0.2.7:50000        web      gold     login       0.2/5   rule        -       -      429 slow
TIME          WHAT    CLIENT                 SERVICE  CLASS    RULE        BUCKET  REASON      WAITED  LIMIT  ANSWER    JA4
10:00:00.123  reject  192.0.2.7:50000        web      gold     login       0.2/5   rule        -       -      429 slow  t13d1516h2_8daaf6152771_e5627efa2ab1
10:00:00.123  reject  192.0.2.7:50000        web      gold     login       0.2/5   rule        -       -      429 slow  -
`
	if diff := cmp.Diff(want, s.out.shows(t, 5)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	end()
	s.ends(t, 1)
}

func TestEventsInColour(t *testing.T) {
	w := newWorld(t)
	defer w.run("--policy", w.write("p.yaml", eventsPolicy))()
	bare, coloured := w.events(nil, "--count", "4"), w.events(func(e *Env) { e.Colours = true }, "--count", "4")
	for _, e := range append(moreEvents, turnedAway()) {
		w.kernel.Tell(e)
	}
	bare.ends(t, 0)
	coloured.ends(t, 0)
	text := coloured.out.String()
	without := regexp.MustCompile("\x1b\\[[0-9]*m").ReplaceAllString(text, "")
	if diff := cmp.Diff(bare.out.String(), without); diff != "" || !strings.Contains(text, "\x1b[31mreject\x1b[0m ") {
		t.Errorf("in colour: %q (-without +with):\n%s", text, diff)
	}
}

func TestEventsAsJSON(t *testing.T) {
	w := newWorld(t)
	defer w.run("--policy", w.write("p.yaml", eventsPolicy))()
	s := w.events(nil, "--json", "--count", "2", "--rule", "login")
	w.kernel.Tell(datapath.Event{Kind: datapath.EventMissed, Missed: 3}) // which does not count
	s.out.shows(t, 1)
	e := turnedAway()
	e.Time = e.Time.UTC()
	w.kernel.Tell(e)
	for _, other := range moreEvents {
		w.kernel.Tell(other)
	}
	s.ends(t, 0)
	missed, rest, _ := strings.Cut(s.out.String(), "\n")
	if !strings.HasSuffix(missed, `"kind":"missed","missed":3}`) {
		t.Errorf("missed: %s", missed)
	}
	const want = `"kind":"reject","client":"192.0.2.7:50000","server":"198.51.100.1:80","service":"web","class":"gold",` +
		`"rule":"login","rule_kind":"request","reason":"rule","answer":"429 slow","level":{"tokens":0.25,"burst":5}}` + "\n"
	first, second, _ := strings.Cut(rest, "\n")
	if !strings.HasSuffix(first+"\n", want) || !strings.Contains(second, `"kind":"demote","shadow":true,`) {
		t.Errorf("events as JSON:\n%s", rest)
	}
}

func TestSummaryOfEvents(t *testing.T) {
	w := newWorld(t)
	defer w.run("--policy", w.write("p.yaml", eventsPolicy))()
	text, asJSON := w.events(nil, "--summary", "--count", "6"), w.events(nil, "--summary", "--json", "--count", "6")
	w.kernel.Tell(datapath.Event{Kind: datapath.EventMissed, Missed: 12})
	admitted := turnedAway()
	admitted.Kind = datapath.EventAdmit
	for _, e := range append(moreEvents, turnedAway(), turnedAway(), admitted) {
		w.kernel.Tell(e)
	}
	text.ends(t, 0)
	asJSON.ends(t, 0)
	const want = `6 events in TIME, 12 missed: 1 admit, 1 drop, 3 reject, 1 would demote
TURNED AWAY                        EVENTS
client       192.0.2.7                  4
client       2001:db8:1:2:3:4:5:6       1
rule         login                      3
class        bronze                     2
class        gold                       2
reason       rule                       3
reason       max_wait                   1
reason       syn_data                   1
`
	got := regexp.MustCompile(` in [^,]+,`).ReplaceAllString(text.out.String(), " in TIME,")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	for _, part := range []string{`"turned_away": 5,`, `"missed": 12,`, `"would demote": 1`, `"name": "192.0.2.7",`} {
		if !strings.Contains(asJSON.out.String(), part) {
			t.Errorf("the summary as JSON has no %s:\n%s", part, &asJSON.out)
		}
	}
}

// Forged addresses hide nobody who comes later.
func TestSummaryOfAFlood(t *testing.T) {
	s := newEventSummary(time.Now())
	see := func(addr netip.Addr) {
		_ = s.add(api.Event{Kind: "drop", Client: netip.AddrPortFrom(addr, 1).String()})
	}
	heavy, forged := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("10.0.0.0")
	const flood, until, times = 3 * mostTallied, 2 * mostTallied, 1000
	for i := range flood {
		see(forged)
		forged = forged.Next()
		if i >= until && i < until+times {
			see(heavy)
		}
	}
	counted := s.clients.forgotten
	for _, n := range s.clients.counts {
		counted += n
	}
	if most := s.clients.most(); most[0] != (tallied{heavy.String(), times}) || len(s.clients.counts) > mostTallied || counted != flood+times {
		t.Errorf("most %v of %d clients, %d events, want %s with %d", most, len(s.clients.counts), counted, heavy, times)
	}
	var text, asJSON bytes.Buffer
	if err := errors.Join(s.print(Env{Stdout: &text}, false), s.print(Env{Stdout: &asJSON}, true)); err != nil {
		t.Fatal(err)
	}
	said := fmt.Sprintf("too many clients to count: %d events are in no client's number\n", s.clients.forgotten)
	field := fmt.Sprintf(`"clients_forgotten": %d`, s.clients.forgotten)
	if !strings.HasSuffix(text.String(), said) || !strings.Contains(asJSON.String(), field) {
		t.Errorf("not said: %s\n%s\n%s", said, &text, &asJSON)
	}
}

func TestSampleOfEvents(t *testing.T) {
	w := newWorld(t)
	defer w.run("--policy", w.write("p.yaml", eventsPolicy))()
	s := w.events(nil, "--sample", "3", "--rule", "login", "--json", "--count", "2")
	for i := range 6 {
		w.kernel.Tell(moreEvents[0]) // which does not fit
		e := turnedAway()
		e.Client = netip.AddrPortFrom(e.Client.Addr(), uint16(1+i))
		w.kernel.Tell(e)
	}
	s.ends(t, 0)
	if text := s.out.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, ":1\"") || !strings.Contains(text, ":4\"") {
		t.Errorf("one in three of six:\n%s", text)
	}
}

func TestEventsEnd(t *testing.T) {
	w := newWorld(t)
	defer w.run("--policy", w.write("p.yaml", eventsPolicy))()
	w.events(nil, "--for", "1ms").ends(t, 0)

	s := w.events(nil)
	w.kernel.Tell(turnedAway())
	s.out.shows(t, 2)
	if err := unix.Kill(unix.Getpid(), unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	s.ends(t, 0)
	if got := s.errs.String(); strings.Contains(got, "narthex:") {
		t.Errorf("said %q", got)
	}
}

// What was kept of refusals is told later, and also that there is nothing.
func TestKeptEvents(t *testing.T) {
	w := newWorld(t)
	defer w.run("--policy", w.write("p.yaml", eventsPolicy), "--refusals", w.dir+"/kept")()
	const nothing = "nothing of the kind is kept since "
	if r := w.do("events", "--since", "1h"); r.Code != 0 || r.Out != "" || !strings.HasPrefix(r.Err, nothing) {
		t.Errorf("of nothing: %+v", r)
	}
	e := turnedAway()
	e.Time = time.Now()
	for !w.kernel.Tell(e) { // until the daemon listens
		time.Sleep(time.Millisecond)
	}
	client := e.Client.Addr().String()
	var r result
	for range 2000 {
		if r = w.do("events", "--since", "1h"); r.Out != "" {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if r.Code != 0 || r.Err != "" || !strings.Contains(r.Out, client) {
		t.Errorf("since an hour: %+v", r)
	}
	if r = w.do("events", "--since", "1h", "--from", "203.0.113.200"); !strings.HasPrefix(r.Err, nothing) {
		t.Errorf("of another: %+v", r)
	}
	if r = w.do("events", "--since", "1h", "--summary"); r.Code != 0 || !regexp.MustCompile(`^1 events in 36\d\ds, 0 missed: 1 reject\n`).MatchString(r.Out) || !strings.Contains(r.Out, client) {
		t.Errorf("a summary: %+v", r)
	}
	if r = w.do("explain", "--from", client, "--at", "0s"); r.Code != 0 || !strings.Contains(r.Out, e.Reason) {
		t.Errorf("explained: %+v", r)
	}
}

func TestWrongEvents(t *testing.T) {
	w := newWorld(t)
	tests := []struct {
		args string
		code int
		want string
	}{
		{"", 1, "narthex: no daemon answers on DIR/default.sock: start it with `narthex run --policy FILE`\n"},
		{"--count 0", 2, "narthex: --count 0: use 1 or more, or leave it out\n"},
		{"--sample 0", 2, "narthex: --sample 0: use 10 for one event in ten, or leave it out\n"},
		{"--for 0s", 2, "narthex: --for 0s: use a time such as 10s, or leave it out\n"},
		{"--for soon", 2, "narthex: invalid argument \"soon\" for \"--for\" flag: time: invalid duration \"soon\": see `narthex events --help`\n"},
		{"--kind bang", 2, "narthex: there is no kind of events \"bang\": use one of drop, reject, demote, hold, admit, release\n"},
		{"--from nobody", 2, "narthex: \"nobody\" is neither an address nor a prefix: write it like 192.0.2.1, 192.0.2.0/24 or 2001:db8::/32\n"},
		{"--rule=", 2, "narthex: --rule is empty: give it a value or leave it out\n"},
		{"more", 2, "narthex: this command takes options only, not 1 argument: see `narthex events --help`\n"},
	}
	check := func(args string, want result) {
		t.Helper()
		if diff := cmp.Diff(want, w.do(append([]string{"events"}, strings.Fields(args)...)...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", args, diff)
		}
	}
	for _, tt := range tests {
		check(tt.args, result{Code: tt.code, Err: tt.want})
	}
	defer w.run("--policy", w.write("p.yaml", eventsPolicy))()
	check("--rule logon", result{Code: 2, Err: "narthex: there is no rule in the policy in force called \"logon\"\n"})
}

func TestCompletionOfEvents(t *testing.T) {
	w := newWorld(t)
	defer w.run("--policy", w.write("p.yaml", eventsPolicy))()
	for flag, want := range map[string][]string{
		"--rule": {"everyone", "login"}, "--class": {"gold", "bronze"}, "--service": {"web"}, "--from": {},
		"--kind": {"drop", "reject", "demote", "hold", "admit", "release"},
	} {
		got := w.do("__complete", "events", flag, "")
		lines := strings.Split(strings.TrimSpace(got.Out), "\n")
		if lines = lines[:len(lines)-1]; !slices.Equal(lines, want) {
			t.Errorf("%s: %q, want %q", flag, lines, want)
		}
	}
	if got := w.do("__complete", "events", "--rule", "lo"); !strings.HasPrefix(got.Out, "login\n:") {
		t.Errorf("--rule lo: %q", got.Out)
	}
}

// The command writes an event at once, with one call.
func TestEventLinesAreWhole(t *testing.T) {
	var writes []string
	lines := eventLines{}
	for range 2 {
		if err := lines.print(writer(func(p []byte) { writes = append(writes, string(p)) }), api.Event{Kind: "drop", Client: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	if len(writes) != 2 || strings.Count(writes[0], "\n") != 2 || strings.Count(writes[1], "\n") != 1 {
		t.Errorf("written: %q", writes)
	}
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}
