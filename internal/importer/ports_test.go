// SPDX-License-Identifier: Apache-2.0

package importer

import "testing"

// TestPortsOpened checks that a rule for all ports holds at each port that is opened after it.
func TestPortsOpened(t *testing.T) {
	const input = "table inet t { chain c { type filter hook input priority 0; policy drop; ct state established accept\n"
	const all = "add @r { ip saddr limit rate over 5/second burst 7 packets } drop\n"
	testLines(t, []lineTest{
		{"a rate, and ports behind it", NFTables, input + all + "tcp dport { http, https } accept\n tcp dport 22 accept } }",
			[]string{`listen: "*:80"`, `listen: "*:443"`, `listen: "*:22"`, "{name: limit, from: 0.0.0.0/0, rate: 5/s, burst: 7, per: source}"}, []string{"Not carried over"}},
		{"beside a rule that names a port", NFTables, input + all + "tcp dport 80 accept\n ip saddr 192.0.2.1 tcp dport 9100 accept } }",
			[]string{`listen: "*:80"`, `listen: "*:9100"`, "{name: limit, from: 0.0.0.0/0, rate: 5/s, burst: 7, per: source}"}, nil},
		{"addresses", NFTables, input + "ip saddr 192.0.2.0/24 drop\n tcp dport 80 accept } }", []string{`listen: "*:80"`, "from: 192.0.2.0/24, action: drop"}, []string{"Not carried over"}},
		{"ports before it", NFTables, input + "tcp dport 22 accept\n" + all + "tcp dport 80 accept } }", []string{`listen: "*:80"`, "rate: 5/s"}, []string{`listen: "*:22"`}},
		{"an address of the server", NFTables, input + all + "ip daddr 192.0.2.9 tcp dport 80 accept } }", []string{`listen: "192.0.2.9:80"`, "rate: 5/s"}, nil},
		{"too many ports", NFTables, input + all + "tcp dport 1024-65535 accept\n tcp dport 80 accept } }", []string{`listen: "*:80"`, "range of more than 64 ports"}, nil},
		{"other protocols", NFTables, input + all + "udp dport 53 accept\n tcp dport 80 accept } }", []string{`listen: "*:80"`}, []string{":53"}},
		{"in a chain", NFTables, "table inet t { chain web { tcp dport 80 accept\n }\n chain c { type filter hook input priority 0; policy drop; ct state established accept\n" + all + "jump web\n } }", []string{`listen: "*:80"`, "rate: 5/s"}, nil},
		{"nothing for all ports", NFTables, input + "tcp dport 81 limit rate over 5/second drop\n tcp dport 80 accept } }", []string{`listen: "*:81"`}, []string{`listen: "*:80"`}},
		{"iptables", IPTables, "*filter\n:INPUT DROP [0:0]\n-A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT\n-A INPUT -p tcp --syn -m hashlimit --hashlimit-above 5/s --hashlimit-burst 7 --hashlimit-mode srcip --hashlimit-name w -j DROP\n" +
			"-A INPUT -p tcp -m multiport --dports 80,443 -j ACCEPT\nCOMMIT\n", []string{`listen: "*:80"`, `listen: "*:443"`, "rate: 5/s"}, nil},
	})
}

// TestAcceptedAgain checks that a rate says so whose excess another rate accepts.
func TestAcceptedAgain(t *testing.T) {
	const input = "*filter\n:INPUT DROP [0:0]\n-A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT\n-A INPUT -p tcp --dport 22 -m limit --limit 4/min --limit-burst 4 -j ACCEPT\n"
	const again = `accepts up to its own rate what is beyond this one`
	testLines(t, []lineTest{
		{"by a rate for all ports", IPTables, input + "-A INPUT -p tcp --syn -m limit --limit 40/s --limit-burst 80 -j ACCEPT\nCOMMIT\n", []string{"to: port-22, rate: 4/m", again}, nil},
		{"by a rate for other ports", IPTables, input + "-A INPUT -p tcp --dport 80 -m limit --limit 40/s --limit-burst 80 -j ACCEPT\nCOMMIT\n", []string{"to: port-22, rate: 4/m", "to: port-80, rate: 40/s"}, []string{again}},
		{"after a drop", IPTables, input + "-A INPUT -p tcp --dport 22 -j DROP\n-A INPUT -p tcp --syn -m limit --limit 40/s --limit-burst 80 -j ACCEPT\nCOMMIT\n", []string{"to: port-22, rate: 4/m"}, []string{again}},
	})
}
