// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"narthex/internal/datapath"
	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

// connects tries to, for less time than after which a client's kernel sends its SYN again.
func (s *scene) connects(w who) bool {
	connected := false
	_ = s.client.Do(func() error {
		conn, err := dial(s.addr(w), s.to, 900*time.Millisecond)
		if err == nil {
			conn.Close()
			connected = true
		}
		return nil
	})
	return connected
}

// After a rejection the SYNs of that client are dropped for a while. Who is connected stays so, and
// others hear nothing of it.
func TestRulesBlock(t *testing.T) {
	t.Parallel()
	for _, v6 := range []bool{false, true} {
		r := newRuled(t, map[string]uint16{"go": 80, "other": 81 + 8000}, "go", "other")
		r.enforce(`
version: 1
services:
  - {name: go, listen: ["*:80"], concurrency: 8}
  - {name: other, listen: ["*:8081"]}
requests:
  - {name: cgi, path: /cgi, rate: 1/m, burst: 1, block: 6s}
  - {name: noaccess, path: /noaccess, action: drop, block: 24h}
`)
		s := r.at(t, "go", v6)
		kept, v := s.visit(gold), s.visit(gold)
		kept.asks("/before", reached)
		v.asks("/cgi", reached)
		if !s.connects(gold) {
			t.Error("blocked before a rejection")
		}
		v.asks("/cgi", turned)
		if s.connects(gold) {
			t.Error("not blocked after a rejection")
		}
		if r.at(t, "other", v6).connects(gold) {
			t.Error("not blocked at another service")
		}
		// A busy machine closes a socket late, and it has sent its SYN twice by then.
		if n := r.status().Reasons["blocked"].Dropped; n < 2 || n > 4 {
			t.Errorf("%d SYNs counted as blocked, want 2, or up to 4 if they were sent again", n)
		}
		// All addresses of the lab are of one IPv6 /64, which is one client.
		if s.connects(bronze) == v6 || !r.at(t, "go", !v6).connects(gold) {
			t.Errorf("IPv6 %v: others are blocked, or one of the same /64 is not", v6)
		}
		kept.asks("/after", reached)
		eventually(t, "it is over", func() bool { return s.connects(gold) })
		s.visit(gold).asks("/noaccess", cutOff)
		if s.connects(gold) {
			t.Error("not blocked after a drop")
		}
	}
}

// Who has matched a rule with learn is of its class at the next SYN, also where nothing is read.
func TestRulesLearn(t *testing.T) {
	t.Parallel()
	for _, v6 := range []bool{false, true} {
		r := newRuled(t, map[string]uint16{"go": 80, "tls": 443}, "go")
		_, err := origin.Start(r.v4.server, origin.Config{Listen: r.listen("tls"), TLS: true})
		nettest.Check(t, err)
		r.enforce(`
version: 1
services:
  - {name: go, listen: ["*:80"], concurrency: 8}
  - {name: tls, listen: ["*:443"], protocol: tls, concurrency: 8, service_ends: close}
classes:
  - {name: gold, priority: 1}
  - {name: bronze, priority: 2}
connections:
  - {name: members, learned: [gold], class: gold}
  - {name: others, rate: 1/m, burst: 3}
requests:
  - {name: member, cookie: {session: "*"}, class: gold, learn: 10m}
`)
		s := r.at(t, "go", v6)
		l := r.opened()
		v := s.visit(gold)
		v.asks("/plain", reached)
		if got := v.meets(v.tries(to("/member", "Cookie: session=1"))); got != reached {
			t.Errorf("the member: %s", got)
		}
		// All addresses of the lab are of one IPv6 /64, which is one client.
		same, alone := 0, 1
		if v6 {
			same, alone = 1, 0
		}
		s.visit(bronze).asks("/plain", reached)
		if third, fourth := s.connects(bronze), s.connects(bronze); !third || fourth != v6 {
			t.Errorf("IPv6 %v: of others the third is let in: %v, the fourth: %v", v6, third, fourth)
		}
		for range 4 {
			s.visit(gold).asks("/plain", reached)
		}
		private := r.at(t, "tls", v6).visit(gold)
		private.secure()
		private.get("/")
		private.wants(200)
		l.counts("member", datapath.Counts{Passed: 1})
		l.arrives("go", "bronze", uint64(1+alone))
		l.arrives("go", "gold", uint64(5+same))
		l.arrives("tls", "gold", 1)
		r.agrees(t, l)
		if got := r.rule("members"); got.Passed != uint64(5+3*same) {
			t.Errorf("IPv6 %v: members: %+v", v6, got)
		}
		// A client whose SYN is dropped sends it again after a second.
		if got := r.rule("others"); got.Passed != uint64(1+2*alone) || min(got.Dropped, 1) != uint64(alone) || got.WouldDrop > 0 {
			t.Errorf("IPv6 %v: others: %+v", v6, got)
		}
	}
}

// By `narthex table` clients are let in again that a rule has blocked, and others are blocked by hand, also
// where no rule blocks anybody; all without another policy.
func TestTable(t *testing.T) {
	t.Parallel()
	r := newRuled(t, map[string]uint16{"go": 80}, "go")
	const policy = `
version: 1
services: [{name: go, listen: ["*:80"], concurrency: 8}]
classes: [{name: best, priority: 1}, {name: others, priority: 2}]
connections: [{name: known, learned: [best], class: best}]
requests:
  - {name: noaccess, path: /noaccess, action: reject%s}
  - {name: once, path: /once, rate: 1/h, burst: 1, per: source}
`
	r.enforce(fmt.Sprintf(policy, ", block: 1h"))
	s := r.at(t, "go", false)
	client := s.addr(gold).String()
	table := func(code int, want string, args ...string) {
		t.Helper()
		got := narthex(t, append(r.command("table"), args...)...)
		if got.code != code || !strings.Contains(got.stdout, want) {
			t.Errorf("table %v: exit code %d, %q, %q; want %d, %q", args, got.code, got.stdout, got.stderr, code, want)
		}
	}
	table(1, "", "list", "blocked")
	v := s.visit(gold)
	v.asks("/noaccess", turned)
	if s.connects(gold) {
		t.Error("not blocked after a rejection")
	}
	table(0, client, "list", "blocked")
	table(0, client+": cleared", "clear", "blocked", client)
	v = s.visit(gold)
	v.asks("/once", reached)
	v.asks("/once", turned)
	table(0, "once", "list", "buckets", client)
	table(0, "once: cleared", "clear", "buckets", client, "--rule", "once")
	v = s.visit(gold)
	v.asks("/once", reached)

	r.reload(fmt.Sprintf(policy, ""))
	table(0, client+" is blocked", "add", "blocked", client, "--for", "1h")
	if s.connects(gold) {
		t.Error("not blocked by hand")
	}
	if !s.connects(free) {
		t.Error("another client is blocked")
	}
	r.reload(fmt.Sprintf(policy, " "))
	if s.connects(gold) {
		t.Error("not blocked any more after a reload")
	}
	table(0, "cleared", "clear", "blocked", "--all")
	table(0, client+" is learned", "add", "learned", client, "--class", "best", "--for", "1h")
	v = s.visit(gold)
	v.asks("/", reached)
	for _, c := range r.service("go").Classes {
		if c.Name == "best" && c.Arrived != 1 {
			t.Errorf("%d of class best, want 1", c.Arrived)
		}
	}
	table(0, client, "clear", "learned", client)
	table(1, "", "list", "learned")
}
