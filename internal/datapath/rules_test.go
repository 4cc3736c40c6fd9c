// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"

	"narthex/internal/policy"
	"narthex/test/nettest"
)

// namesakes writes a policy with a rule of the same name in both tables.
func namesakes(connection, request string) string {
	return fmt.Sprintf("version: 1\nservices: [{name: web, listen: \"*:80\"}]\nconnections: [%s]\nrequests: [%s]\n", connection, request)
}

// applyText puts a policy in force on no interface.
func applyText(t *testing.T, in *Instance, text string) {
	t.Helper()
	p, _, err := policy.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	tables, _, err := policy.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Apply(State{Tables: tables}); err != nil {
		t.Fatal(err)
	}
}

// use takes tokens from the bucket of a rule, and counts as many packets as dropped.
func use(t *testing.T, in *Instance, key ruleKey, tokens int) {
	t.Helper()
	slot := in.slots.byRule[key]
	owner := &in.slots.rules[slot]
	at, err := now()
	nettest.Check(t, err)
	nettest.Check(t, in.objects.RuleBuckets.Put(bucketIndex(slot, owner.Id), at+uint64(tokens)*owner.Interval))
	cpus, err := ebpf.PossibleCPU()
	nettest.Check(t, err)
	counts := make([]narthexCounts, cpus)
	counts[cpus-1].Dropped = uint64(tokens)
	nettest.Check(t, in.objects.RuleCounts.Put(slot, counts))
}

// checkBuckets compares whole tokens: those of the rate come in minutes.
func checkBuckets(t *testing.T, in *Instance, what string, connection, request float64) {
	t.Helper()
	from := netip.MustParseAddr("192.0.2.7")
	for table, want := range map[string]float64{"connections": connection, "requests": request} {
		read := func(rule int, from netip.Addr) (Bucket, error) { return in.Bucket(rule, RateOf, from) }
		if table == "requests" {
			read = func(rule int, from netip.Addr) (Bucket, error) { return in.RequestBucket(rule, RateOf, from, "") }
		}
		b, err := read(0, from)
		if err != nil || math.Abs(b.Tokens-want) > 0.5 {
			t.Errorf("%s: %s have %.1f tokens, %v; want %.0f", what, table, b.Tokens, err, want)
		}
	}
}

func checkDropped(t *testing.T, in *Instance, what string, connection, request uint64) {
	t.Helper()
	s, err := in.Stats()
	nettest.Check(t, err)
	if s.Rules[0].Dropped != connection || s.Requests[0].Dropped != request {
		t.Errorf("%s: rules have dropped %d and %d, want %d and %d", what, s.Rules[0].Dropped, s.Requests[0].Dropped, connection, request)
	}
}

// Rules of the two tables that have one name have buckets and counters of their own, also
// across reloads and restarts.
func TestNamesakesHaveSlotsOfTheirOwn(t *testing.T) {
	nettest.Root(t)
	root := filepath.Join("/sys/fs/bpf", fmt.Sprintf("narthex-namesakes-%d", os.Getpid()))
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	cfg := Config{Root: root, Instance: "test", Sources: 64, Slots: 16, SlotSize: MinSlotSize, Flows: 64}
	in, err := Open(cfg, 0)
	nettest.Check(t, err)
	const connection, request = "{name: a, rate: 1/m, burst: 5}", "{name: a, path: /x, rate: 1/m, burst: 9}"
	applyText(t, in, namesakes(connection, request))
	checkBuckets(t, in, "at first", 5, 9)
	use(t, in, ruleKey{connectionRule, "a"}, 2)
	use(t, in, ruleKey{requestRule, "a"}, 3)
	checkBuckets(t, in, "used", 3, 6)
	checkDropped(t, in, "used", 2, 3)

	applyText(t, in, namesakes("{name: b, rate: 1/m, burst: 7}", "{name: a, path: /y, rate: 2/m, burst: 8}"))
	checkBuckets(t, in, "after a reload", 7, 6)
	checkDropped(t, in, "after a reload", 0, 3)
	applyText(t, in, namesakes(connection, request))
	checkBuckets(t, in, "back again", 5, 6)
	checkDropped(t, in, "back again", 0, 3)

	use(t, in, ruleKey{connectionRule, "a"}, 1)
	nettest.Check(t, in.Close())
	in, err = Open(cfg, 0)
	nettest.Check(t, err)
	t.Cleanup(func() { _ = in.Close() })
	if notes := in.Notes(); len(notes) > 0 {
		t.Errorf("something was reset: %q", notes)
	}
	applyText(t, in, namesakes(connection, request))
	checkBuckets(t, in, "after a restart", 4, 6)
	checkDropped(t, in, "after a restart", 1, 3)
}

// What is remembered of clients is read, and forgotten with the class.
func TestClients(t *testing.T) {
	nettest.Root(t)
	root := filepath.Join("/sys/fs/bpf", fmt.Sprintf("narthex-clients-%d", os.Getpid()))
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	in, err := Open(Config{Root: root, Instance: "test", Sources: 64, Slots: 16, SlotSize: MinSlotSize, Flows: 64}, 0)
	nettest.Check(t, err)
	t.Cleanup(func() { _ = in.Close() })
	classes := func(names ...string) string {
		text := namesakes("{name: a, rate: 1/m}", "{name: a, path: /x, class: "+names[0]+", learn: 1h}") + "classes:\n"
		for i, name := range names {
			text += fmt.Sprintf("  - {name: %s, priority: %d}\n", name, i+1)
		}
		return text
	}
	applyText(t, in, classes("first", "gold", "last"))
	at, err := now()
	nettest.Check(t, err)
	const hour = 3_600_000_000_000
	known, late, fresh := netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7"), netip.MustParseAddr("192.0.2.8")
	for from, until := range map[netip.Addr]uint64{known: at + hour, late: at - 1} {
		nettest.Check(t, in.objects.LearnedClients.Put(clientKey(from), &narthexLearned{Until: until, Class: in.slots.byClass["gold"]}))
		nettest.Check(t, in.objects.BlockedClients.Put(clientKey(from), until))
	}
	check := func(from netip.Addr, class int, blocked bool) {
		t.Helper()
		c, err := in.Client(from)
		if err != nil || c.Class != class || (c.Learned > 0) != (class >= 0) || (c.Blocked > 0) != blocked {
			t.Errorf("%s: %+v, %v; want class %d, blocked %v", from, c, err, class, blocked)
		}
	}
	check(known, 1, true)
	check(late, policy.NotLearned, false)
	check(fresh, policy.NotLearned, false)
	applyText(t, in, classes("gold", "last"))
	check(known, 0, true)
	applyText(t, in, classes("last"))
	check(known, policy.NotLearned, true)
	applyText(t, in, classes("gold", "last"))
	check(known, 0, true)
	slot := in.slots.byClass["gold"]
	nettest.Check(t, in.objects.forgetLearned(slot+1))
	check(known, 0, true)
	nettest.Check(t, in.objects.forgetLearned(slot))
	check(known, policy.NotLearned, true)
}
