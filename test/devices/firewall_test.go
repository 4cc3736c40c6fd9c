// SPDX-License-Identifier: Apache-2.0

//go:build vm

package devices

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"narthex/internal/datapath"
	"narthex/test/nettest"
)

// nft adds rules in the server's namespace.
func (s *scene) nft(rules string) {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "rules")
	nettest.Check(s.t, os.WriteFile(file, []byte(rules), 0o600))
	s.run(s.server, "nft -f "+file)
}

// firewalls are rules with which everything works as without.
var firewalls = []struct{ name, rules string }{
	// Conntrack sees neither what waits, nor what Narthex answers, nor what it acknowledges.
	{"stateful", `
table inet filter {
  chain input {
    type filter hook input priority filter; policy drop;
    ct state invalid drop
    ct state established,related accept
    iif lo accept
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
    tcp dport 80 ct state new accept
  }
  chain output {
    type filter hook output priority filter; policy accept;
    ct state invalid drop
  }
}`},
	{"notrack", `
table inet filter {
  chain prerouting { type filter hook prerouting priority raw; tcp dport 80 notrack; }
  chain output { type filter hook output priority raw; tcp sport 80 notrack; }
  chain input {
    type filter hook input priority filter; policy drop;
    ct state untracked accept
    iif lo accept
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
  }
}`},
	{"ingress and egress of the device", `
table netdev filter {
  chain in { type filter hook ingress device eth0 priority filter; policy accept; tcp dport 80 counter; }
  chain out { type filter hook egress device eth0 priority filter; policy accept; tcp sport 80 counter; }
}`},
}

func TestFirewalls(t *testing.T) {
	for _, f := range firewalls {
		for service, mode := range map[string]datapath.Mode{"": native, ", xdp: off": tcx} {
			t.Run(fmt.Sprintf("%s, %s", f.name, mode), func(t *testing.T) {
				t.Parallel()
				s := newScene(t)
				plain(s)
				s.nft(f.rules)
				s.settle()
				s.protects(policy(service), modes{"eth0": mode})
			})
		}
	}
}

// dropping drops what clients of a kind send to the service, behind Narthex.
const dropping = `
table inet block {
  chain input { type filter hook input priority filter; policy accept; ip saddr 10.78.%d.0/24 tcp dport 80 counter drop; }
}`

// Narthex decides before nftables: it counts a SYN as passed that a rule drops then.
func TestDroppedBehind(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	plain(s)
	s.settle()
	s.enforce(policy(""), modes{"eth0": native})
	s.nft(fmt.Sprintf(dropping, bronze))
	to := s.families()[0]
	if _, err := dial(s.client, bronze.address(to.Addr()), to, 300*time.Millisecond); err == nil {
		t.Error("the rule drops nothing")
	}
	s.in.counted("bronze", datapath.Counts{Passed: 1})
}

// A request that waits and whose packets a new rule drops does not stall the others: they are served
// once it has been let in in vain.
func TestDroppedWhileWaiting(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	plain(s)
	s.settle()
	s.enforce(policy(""), modes{"eth0": native})
	to := s.families()[0]
	s.order("/forget")
	first := s.visit(gold, to, "/wait?for=first")
	s.await(1, 0)
	s.visit(bronze, to, "/dropped")
	s.await(1, 1)
	s.nft(fmt.Sprintf(dropping, bronze))
	s.order("/go?for=first")
	first.wants(http.StatusOK)
	s.visit(gold, to, "/after").wants(http.StatusOK)
	s.wasAsked("/wait?for=first", "/after")
}

// A redirect happens behind Narthex, which sees the port that clients ask for. SYNs to it are policed,
// but no socket has that port: requests pass, and the status says that nobody listens.
func TestRedirected(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	plain(s)
	s.nft(`
table inet nat {
  chain prerouting { type nat hook prerouting priority dstnat; tcp dport 8080 redirect to :80; }
}`)
	s.settle()
	s.port = 8080
	s.enforce(strings.Replace(policy(""), "*:80", "*:8080", 1), modes{"eth0": native})
	s.syns()
	for _, to := range s.families() {
		s.visit(bronze, to, "/wait?for="+to.Addr().String())
		s.visit(bronze, to, "/").wants(http.StatusOK)
	}
	s.in.counted("bronze", datapath.Counts{Passed: s.visits[bronze]})
	if service := s.in.status().Services[0]; service.Listening {
		t.Errorf("the status says that a server listens at %q", service.Listen)
	}
}
