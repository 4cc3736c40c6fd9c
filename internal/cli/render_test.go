// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"narthex/internal/api"
	"narthex/internal/datapath"
)

func TestManyRulesShowTheBusiest(t *testing.T) {
	rules := make([]api.RuleStatus, 10_000)
	for i := range rules {
		rules[i] = api.RuleStatus{Name: fmt.Sprintf("r%d", i), Action: "drop"}
	}
	touch := func(i int, passed, dropped uint64) {
		rules[i].Matched, rules[i].Passed, rules[i].Dropped = passed+dropped, passed, dropped
	}
	touch(7, 5, 0)
	touch(5000, 0, 90)
	touch(9999, 1, 90)
	want := `
RULE   DOES  PER  CLASS  PASSED  DROPPED  WOULD DROP
r9999  drop  -    -           1       90           0
r5000  drop  -    -           0       90           0
r7     drop  -    -           5        0           0
and 9997 more (use --json or --all)
`
	var b strings.Builder
	printRules(&b, "RULE", rules, false)
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	for i := range 30 {
		touch(i, 1, 0)
	}
	b.Reset()
	printRules(&b, "RULE", rules, false)
	if got := strings.Count(b.String(), "\n"); got != 1+1+mostRules+1 {
		t.Errorf("%d lines, want a head, %d rules and how many more", got, mostRules)
	}
	b.Reset()
	printRules(&b, "RULE", rules, true)
	if got := strings.Count(b.String(), "\n"); got != 1+1+len(rules) {
		t.Errorf("--all: %d lines, want all %d rules", got, len(rules))
	}
}

func TestRulesShowWhatIsSet(t *testing.T) {
	rules := []api.RuleStatus{
		{Name: "a", Action: "police", Rate: "5/s", Burst: 2, Per: "rule", Class: "gold", Overridden: true},
		{Name: "long-name", Action: "pass"},
	}
	want := `
RULE       DOES               PER   CLASS  PASSED  DROPPED  WOULD DROP
a          5/s burst 2 (set)  rule  gold        0        0           0
long-name  pass               -     -           0        0           0
`
	var b strings.Builder
	printRules(&b, "RULE", rules, false)
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

func TestRequestRules(t *testing.T) {
	rules := []api.RequestRuleStatus{
		{RuleStatus: api.RuleStatus{Name: "cgi", Rate: "10/s", Burst: 2, Per: "rule", Counts: api.Counts{Counts: datapath.Counts{Passed: 3, Dropped: 4}}}, Over: "reject", Block: 3},
		{RuleStatus: api.RuleStatus{Name: "vip", Action: "classify", Class: "gold"}},
	}
	want := `
REQUEST RULE  DOES          PER   CLASS  PASSED  DROPPED  WOULD DROP
cgi           10/s burst 2  rule  -           3        4           0
vip           classify      -     gold        0        0           0
`
	var b strings.Builder
	printRules(&b, "REQUEST RULE", requestRules(rules), false)
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("request rules (-want +got):\n%s", diff)
	}
}

// A request is explained as rules read it.
func TestRequestDecision(t *testing.T) {
	for want, r := range map[string]api.RequestDecision{
		"  GET /x at a.example: no rule matches: pass\n": {Method: "GET", Path: "/x", Host: "a.example", Verdict: "pass"},
		"  the request: reject, for servers could read it in two ways: two Host headers\n": {
			Refused: "two Host headers", Verdict: "reject",
		},
		"  POST /cgi of 192.0.2.7: rule cgi, 10/s burst 2 per rule, class gold: reject (0.5 of 2 tokens, full in 150ms)\n" +
			"  who is rejected has all requests rejected for 3s\n": {
			Method: "POST", Path: "/cgi", Client: "192.0.2.7", Rule: "cgi", Rate: "10/s", Burst: 2, Per: "rule", Class: "gold", Block: 3,
			Bucket: &api.BucketStatus{Known: true, Tokens: 0.5, FullIn: 0.15}, Verdict: "reject",
		},
		"  server name b.example: rule tenant, classify, class silver: pass\n  the client is remembered in class silver for 10m\n": {
			SNI: "b.example", Rule: "tenant", Action: "classify", Class: "silver", Learn: 600, Verdict: "pass",
		},
		"  GET /x of 192.0.2.7 by rule everyone, which is blocked for another 2.0s by request rule cgi or login: reject\n": {
			Method: "GET", Path: "/x", Client: "192.0.2.7", ClientRule: "everyone", Class: "gold", Blocked: 2, BlockedBy: []string{"cgi", "login"}, Verdict: "reject",
		},
		"  GET /x: rule x, drop: drop\n  who is rejected has connections refused for 3s\n": {
			Method: "GET", Path: "/x", Rule: "x", Action: "drop", Block: 3, Verdict: "drop",
		},
		"  CONNECT - at a: no rule matches: pass\n":           {Method: "CONNECT", Host: "a", Verdict: "pass"},
		"  GET /\\x1b]0;a\\a\\u202e: no rule matches: pass\n": {Method: "GET", Path: "/\x1b]0;a\a\u202e", Verdict: "pass"},
		"  server name a\\x9b\\nb: no rule matches: pass\n":   {SNI: "a\x9b\nb", Verdict: "pass"},
	} {
		var b strings.Builder
		printRequest(&b, &r)
		if b.String() != want {
			t.Errorf("%+v:\n%s\nwant\n%s", r, b.String(), want)
		}
	}
}

