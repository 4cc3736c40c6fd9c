// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"narthex/internal/adapt"
	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/host"
	"narthex/internal/policy"
)

// bench is an agent whose time, rooms and machine a test makes.
type bench struct {
	*agent
	t       *testing.T
	now     time.Duration
	rooms   map[int]*datapath.RoomReading
	steered []datapath.Control // in order
	at      []int              // of which services
	failing error
	machine host.Reading
	log     bytes.Buffer
	policy  *policy.Policy
	tables  *policy.Tables
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, now: time.Second, rooms: map[int]*datapath.RoomReading{}}
	b.machine = host.Reading{Faults: host.Unknown, Stalls: host.Stalls{host.Unknown, host.Unknown, host.Unknown}}
	b.agent = newAgent(&engine{log: slog.New(slog.NewTextHandler(&b.log, nil)), dp: newMachine(t).kernel.Open(datapath.Config{})})
	b.agent.clock = func() time.Duration { return b.now }
	b.agent.wall = func() time.Time { return time.Unix(0, int64(b.now)) }
	b.agent.machine = func() *host.Reading { return &b.machine }
	b.agent.read = func(service int, into *datapath.RoomReading) error {
		*into = datapath.RoomReading{}
		if r := b.rooms[service]; r != nil {
			*into = *r
			into.Classes = append([]datapath.RoomClass(nil), r.Classes...)
		}
		return b.failing
	}
	b.agent.steer = func(service int, c datapath.Control) error {
		b.steered, b.at = append(b.steered, c), append(b.at, service)
		if r := b.rooms[service]; r != nil {
			r.Limit, r.Safe, r.Level = c.Limit, c.Safe, c.Level
		}
		return b.failing
	}
	return b
}

// enforce puts a policy in force.
func (b *bench) enforce(text string) {
	b.t.Helper()
	p, _, err := policy.Parse("test", []byte("version: 1\n"+text))
	if err != nil {
		b.t.Fatal(err)
	}
	tables, _, err := policy.Compile(p)
	if err != nil {
		b.t.Fatal(err)
	}
	before := b.tables
	b.policy, b.tables = p, tables
	b.follow(before, tables, false)
	for i := range tables.Services {
		if b.rooms[i] == nil {
			b.rooms[i] = &datapath.RoomReading{Room: datapath.Room{Classes: make([]datapath.RoomClass, len(tables.Classes))}}
		}
	}
}

// pass lets time go by, beat by beat as the agent asks for it.
func (b *bench) pass(d time.Duration, between func()) {
	b.t.Helper()
	for end := b.now + d; b.now < end; {
		if between != nil {
			between()
		}
		wait := b.beat()
		if wait <= 0 || wait > idleEvery {
			b.t.Fatalf("the next beat is in %v", wait)
		}
		b.now += wait
	}
}

// last is the control of a service that is in force.
func (b *bench) last(service int) (c datapath.Control) {
	for i, at := range b.at {
		if at == service {
			c = b.steered[i]
		}
	}
	return c
}

const autoService = "services: [{name: web, listen: \"*:80\"}]\nclasses: [{name: gold, priority: 1}, {name: bronze, priority: 2}]\n"

// flood has the service work on what its limit allows, at most so many at once on a server of
// two cores, in 5 ms each, and everything else wait. The machine's idle time stands still.
func (b *bench) flood(service, clients int) func() {
	const perSecond = 400
	var before time.Duration
	return func() {
		r := b.rooms[service]
		if before == 0 {
			before = b.now
		}
		served := uint64((b.now - before).Seconds() * perSecond)
		before += time.Duration(float64(served) / perSecond * float64(time.Second))
		in := clients
		if r.Limit > 0 {
			in = min(in, r.Limit)
		}
		c := &r.Classes[1]
		r.InService, r.Waiting, c.InService, c.Waiting = in, clients-in, in, clients-in
		c.Arrived, c.Served = c.Arrived+served, c.Served+served
		if r.Limit > 0 && clients > r.Limit {
			c.Held, c.Released = c.Held+served, c.Released+served
		} else {
			c.Admitted += served
		}
		took := time.Duration(in) * time.Second / perSecond
		for range served {
			var h adapt.Histogram
			h.Add(took)
			for i, n := range h.Buckets {
				c.Service.Buckets[i] += n
			}
		}
		c.Service.Sum += time.Duration(served) * took
	}
}

