// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// roomy has a service with a waiting room, and one of each protocol without.
const roomy = `
version: 1
services:
  - name: shop
    listen: "*:80"
    concurrency: 64
    queue: {size: 100, max_wait: 2s, max_service: 30s}
    service_ends: close
    reject: {status: 429, retry_after: 0s}
    socket_mark: 0x100
  - {name: blog, listen: "*:81", reject: {reset: true}, h2c: pass}
  - {name: mail, listen: "*:25", protocol: tcp}
  - {name: front, listen: "*:443", protocol: tls}
classes:
  - {name: gold, priority: 1}
  - {name: silver, priority: 2, reserve: 10%}
  - {name: bronze, priority: 3, reserve: 20%}
  - {name: mob, priority: 4, stall: 1s}
`

// compiled parses and compiles a policy.
func compiled(t *testing.T, text string) *Tables {
	t.Helper()
	tables, _, err := Compile(parsed(t, text))
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

// TestRoomTables compiles everything that the data path needs to know of a waiting room.
func TestRoomTables(t *testing.T) {
	usual := Queue{4096, 5 * time.Second, time.Minute, 0}
	want := []RoomTable{
		{HTTP, 64, Queue{100, 2 * time.Second, 30 * time.Second, 0}, EndClose, Answer{Status: 429}, H2CIgnore, 0, 0x100, true, false, false, 0, 0, 0, Overload{}, 0, 0, Labels{}},
		{HTTP, 0, usual, EndAuto, Answer{Reset: true}, H2CPass, 0, 0, true, false, true, 1, 0, 0, Overload{}, 0, 0, Labels{}},
		{TCP, 0, usual, EndAuto, Answer{Reset: true}, H2CIgnore, 0, 0, false, false, false, 0, 0, 0, Overload{}, 0, 0, Labels{}},
		{TLS, 0, usual, EndAuto, Answer{Reset: true}, H2CIgnore, 0, 0, false, false, false, 0, 0, 0, Overload{}, 0, 0, Labels{}},
	}
	tables := compiled(t, roomy)
	for i, s := range tables.Services {
		if s.Room != want[i] {
			t.Errorf("service %s: room %+v, want %+v", s.Name, s.Room, want[i])
		}
	}
	if got, want := tables.Classes[3], (ClassTable{Name: "mob", Priority: 4, Stall: time.Second, SocketPriority: 2, Fair: FairDefault}); got != want {
		t.Errorf("class %+v, want %+v", got, want)
	}
	if got, want := tables.Classes[1], (ClassTable{Name: "silver", Priority: 2, Reserve: 10, Fair: FairDefault}); got != want {
		t.Errorf("class %+v, want %+v", got, want)
	}
	plain := compiled(t, "version: 1\nservices: [{name: web, listen: \"*:80\"}]\n").Services[0].Room.Reject
	if want := (Answer{RetryAfter: time.Second}); plain != want {
		t.Errorf("default answer %+v, want %+v", plain, want)
	}
}

// TestHasRoom tells services in which somebody can have to wait, and those that are followed
// besides: nothing is looked at of a tls or tcp service that only has its SYNs policed.
func TestHasRoom(t *testing.T) {
	replace := func(old, with string) string { return strings.Replace(roomy, old, with, 1) }
	for text, want := range map[string]struct{ room, followed []bool }{
		roomy: {[]bool{true, true, false, false}, []bool{true, true, false, false}},
		replace("concurrency: 64", "concurrency: unlimited"):                    {[]bool{false, true, false, false}, []bool{true, true, false, false}},
		replace("concurrency: 64", "concurrency: auto"):                         {[]bool{true, true, false, false}, []bool{true, true, false, false}},
		replace("h2c: pass", "concurrency: unlimited"):                          {[]bool{true, false, false, false}, []bool{true, true, false, false}},
		replace("bronze, priority: 3", "bronze, priority: 3, max: 8"):           {[]bool{true, true, true, true}, []bool{true, true, true, true}},
		replace("protocol: tcp", "concurrency: 5"):                              {[]bool{true, true, true, false}, []bool{true, true, true, false}},
		replace("protocol: tcp", "protocol: tcp, concurrency: 5"):               {[]bool{true, true, true, false}, []bool{true, true, true, false}},
		replace("protocol: tcp", "protocol: tcp, concurrency: {max: 5}"):        {[]bool{true, true, true, false}, []bool{true, true, true, false}},
		replace("protocol: tls", "protocol: tls, concurrency: 5, mode: shadow"): {[]bool{true, true, false, true}, []bool{true, true, false, true}},
		replace("protocol: tls", "protocol: tls, concurrency: auto"):            {[]bool{true, true, false, true}, []bool{true, true, false, true}},
		replace("protocol: tls", "protocol: tls, socket_mark: 9"):               {[]bool{true, true, false, false}, []bool{true, true, false, true}},
	} {
		tables := compiled(t, text)
		var room, followed []bool
		for i := range tables.Services {
			room, followed = append(room, tables.HasRoom(i)), append(followed, tables.Services[i].Room.Followed)
		}
		if !slices.Equal(room, want.room) || !slices.Equal(followed, want.followed) {
			t.Errorf("services with a waiting room %v, want %v; followed %v, want %v, in %s", room, want.room, followed, want.followed, text)
		}
	}
}

// TestRuled tells services in which request rules may match: they are followed, also where
// nobody can have to wait.
func TestRuled(t *testing.T) {
	for rules, want := range map[string][]bool{ // shop, blog: http; mail: tcp; front: tls
		`{name: a, path: /x, action: drop}`: {true, true, false, false},
		`{name: a, alpn: h2, action: drop}`: {false, false, false, true},
		`{name: a, sni: x, action: drop}`:   {false, false, false, true},
		`{name: a, class: gold}`:            {true, true, false, true},
		`{name: a, cookie: {x: y}, class: gold}, {name: b, sni: x.example, class: gold}`: {true, true, false, true},
	} {
		tables := compiled(t, roomy+"requests: ["+rules+"]\n")
		for i, s := range tables.Services {
			followed := s.Room.Protocol == HTTP || want[i]
			if s.Room.Ruled != want[i] || s.Room.Followed != followed {
				t.Errorf("%s: service %s is ruled %v, want %v; followed %v, want %v", rules, s.Name, s.Room.Ruled, want[i], s.Room.Followed, followed)
			}
		}
	}
}

func TestSocketPriority(t *testing.T) {
	for n, want := range map[int][]int{
		1: {0}, 2: {6, 0}, 3: {6, 0, 2}, 4: {6, 0, 0, 2}, 16: {6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2},
	} {
		text := "version: 1\nservices: [{name: web, listen: \"*:80\"}]\nclasses:\n"
		for i := n; i > 0; i-- { // the order in the file does not matter
			text += fmt.Sprintf("  - {name: c%d, priority: %d}\n", i, i)
		}
		var got []int
		for _, c := range compiled(t, text).Classes {
			got = append(got, c.SocketPriority)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d classes: socket priorities %v, want %v", n, got, want)
		}
	}
	if got := compiled(t, "version: 1\nservices: [{name: web, listen: \"*:80\"}]\n").Classes[0].SocketPriority; got != 0 {
		t.Errorf("class of a policy without any: socket priority %d, want 0", got)
	}
}

func TestParseMark(t *testing.T) {
	for text, want := range map[string]uint32{
		"1": 1, "256": 256, "0x100": 256, "0x00000100": 256, "0xAbc": 0xabc, "0xffffffef": 0xffffffef, "4294967279": 0xffffffef,
	} {
		if got, err := parseMark(text); err != nil || got != want {
			t.Errorf("%s: %#x, error %v, want %#x", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "0", "0x0", "00", "0x", "-1", "+1", "0x-1", "0x+1", "010", "0X10", "0o10", "0b1", "1_000", "0x1_00", "1e3", "1.0", " 1",
		"100h", "ff", "0xfffffff0", "4294967280", "0xffffffff", "0x1ffffffff", "99999999999999999999", "0x99999999999999999999",
	} {
		if got, err := parseMark(text); err == nil {
			t.Errorf("%q: %#x, want an error", text, got)
		}
	}
}

// TestOverrideRoom changes waiting rooms and compiles what comes of it.
func TestOverrideRoom(t *testing.T) {
	type sets [][2]string
	shop := func(tables *Tables) any { return tables.Services[0].Room.Limit }
	mail := func(tables *Tables) any { return tables.Services[2].Room }
	usual := Queue{4096, 5 * time.Second, time.Minute, 0}
	queue := func(tables *Tables) any { return tables.Services[0].Room.Queue }
	stall := func(tables *Tables) any { return tables.Classes[3].Stall }
	bronze := func(tables *Tables) any { return [2]int{tables.Classes[2].Reserve, tables.Classes[2].Max} }
	tests := []struct {
		sets sets
		of   func(*Tables) any
		want any
	}{
		{sets{{"services.shop.concurrency", "8"}}, shop, 8},
		{sets{{"services.shop.concurrency", "8"}, {"services.shop.concurrency", "unlimited"}}, shop, 0},
		{sets{{"services.shop.concurrency", "8"}, {"services.shop.concurrency", "unlimited"}, {"services.shop.concurrency", "2"}}, shop, 2},
		{sets{{"services.shop.concurrency", "auto"}}, shop, 0},
		{sets{{"services.mail.concurrency", "8"}}, mail, RoomTable{TCP, 8, usual, EndAuto, Answer{Reset: true}, H2CIgnore, 0, 0, true, false, false, 0, 0, 0, Overload{}, 0, 0, Labels{}}},
		{sets{{"services.mail.concurrency", "8"}, {"services.mail.concurrency", "unlimited"}}, mail, RoomTable{TCP, 0, usual, EndAuto, Answer{Reset: true}, H2CIgnore, 0, 0, false, false, false, 0, 0, 0, Overload{}, 0, 0, Labels{}}},
		{sets{{"services.mail.queue.size", "8"}}, mail, RoomTable{TCP, 0, Queue{8, 5 * time.Second, time.Minute, 0}, EndAuto, Answer{Reset: true}, H2CIgnore, 0, 0, false, false, false, 0, 0, 0, Overload{}, 0, 0, Labels{}}},
		{sets{{"classes.mob.stall", "250ms"}}, stall, 250 * time.Millisecond},
		{sets{{"classes.mob.stall", "none"}}, stall, time.Duration(0)},
		{sets{{"services.shop.queue.size", "0"}}, queue, Queue{0, 2 * time.Second, 30 * time.Second, 0}},
		{sets{{"services.shop.queue.max_wait", "250ms"}, {"services.shop.queue.max_service", "1h"}}, queue, Queue{100, 250 * time.Millisecond, time.Hour, 0}},
		{sets{{"classes.bronze.max", "8"}}, bronze, [2]int{20, 8}},
		{sets{{"classes.bronze.max", "8"}, {"classes.bronze.max", "none"}}, bronze, [2]int{20, 0}},
		{sets{{"classes.bronze.reserve", "90%"}}, bronze, [2]int{90, 0}},
		{sets{{"classes.bronze.reserve", "none"}}, bronze, [2]int{0, 0}},
		{sets{{"classes.silver.reserve", "none"}, {"classes.bronze.reserve", "100%"}}, bronze, [2]int{100, 0}},
	}
	for _, test := range tests {
		written := parsed(t, roomy)
		p := written.Clone()
		for _, set := range test.sets {
			if err := p.Override(set[0], set[1]); err != nil {
				t.Errorf("%v: %v", test.sets, err)
			}
			i := slices.IndexFunc(p.Settings(), func(s Setting) bool { return s.Path == set[0] })
			if got := p.Settings()[i]; got != (Setting{set[0], set[1]}) {
				t.Errorf("%v: setting %+v", set, got)
			}
		}
		tables, _, err := Compile(p)
		if err != nil {
			t.Fatal(err)
		}
		if got := test.of(tables); got != test.want {
			t.Errorf("%v: %+v, want %+v", test.sets, got, test.want)
		}
		if again := parsed(t, roomy); fmt.Sprint(again) != fmt.Sprint(written) {
			t.Errorf("%v: changed the policy that was cloned", test.sets)
		}
	}
}

// TestOverrideRoomErrors tries values that are wrong.
func TestOverrideRoomErrors(t *testing.T) {
	tests := []struct {
		path, value, wrong string
	}{
		{"services.shop.concurrency", "0", `0 is out of range; write a number from 1 to 1000000, unlimited, auto`},
		{"services.mail.queue.size", "-8", `-8 is out of range; write a number from 0 to 65536`},
		{"services.shop.queue.max_wait", "5", `"5" has no unit; write 5s or 5ms`},
		{"services.shop.queue.max_service", "1ms", `1ms is out of range; write 1s to 1h`},
		{"services.shop.queue.siz", "1", `did you mean "services.shop.queue.size"?`},
		{"classes.bronze.max", "0", `0 is out of range; write a number from 1 to 1000000 or none`},
		{"classes.bronze.max", "unlimited", `"unlimited" is not a whole number; write one from 1 to 1000000 or none`},
		{"classes.bronze.reserve", "91%", `"91%" brings the reserves to 101%; together they are at most 100%`},
		{"classes.mob.stall", "100ms", `100ms is out of range; write 200ms to 10m or none`},
		{"classes.bronze.reserve", "0%", `"0%" is out of range; write 1% to 100% or none`},
	}
	for _, test := range tests {
		p := parsed(t, roomy)
		err := p.Override(test.path, test.value)
		if err == nil || !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("set %s %s: error %v, want one with %q", test.path, test.value, err, test.wrong)
		}
		if fmt.Sprint(p) != fmt.Sprint(parsed(t, roomy)) {
			t.Errorf("set %s %s: failed and changed the policy", test.path, test.value)
		}
	}
}