func TestRoomDecision(t *testing.T) {
	share := 0.4
	for want, r := range map[string]api.RoomDecision{
		"would be served at once: 3 of 8 in service, 0 waiting":                                  {Limit: 8, InService: 3},
		"would wait: 8 of 8 in service, 3 of 3 of class gold, 4 waiting":                         {Limit: 8, InService: 8, ClassInService: 3, Max: 3, Waiting: 4, Waits: true},
		"would be rejected (queue_full): 8 of 8 in service, 100 waiting":                         {Limit: 8, InService: 8, Waiting: 100, Waits: true, Full: true},
		"would be served at once: 3 in service, a limit that sets itself by headroom, 0 waiting": {InService: 3, Auto: true, SetBy: "headroom"},
		"would wait: 2 of 2 in service, a limit that sets itself by cpu, 9 waiting; the service is overloaded; 40% of the SYNs of class gold are let in": {
			Limit: 2, InService: 2, Auto: true, SetBy: "cpu", Waiting: 9, Waits: true, Overload: true, Kept: &share,
		},
	} {
		r.Live = true
		if got := roomText(api.Decision{Class: "gold", Room: &r}); got != want {
			t.Errorf("%+v:\n%s\nwant\n%s", r, got, want)
		}
	}
}

// roomStatus is of a shop that is overloaded, as of a night when nobody sleeps.
func roomStatus() api.Status {
	return api.Status{
		WaitingRoom: api.PoolStatus{Slots: 4096, FreeSlots: 4004, SlotSize: 8192, Flows: 65_536, UsedFlows: 1230},
		Services: []api.ServiceStatus{
			{Name: "shop", Protocol: "http", Mode: "enforce", Limit: "8", RoomStatus: &api.RoomStatus{
				InService: 8, Waiting: 92, QueueSize: 4096,
				Classes: []api.RoomClassStatus{
					{
						Name: "gold", Max: 6, InService: 2, Arrived: 120_034, Admitted: 119_800, Held: 234, Released: 234,
						Wait:    api.Durations{Count: 234, P50: 0.0012, P99: 0.0081},
						Service: api.Durations{Count: 120_032, P50: 0.00201, P99: 0.00402},
					},
					{
						Name: "bronze", InService: 6, Waiting: 92, Arrived: 912_345_678, Admitted: 12_345_678, Held: 899_999_000,
						Released: 899_990_000, GaveUp: 12, Served: 912_345_000, Lost: 3, Paused: 1, BytesIn: 1024, BytesOut: 98_765_432_100,
						Rejected: map[string]uint64{"queue_full": 42, "max_wait": 8900, "displaced": 42},
						Wait:     api.Durations{Count: 899_990_000, P50: 0.2304, P99: 4.8123},
						Service:  api.Durations{Count: 912_345_000, P50: 0.000512, P99: 59.9},
					},
					{Name: "never"},
				},
			}},
			{Name: "blog", Protocol: "http", Mode: "shadow", Limit: "unlimited (auto)", RoomStatus: &api.RoomStatus{
				InService: 1, QueueSize: 100,
				Classes: []api.RoomClassStatus{{Name: "gold"}, {Name: "bronze", InService: 1, Arrived: 7, Admitted: 7, WouldHold: 5}},
			}},
			{Name: "idle", Protocol: "http", Mode: "enforce", Limit: "unlimited", RoomStatus: &api.RoomStatus{QueueSize: 4096}},
			{Name: "mail", Protocol: "tcp", Mode: "enforce", Limit: "unlimited"},
			{Name: "front", Protocol: "tls", Mode: "enforce", Limit: "5", RoomStatus: &api.RoomStatus{
				InService: 5, Waiting: 2, Gathering: 3, QueueSize: 4096,
				Classes: []api.RoomClassStatus{{
					Name: "gold", InService: 5, Waiting: 2, Arrived: 14, Admitted: 5, Held: 8, Released: 6, Lost: 1, Rejected: map[string]uint64{"too_large": 1},
				}},
			}},
		},
	}
}