// TestAgentLimitsAFlood finds a limit under a flood, says so, and lets it go afterwards.
func TestAgentLimitsAFlood(t *testing.T) {
	b := newBench(t)
	b.enforce(autoService)
	b.machine.Idle = make([]time.Duration, 2)
	b.services[0].place = &whereabouts{Place: &host.Place{CPUs: []int{0, 1}}}
	b.pass(10*time.Second, b.flood(0, 100))
	c := b.last(0)
	if c.Limit < 1 || c.Limit > 50 || c.Level == policy.WhenAlways || c.Grace != controlGrace {
		t.Errorf("under a flood the control is %+v", c)
	}
	a := b.adaptation("web", b.tables.Classes)
	if !a.Auto || a.Limit != c.Limit || !a.Overload || a.Signal == "" || len(a.Keep) != 2 || a.Keep[0].Class != "gold" {
		t.Errorf("status %+v", a)
	}
	changes := b.changes("web")
	if len(changes) == 0 || changes[0].By != byAgent || changes[0].Reason == "" || changes[0].At.IsZero() {
		t.Errorf("changes %+v", changes)
	}
	if log := b.log.String(); !strings.Contains(log, `msg="limit of a service" service=web old=32`) || !strings.Contains(log, "by=agent") {
		t.Errorf("log:\n%s", log)
	}
	*b.rooms[0] = datapath.RoomReading{Room: datapath.Room{Classes: b.rooms[0].Classes}, Limit: c.Limit}
	b.rooms[0].Classes[1].InService, b.rooms[0].Classes[1].Waiting = 0, 0
	b.pass(30*time.Second, nil)
	if c := b.last(0); c.Level != policy.WhenAlways {
		t.Errorf("when nothing comes any more the control is %+v", c)
	}
}

// TestAgentRests reads an idle service seldom, samples it once a second, and a busy one often.
func TestAgentRests(t *testing.T) {
	b := newBench(t)
	b.enforce(autoService)
	seen := make(chan observation, 10_000)
	defer b.watch(seen)()
	reads := 0
	read := b.agent.read
	b.agent.read = func(service int, into *datapath.RoomReading) error {
		reads++
		return read(service, into)
	}
	b.pass(10*time.Second, nil)
	if n := len(seen); n < 7 || n > 12 || reads < 30 || reads > 60 {
		t.Errorf("idle for 10 s: %d samples, %d looks", n, reads)
	}
	before := len(seen)
	b.rooms[0].InService = 1
	b.pass(2*time.Second, nil)
	if n := len(seen) - before; n < 30 || n > 45 {
		t.Errorf("busy for 2 s: %d samples", n)
	}
	for len(seen) > 1 {
		if o := <-seen; o.service != "web" || o.sample.Span <= 0 || o.sample.Span > 1300*time.Millisecond {
			t.Fatalf("observation %+v", o)
		}
	}
}

// TestAgentBounds keeps limits between what the policy and overrides say.
func TestAgentBounds(t *testing.T) {
	b := newBench(t)
	b.enforce(strings.Replace(autoService, `"*:80"`, `"*:80", concurrency: {min: 20, max: 40}`, 1))
	b.machine.Idle = make([]time.Duration, 2)
	b.services[0].place = &whereabouts{Place: &host.Place{CPUs: []int{0, 1}}}
	b.pass(10*time.Second, b.flood(0, 100))
	for _, c := range b.steered {
		if c.Limit < 20 || c.Limit > 40 || c.Safe < 20 || c.Safe > 40 {
			t.Fatalf("control %+v", c)
		}
	}
	if a := b.adaptation("web", b.tables.Classes); a.Floor != 20 || a.Ceiling != 40 {
		t.Errorf("status %+v", a)
	}
}

// TestAgentGivesWay leaves a limit alone that the policy has, and takes it over from there.
func TestAgentGivesWay(t *testing.T) {
	b := newBench(t)
	fixed := strings.Replace(autoService, `"*:80"`, `"*:80", concurrency: 7`, 1)
	b.enforce(fixed)
	b.pass(3*time.Second, b.flood(0, 50))
	for _, c := range b.steered {
		if c.Limit != 7 || c.Safe != 7 {
			t.Fatalf("a fixed limit is steered: %+v", c)
		}
	}
	b.rooms[0].InService, b.rooms[0].Waiting, b.rooms[0].Limit = 7, 40, 7
	b.enforce(autoService)
	b.beat()
	if c := b.last(0); c.Limit != 7 {
		t.Errorf("begins with %+v, want the limit of 7 that was in force", c)
	}
	control := b.services[0].control
	b.enforce(autoService + "connections: [{name: a, from: 10.0.0.1, class: gold}]\n")
	if b.services[0].control != control {
		t.Error("a reload that changes nothing of a service forgets what was learned of it")
	}
	b.enforce(strings.Replace(autoService, `"*:80"`, `"*:80", concurrency: {max: 5}`, 1))
	if b.services[0].control != control {
		t.Error("other bounds forget what was learned of a service")
	}
	b.beat()
	if c := b.last(0); c.Limit != 5 || c.Safe != 5 {
		t.Errorf("with other bounds the control is %+v, want a limit of 5", c)
	}
	b.enforce(strings.Replace(autoService, `"*:80"`, `"*:80", protocol: tcp, concurrency: auto`, 1))
	if b.services[0].control == control {
		t.Error("what was learned of requests is taken for what holds for connections")
	}
	b.enforce(strings.Replace(fixed, "7", "unlimited", 1))
	if len(b.services) > 0 {
		t.Errorf("steers %+v", b.services)
	}
}

