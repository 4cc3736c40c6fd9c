// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"testing"
)

// TestFirewallOrder checks that what is not asked in a firewall, or is asked in another order
// than here, is listed.
func TestFirewallOrder(t *testing.T) {
	const chain = "type filter hook input priority 0; policy drop; "
	const input = "table inet t { chain c { " + chain
	testLines(t, []lineTest{
		{"accepted above", NFTables, input + "tcp dport 80 accept\n tcp dport { 80, 81 } ct state new limit rate over 9/second drop } }",
			[]string{`"tcp dport 80 accept" above it decides first about some of its ports`, "to: port-81, rate: 9/s"}, []string{"port-80"}},
		{"new ones accepted above", NFTables, input + "ct state new accept\n tcp dport 80 ct state new limit rate over 9/second drop\n ip saddr 192.0.2.1 tcp dport 80 drop } }",
			nil, []string{"port-80"}},
		{"accepted above for IPv4", NFTables, input + "meta nfproto ipv4 tcp dport 80 accept\n tcp dport 80 ct state new limit rate over 9/second drop } }",
			[]string{"decides first about IPv4", `from: "::/0", to: port-80, rate: 9/s`}, nil},
		{"accepted above at an interface", NFTables, input + "iifname eth1 accept\n tcp dport 80 ct state new limit rate over 9/second drop } }",
			[]string{`"iifname eth1 accept" above it lets connections by for which it holds here`, "rate: 9/s"}, nil},
		{"a drop at all other ports", NFTables, input + "tcp dport 22 ct state new limit rate over 9/second drop\n tcp dport 22 accept\n ip saddr 192.0.2.1 drop\n tcp dport 80 ct state new limit rate over 9/second drop } }",
			[]string{"decides first about its ports; it holds at the policy's other services", "from: 192.0.2.1, to: port-80, action: drop"}, nil},
		{"returned above", NFTables, "table inet t { chain w { tcp dport 80 return\n tcp dport { 80, 81 } ct state new limit rate over 9/second drop\n }\n chain c { " + chain + "jump w\n tcp dport 80 ct state new limit rate over 8/second drop } }",
			[]string{`"tcp dport 80 return" above it`, "to: port-81, rate: 9/s", "to: port-80, rate: 8/s"}, nil},
		{"gone above", NFTables, "table inet t { chain w { counter\n }\n chain c { " + chain + "tcp dport 80 goto w\n tcp dport { 80, 81 } ct state new limit rate over 9/second drop } }",
			[]string{`"tcp dport 80 goto w" above it`, "to: port-81, rate: 9/s"}, []string{"port-80,"}},
		{"verdict map", NFTables, "table inet t { chain w { tcp dport 80 ct state new limit rate over 9/second drop\n }\n chain c { " + chain + "ct state vmap { established : accept, new : jump w } } }\n table inet u { chain d { " + chain + "tcp dport 81 ct state new limit rate over 8/second drop } }",
			[]string{"limit rate over 9/second drop: its chain is not reached by a jump that is followed", "to: port-81, rate: 8/s"}, []string{"rate: 9/s"}},
		{"mark", NFTables, "table inet t { chain w { tcp dport 80 ct state new limit rate over 9/second drop\n }\n chain c { " + chain + "meta mark 1 jump w\n tcp dport 81 ct state new limit rate over 8/second drop } }",
			[]string{"limit rate over 9/second drop: its chain is not reached", "a jump under a limit or another condition is not followed", "rate: 8/s"}, []string{"rate: 9/s"}},
		{"only what goes out", NFTables, "table inet t { chain w { tcp dport 80 ct state new limit rate over 9/second drop\n }\n chain o { type filter hook output priority 0; jump w\n }\n chain c { " + chain + "tcp dport 81 ct state new limit rate over 8/second drop } }",
			[]string{"rate: 8/s"}, []string{"Not carried over"}},
		{"a drop behind an accept behind a rate", NFTables, input + "tcp dport 80 ct state new limit rate over 9/second drop\n ip saddr 10.0.0.0/8 accept\n ip saddr 10.1.0.0/16 drop } }",
			[]string{"drop: a rate above it decides first: rule limit"}, nil},
		{"a drop stays behind what is accepted within a rate", NFTables, input + "tcp dport 80 ct state new limit rate 9/second accept\n ip saddr 192.0.2.1 drop } }",
			[]string{"rate: 9/s, burst: 5}\n  # file:2\n  - {name: drop, from: 192.0.2.1, action: drop}"}, []string{"decides first"}},
		{"a drop goes before a rate and its exception", NFTables, input + "tcp dport 80 ip saddr != 10.0.0.0/8 ct state new limit rate over 9/second drop\n ip saddr 10.1.0.0/16 drop } }",
			[]string{"action: drop}\n  # Those for whom the next rule does not hold.\n  # file:1\n  - {name: except"}, []string{"Not carried over"}},
		{"an exception of a drop ends the search", NFTables, input + "tcp dport 80 ip saddr != 10.0.0.0/8 drop\n tcp dport 80 ct state new limit rate over 9/second drop } }",
			[]string{"it is not asked for those whom a rule above it excludes: rule except"}, nil},
		{"a rate for some, then for all", NFTables, input + "ip saddr 10.0.0.0/8 tcp dport 80 ct state new limit rate over 9/second drop\n tcp dport 80 ct state new limit rate over 8/second drop } }",
			[]string{"those of rule limit are not in this one"}, nil},
		{"a rate for all, then for some", NFTables, input + "tcp dport 80 ct state new limit rate over 9/second drop\n ip saddr 10.0.0.0/8 tcp dport 80 ct state new limit rate over 8/second drop } }",
			[]string{"a connection is in one rule"}, []string{"rate: 8/s"}},
		{"a script for both families", IPTables, "iptables -P INPUT ACCEPT\nip6tables -A INPUT -p tcp --dport 80 --syn -m limit --limit 5/sec -j WEB\nip6tables -A INPUT -p tcp --dport 80 --syn -m hashlimit --hashlimit-above 5/min --hashlimit-mode srcip --hashlimit-srcmask 56 -j DROP\niptables -A INPUT -p tcp --dport 80 --syn -m hashlimit --hashlimit-above 6/min --hashlimit-mode srcip -j DROP",
			[]string{`from: "::/0", to: port-80, rate: 5/m, burst: 5, per: {v6: 56}`, "from: 0.0.0.0/0, to: port-80, rate: 6/m, burst: 5, per: source"}, nil},
		{"chains of both families", IPTables, "ip6tables -A INPUT -p tcp --dport 80 -j ACCEPT\niptables -A INPUT -p tcp --dport 80 --syn -m hashlimit --hashlimit-above 6/min --hashlimit-mode srcip -j DROP",
			[]string{"from: 0.0.0.0/0, to: port-80, rate: 6/m"}, []string{"decides first"}},
		{"accepted above in iptables", IPTables, "*filter\n:INPUT ACCEPT\n-A INPUT -p tcp --dport 80 -j ACCEPT\n-A INPUT -p tcp -m multiport --dports 80,81 --syn -m hashlimit --hashlimit-above 6/min --hashlimit-mode srcip -j DROP",
			[]string{"above it decides first about some of its ports", "to: port-81, rate: 6/m"}, []string{"port-80,"}},
	})
}