func TestWaitingRooms(t *testing.T) {
	want := `
slots in use: 92 of 4096 (8192 bytes each); flows: 1230 of 65536
shop  enforce  limit 8  in service 8  waiting 92 of 4096
  CLASS   IN SERVICE  WAITING   WAIT p50/p99  SERVICE p50/p99
  gold        2 of 6        0  1.2ms / 8.1ms    2.0ms / 4.0ms
  bronze           6       92   230ms / 4.8s    512µs / 59.9s
  CLASS   ARRIVED  ADMITTED  HELD  RELEASED  REJECTED  GAVE UP
  gold     120034    119800   234       234         0        0
  bronze     912M     12.3M  900M      900M      8984       12
  bronze: 1024 bytes in, 98.8G out
  bronze rejected: 8900 max_wait, 42 displaced, 42 queue_full
  bronze: the end of 3 requests was not seen
  bronze: 1 request left service for want of the body
blog  shadow  limit unlimited (auto)  in service 1  waiting 0 of 100
  CLASS   IN SERVICE  WAITING  WAIT p50/p99  SERVICE p50/p99
  bronze           1        0             -                -
  CLASS   ARRIVED  ADMITTED  HELD  RELEASED  REJECTED  GAVE UP
  bronze        7         7     0         0         0        0
  bronze: 5 of those admitted would have waited
idle  enforce  limit unlimited  in service 0  waiting 0 of 4096
front  enforce  limit 5  in service 5  waiting 2 of 4096
  heads that are not complete: 3
  CLASS  IN SERVICE  WAITING  WAIT p50/p99  SERVICE p50/p99
  gold            5        2             -                -
  CLASS  ARRIVED  ADMITTED  HELD  RELEASED  REJECTED  GAVE UP
  gold        14         5     8         6         1        0
  gold rejected: 1 too_large
  gold: the end of 1 connection was not seen
`
	var b strings.Builder
	printRooms(&b, roomStatus())
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("waiting rooms (-want +got):\n%s", diff)
	}
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(line) - 1; n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	b.Reset()
	printRooms(&b, api.Status{Services: []api.ServiceStatus{{Name: "mail"}}})
	if b.Len() > 0 {
		t.Errorf("a service without a waiting room has %q", b.String())
	}
}

// A class of which only unreadable heads came has its rejections shown.
func TestRejectedBeforeItArrived(t *testing.T) {
	if unused(api.RoomClassStatus{Rejected: map[string]uint64{"malformed": 1}}) {
		t.Error("a class with a rejection counts as unused")
	}
	if !unused(api.RoomClassStatus{}) {
		t.Error("a class without anything does not count as unused")
	}
}