// TestAgentGoesOn keeps what it knows of a service in overload when a rule is added that asks for that, as somebody does
// in the middle of an incident.
func TestAgentGoesOn(t *testing.T) {
	b := newBench(t)
	one := `services: [{name: web, listen: "*:80"}]` + "\nclasses: [{name: bronze, priority: 2}]\n"
	b.enforce(one)
	b.machine.Idle = make([]time.Duration, 2)
	b.services[0].place = &whereabouts{Place: &host.Place{CPUs: []int{0, 1}}}
	b.rooms[0].Classes = make([]datapath.RoomClass, 2) // beside those of no class
	b.pass(10*time.Second, b.flood(0, 100))
	before := b.last(0)
	if before.Limit < 1 || before.Limit > 50 || before.Level == policy.WhenAlways {
		t.Fatalf("under a flood the control is %+v", before)
	}
	b.enforce(one + "connections: [{name: crawler, from: 10.0.0.0/24, action: drop, when: overload}]\n")
	b.pass(time.Second, b.flood(0, 100))
	for _, c := range b.steered[len(b.steered)-10:] {
		if c.Limit < 1 || c.Limit > 2*before.Limit || c.Level == policy.WhenAlways {
			t.Fatalf("after another policy the control is %+v, before %+v", c, before)
		}
	}
}

// TestAgentKeepsClassesApart does not take what one class has counted for what another has,
// where a reload brings other classes.
func TestAgentKeepsClassesApart(t *testing.T) {
	b := newBench(t)
	b.enforce(autoService)
	b.rooms[0].Classes[1].Arrived, b.rooms[0].InService = 1_000_000, 1
	b.pass(time.Second, nil)
	seen := make(chan observation, 1000)
	defer b.watch(seen)()
	b.rooms[0].Classes[0], b.rooms[0].Classes[1] = b.rooms[0].Classes[1], b.rooms[0].Classes[0]
	b.enforce(strings.NewReplacer("priority: 1", "priority: 2", "priority: 2", "priority: 1").Replace(autoService))
	b.pass(time.Second, nil)
	if len(seen) == 0 {
		t.Fatal("there are no samples")
	}
	for len(seen) > 0 {
		if o := <-seen; o.sample.Arrived != 0 {
			t.Errorf("%d arrived", o.sample.Arrived)
		}
	}
}

// TestAgentAdopts begins with the limit that another daemon left.
func TestAgentAdopts(t *testing.T) {
	b := newBench(t)
	b.rooms[0] = &datapath.RoomReading{Limit: 12, Safe: 30, Room: datapath.Room{InService: 12, Waiting: 5, Classes: make([]datapath.RoomClass, 2)}}
	p, _, err := policy.Parse("test", []byte("version: 1\n"+autoService))
	if err != nil {
		t.Fatal(err)
	}
	b.tables, _, err = policy.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	b.follow(nil, b.tables, true)
	b.pass(time.Second, b.flood(0, 60))
	for _, c := range b.steered {
		if c.Limit == 0 || c.Limit > 30 {
			t.Errorf("begins with %+v, want about the limit of 12 that was in force", c)
		}
	}
	b.rooms[0].InService, b.rooms[0].Waiting = 0, 0
	b.pass(5*time.Second, nil)
	if c := b.last(0); c.Limit > 0 && c.Limit < 60 {
		t.Errorf("an idle service has the control %+v, want a limit that holds nobody", c)
	}
}

// TestAgentShedsAtAFixedLimit drops SYNs of the lower class of a service with a number, while more of its
// requests are refused than is cheap, and leaves its limit alone.
func TestAgentShedsAtAFixedLimit(t *testing.T) {
	b := newBench(t)
	b.enforce(strings.Replace(autoService, `"*:80"`, `"*:80", concurrency: 7, queue: {size: 50}`, 1))
	b.rooms[0].Limit = 7
	flood := b.flood(0, 60)
	refuse := func(n uint64) func() {
		return func() {
			flood()
			c := &b.rooms[0].Classes[1]
			c.Arrived += n
			c.Rejected[roomRejects[0]] += n
		}
	}
	b.pass(3*time.Second, refuse(10))
	if c := b.last(0); c.Limit != 7 || c.Level == policy.WhenAlways || c.Keep != nil {
		t.Errorf("200 rejections a second: control %+v", c)
	}
	b.pass(3*time.Second, refuse(200))
	if c := b.last(0); c.Limit != 7 || len(c.Keep) != 2 || c.Keep[0] != 1 || c.Keep[1] > 0.2 {
		t.Errorf("4000 rejections a second: control %+v", c)
	}
}