// The widest line that names of usual length can make.
func TestWaitingRoomsFitTheScreen(t *testing.T) {
	most := uint64(1<<63 - 1)
	d := api.Durations{Count: most, P50: 3599.9, P99: 3599.9}
	s := api.Status{
		WaitingRoom: api.PoolStatus{Slots: 65_536, FreeSlots: 65_536, SlotSize: 16_064, Flows: 4_194_304, UsedFlows: 4_194_304},
		Services: []api.ServiceStatus{{Name: "customer-7", Protocol: "http", Mode: "enforce", Limit: "1000000", RoomStatus: &api.RoomStatus{
			InService: 1_000_000, Waiting: 65_536, QueueSize: 65_536,
			Classes: []api.RoomClassStatus{{
				Name: "subscribers", InService: 1_000_000, Max: 1_000_000, Waiting: 65_536, Arrived: most, Admitted: most, Held: most, Released: most,
				GaveUp: most, Rejected: map[string]uint64{"max_wait": most}, Wait: d, Service: d,
			}},
		}}},
	}
	var b strings.Builder
	printRooms(&b, s)
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(line) - 1; n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestAmounts(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0", 9_999_999: "9999999", 10_000_000: "10.0M", 12_345_678: "12.3M", 99_999_999: "100M", 912_345_678: "912M",
		999_999_999: "1.00G", 1_234_567_890: "1.23G", 1 << 60: "1.15E", 1<<64 - 1: "18.4E",
	} {
		if got := amount(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	for seconds, want := range map[float64]string{
		0: "0µs", 0.0000005: "1µs", 0.000512: "512µs", 0.0009999: "1.0ms", 0.00201: "2.0ms", 0.00999: "10ms", 0.23: "230ms", 0.9999: "1.0s", 4.8123: "4.8s",
		59.96: "60s", 75: "75s", 3599.9: "3600s",
	} {
		if got := span(seconds); got != want {
			t.Errorf("%v s: %q, want %q", seconds, got, want)
		}
	}
}

func TestExplanationOfAWaitingRoom(t *testing.T) {
	base := api.Decision{Service: "web", Class: "gold", Verdict: "pass"}
	const head = "service web: no rule matches, class gold: pass\n"
	for _, tt := range []struct {
		name    string
		room    *api.RoomDecision
		shadow  bool
		verdict string
		want    string
	}{
		{"none", nil, false, "pass", head},
		{"waits", &api.RoomDecision{Protocol: "http", Limit: 8, Live: true, InService: 8, Waiting: 92, Waits: true}, false, "pass",
			head + "  a request would wait: 8 of 8 in service, 92 waiting\n"},
		{"room", &api.RoomDecision{Protocol: "http", Limit: 8, Live: true, InService: 3}, false, "pass",
			head + "  a request would be served at once: 3 of 8 in service, 0 waiting\n"},
		{"the class has a bound", &api.RoomDecision{Protocol: "http", Limit: 8, Max: 2, Live: true, InService: 3, ClassInService: 2, Waiting: 1, Waits: true}, false, "pass",
			head + "  a request would wait: 3 of 8 in service, 2 of 2 of class gold, 1 waiting\n"},
		{"the class alone", &api.RoomDecision{Protocol: "http", Max: 2, Live: true, InService: 3, ClassInService: 2, Waits: true}, false, "pass",
			head + "  a request would wait: 3 in service, 2 of 2 of class gold, 0 waiting\n"},
		{"shadow", &api.RoomDecision{Protocol: "http", Limit: 8, Live: true, InService: 8, Waits: true}, true, "pass",
			"service web (shadow): no rule matches, class gold: pass\n  a request would wait if the service were not in shadow mode: 8 of 8 in service, 0 waiting\n"},
		{"no daemon", &api.RoomDecision{Protocol: "http", Limit: 8, Max: 2}, false, "pass",
			head + "  a request waits while 8 are in service, or 2 of class gold\n"},
		{"no daemon, no max", &api.RoomDecision{Protocol: "http", Limit: 8}, false, "pass", head + "  a request waits while 8 are in service\n"},
		{"of a connection", &api.RoomDecision{Protocol: "tcp", Limit: 8, Live: true, InService: 8, Waiting: 1, Waits: true}, false, "pass",
			head + "  a connection would wait: 8 of 8 in service, 1 waiting\n"},
		{"of a connection, no daemon", &api.RoomDecision{Protocol: "tls", Limit: 8}, false, "pass", head + "  a connection waits while 8 are in service\n"},
		{"no daemon, no limit", &api.RoomDecision{Protocol: "http", Max: 2}, false, "pass", head + "  a request waits while 2 of class gold are in service\n"},
		{"dropped", &api.RoomDecision{Protocol: "http", Limit: 8, Live: true}, false, "drop", "service web: no rule matches, class gold: drop\n"},
	} {
		d := base
		d.Room, d.Shadow, d.Verdict = tt.room, tt.shadow, tt.verdict
		var b strings.Builder
		printDecision(&b, d)
		if got := b.String(); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, tt.want)
		}
	}
}