// TestAgentAsksToClose has a server stop with all that was let in before it, where a number or what a class may have holds
// requests: it is asked to close connections, and more are let in meanwhile. When that is of no use both hold again.
func TestAgentAsksToClose(t *testing.T) {
	for _, tt := range []struct {
		concurrency, class string
		limit, safe        int
		givenUp            int // the least limit meanwhile
	}{
		{"7", "", 7, 7, 14},
		{"unlimited", ", max: 7", 0, 0, 0},
	} {
		b := newBench(t)
		b.enforce(fmt.Sprintf("services: [{name: web, listen: \"*:80\", concurrency: %s}]\nclasses: [{name: only, priority: 1%s}]\n", tt.concurrency, tt.class))
		b.services[0].place = &whereabouts{Place: &host.Place{CPUs: []int{0}}, accept: []acceptQueue{{sockets: 1}}}
		r := b.rooms[0]
		r.Limit = tt.limit
		b.queue = func(acceptQueue) (int, error) { return r.InService, nil }
		stopped := func() {
			b.machine.Idle = []time.Duration{b.now}
			r.InService = max(7, r.Limit)
			r.Waiting = 600 - r.InService
			r.Classes[0].InService, r.Classes[0].Waiting = r.InService, r.Waiting
		}
		b.pass(500*time.Millisecond, stopped)
		if c := b.last(0); !c.Closes || !c.GivenUp || c.Limit < tt.givenUp || c.Safe != tt.safe {
			t.Errorf("concurrency %s, the server has stopped: control %+v", tt.concurrency, c)
		}
		if a := b.adaptation("web", b.tables.Classes); a.Auto || !a.Closes {
			t.Errorf("concurrency %s: status %+v", tt.concurrency, a)
		}
		told := func(c api.LimitChange) bool { return strings.Contains(c.Reason, "asked to close") }
		if changes := b.changes("web"); !slices.ContainsFunc(changes, told) {
			t.Errorf("concurrency %s: changes %+v", tt.concurrency, changes)
		}
		b.pass(3*time.Second, stopped)
		if c := b.last(0); c.Closes || c.GivenUp || c.Limit != tt.limit {
			t.Errorf("concurrency %s, it does no more: control %+v", tt.concurrency, c)
		}
	}
}

// TestAgentWatchesOverload watches a service with a number for the rules that ask for overload,
// and leaves its limit alone, and the SYNs of a flood that is not refused.
func TestAgentWatchesOverload(t *testing.T) {
	b := newBench(t)
	b.enforce(strings.Replace(autoService, `"*:80"`, `"*:80", concurrency: 7, queue: {size: 50}`, 1) +
		"connections: [{name: a, rate: 5/s, when: overload}]\n")
	b.rooms[0].Limit = 7
	b.pass(10*time.Second, b.flood(0, 50))
	if c := b.last(0); c.Limit != 7 || c.Safe != 7 || c.Level == policy.WhenAlways || c.Keep != nil {
		t.Errorf("control %+v", c)
	}
	if a := b.adaptation("web", b.tables.Classes); a.Auto || a.Signal != "policy" || !a.Overload {
		t.Errorf("status %+v", a)
	}
}

// TestAgentFails logs a fault once, and steers again when it is over.
func TestAgentFails(t *testing.T) {
	b := newBench(t)
	b.enforce(autoService)
	b.pass(time.Second, nil)
	was := len(b.steered)
	b.failing = errors.New("the map is gone")
	b.pass(5*time.Second, nil)
	if n := strings.Count(b.log.String(), "the map is gone"); n != 1 {
		t.Errorf("said %d times:\n%s", n, b.log.String())
	}
	if len(b.steered) != was {
		t.Error("steered without a reading")
	}
	b.failing = nil
	b.pass(5*time.Second, nil)
	if len(b.steered) == was {
		t.Error("not steered any more")
	}
}

// TestHistory keeps the last hundred changes, and shows ten of a service.
func TestHistory(t *testing.T) {
	var h history
	for i := range 250 {
		name := "a"
		if i == 100 || i == 160 {
			name = "b"
		}
		h.add(change{name, api.LimitChange{New: requestsText(i)}})
	}
	got := h.of("a")
	if len(got) != shownChanges || got[0].New != "249" || got[9].New != "240" {
		t.Errorf("changes %+v", got)
	}
	if diff := cmp.Diff([]api.LimitChange{{New: "160"}}, h.of("b")); diff != "" {
		t.Errorf("changes of another service (-want +got):\n%s", diff)
	}
}