// On a calm machine nothing looks like a loss: that requests wait takes segments, which nobody misses.
func TestReasonsOfACalmMachine(t *testing.T) {
	var b strings.Builder
	printReasons(&b, api.Status{Reasons: map[string]datapath.Counts{
		"handshake": {Dropped: 2}, "not_syn": {Passed: 5}, "cut": {Passed: 1}, "forged": {Dropped: 3},
	}})
	want := `
WITHOUT A RULE  PASSED  DROPPED  WOULD DROP
forged               0        3           0
not_syn              5        0           0

HOLDING REQUESTS TAKES  SEGMENTS
cut                            1
handshake                      2
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
}

func TestListsText(t *testing.T) {
	now := time.Unix(10_000, 0)
	got := listsText([]api.ListStatus{
		{Name: "crawlers", File: "/etc/narthex/crawlers.txt", Entries: 120, Modified: now.Add(-time.Hour), Matches: 12345},
		{Name: "blocked", File: "/b", Entries: 5_000_000, Modified: now.Add(-26 * time.Hour), Wrong: `/b:3: "x" is not an IP address`, WrongSince: now.Add(-time.Minute)},
	}, now)
	want := `LIST      ENTRIES   AGE  MATCHES  STATE              FILE
crawlers      120  1h0m    12345  in force           /etc/narthex/crawlers.txt
blocked   5000000    1d        0  the last good one  /b
blocked: /b:3: "x" is not an IP address (for 1m)
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// Pools say who wants how much, and how much is due to him.
func TestPoolsText(t *testing.T) {
	due := func(n float64) *float64 { return &n }
	var b strings.Builder
	printPools(&b, []api.ServicePool{
		{Name: "nginx", Between: "classes", Limit: "8", InService: 8, Waiting: 3, Members: []api.PoolMember{
			{Name: "web", Share: 1, InService: 2, Served: 1_234_567, Wanted: 2}, {Name: "secure", Share: 1, InService: 6, Waiting: 3, Used: 60.25, Wanted: 9},
		}},
		{Name: "bakers", Between: "shares", Pool: "platform", Share: 3, Limit: "9", InService: 9, Waiting: 45, Members: []api.PoolMember{
			{Name: "bread", Share: 2, InService: 8, Waiting: 40, Served: 10, Used: 3600, Wanted: 48, Due: due(7.5)},
		}},
	})
	want := `
pool nginx  between classes  limit 8  in service 8  waiting 3
  MEMBER  SHARE  WANTED  DUE  IN SERVICE  WAITING   SERVED  PLACE-SECONDS
  web         -       2    -           2        0  1234567            0.0
  secure      -       9    -           6        3        0           60.2

pool bakers  in pool platform (share 3)  between shares  limit 9  in service 9  waiting 45
  MEMBER  SHARE  WANTED  DUE  IN SERVICE  WAITING  SERVED  PLACE-SECONDS
  bread       2      48  7.5           8       40      10         3600.0
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What a pool says to a request: which share, and what that means when it is full.
func TestPoolDecision(t *testing.T) {
	for want, c := range map[string]struct {
		p    api.PoolDecision
		live bool
	}{
		"in pool nginx: 3 of 8 in service, 0 waiting; when it is full: the most important class of all its services goes first": {
			api.PoolDecision{Name: "nginx", Between: "classes", Limit: 8, InService: 3}, true,
		},
		"in pool p, share 3 of 4: 9 of 9 in service, 4 waiting; it is full: 75% of its time in service, and what others leave": {
			api.PoolDecision{Name: "p", Between: "shares", Share: 3, Shares: 4, Limit: 9, InService: 9, Waiting: 4, Full: true}, true,
		},
		"in pool p: as many in service as the server works best with; when it is full: the most important class of all its services goes first": {
			api.PoolDecision{Name: "p", Between: "classes", Auto: true}, false,
		},
		"in pool p, share 1 of 2: 9 in service; when it is full: 50% of its time in service, and what others leave": {
			api.PoolDecision{Name: "p", Between: "shares", Share: 1, Shares: 2, Limit: 9}, false,
		},
	} {
		if got := poolText(c.p, c.live); got != want {
			t.Errorf("%+v:\n%s\nwant\n%s", c.p, got, want)
		}
	}
	got := roomText(api.Decision{Room: &api.RoomDecision{Pools: []api.PoolDecision{{Name: "p"}}}})
	if want := "waits while its pool is full"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
