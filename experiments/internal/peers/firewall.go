// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"net/netip"
	"strings"

	"narthex/internal/lab"
)

// sources is how many addresses a firewall keeps a rate for: as many as the stateless
// generator has, and some.
const sources = 1 << 17

// NFTables limits connections in nftables. It follows the nftables wiki, "Rate limiting
// matchings" ("limit rate over ... drop" in a chain whose policy is to accept) and, for a
// rate per source, "Meters" (a dynamic set with a limit in its elements). What counts is
// SYNs, not conntrack's new connections: that spares it the tracking.
type NFTables struct {
	Port uint16
	From netip.Prefix // whose SYNs are limited; everybody's if zero

	Rate      int  // SYNs per second
	Burst     int  // SYNs that may come at once; 1 if 0
	PerSource bool // of each address by itself

	// Device is where the rule is in the ingress hook, as the wiki has it for policing:
	// the earliest place, and the cheapest. Without, it is in the input hook.
	Device string
}

// Follows says which documentation the configuration follows.
func (NFTables) Follows() string {
	return `https://wiki.nftables.org/wiki-nftables/index.php/Rate_limiting_matchings sections "Per packet", "Burst"; ` +
		`https://wiki.nftables.org/wiki-nftables/index.php/Meters section "Using meters"`
}

// nftTable is the name of the only table that is touched.
const nftTable = "narthex_peer"

// Apply puts the rule in force, in place of one applied before, until stop.
func (f NFTables) Apply(ns *lab.Namespace) (stop func() error, err error) {
	family, hook := "inet", "hook input priority filter"
	if f.Device != "" {
		family, hook = "netdev", fmt.Sprintf("hook ingress device %q priority 0", f.Device)
	}
	remove := fmt.Sprintf("table %[1]s %[2]s\ndelete table %[1]s %[2]s\n", family, nftTable)
	if err := run(ns, remove+f.table(family, hook), "nft", "-f", "-"); err != nil {
		return nil, err
	}
	return func() error { return run(ns, remove, "nft", "-f", "-") }, nil
}

// table is the text of the table.
func (f NFTables) table(family, hook string) string {
	match, saddr := fmt.Sprintf("tcp dport %d tcp flags & (fin|syn|rst|ack) == syn", f.Port), "ip saddr"
	if f.From.IsValid() {
		if f.From.Addr().Is6() {
			saddr = "ip6 saddr"
		}
		match = saddr + " " + f.From.String() + " " + match
	}
	limit := fmt.Sprintf("limit rate over %d/second burst %d packets", f.Rate, max(1, f.Burst))
	set := ""
	if f.PerSource {
		kind := "ipv4_addr"
		if saddr == "ip6 saddr" {
			kind = "ipv6_addr"
		}
		set = fmt.Sprintf("\tset sources { type %s; size %d; timeout 60s; flags dynamic; }\n", kind, sources)
		limit = fmt.Sprintf("update @sources { %s %s }", saddr, limit)
	}
	return fmt.Sprintf("table %s %s {\n%s\tchain police {\n\t\ttype filter %s; policy accept;\n\t\t%s %s drop\n\t}\n}\n",
		family, nftTable, set, hook, match, limit)
}

// IPTables limits connections by iptables' hashlimit. It follows iptables-extensions(8),
// "hashlimit" and "tcp" (--syn).
type IPTables struct {
	Port uint16
	From netip.Prefix // whose SYNs are limited, IPv4; everybody's if zero

	Rate      int  // SYNs per second
	Burst     int  // SYNs that may come at once; 1 if 0
	PerSource bool // of each address by itself
}

// Follows says which documentation the configuration follows.
func (IPTables) Follows() string {
	return `https://manpages.debian.org/bookworm/iptables/iptables-extensions.8.en.html sections "hashlimit", "tcp"`
}

// Apply puts the rule in force until stop. A second rule comes after it.
func (f IPTables) Apply(ns *lab.Namespace) (stop func() error, err error) {
	rule := fmt.Sprintf("INPUT -p tcp --syn --dport %d", f.Port)
	if f.From.IsValid() {
		rule += " -s " + f.From.String()
	}
	rule += fmt.Sprintf(" -m hashlimit --hashlimit-name narthex --hashlimit-above %d/second --hashlimit-burst %d", f.Rate, max(1, f.Burst))
	if f.PerSource {
		rule += fmt.Sprintf(" --hashlimit-mode srcip --hashlimit-htable-size %[1]d --hashlimit-htable-max %[1]d", sources)
	}
	rule += " -j DROP"
	iptables := func(verb string) error {
		return run(ns, "", "iptables", append([]string{"-w", verb}, strings.Fields(rule)...)...)
	}
	if err := iptables("-A"); err != nil {
		return nil, err
	}
	return func() error { return iptables("-D") }, nil
}

// run runs a program in a namespace.
func run(ns *lab.Namespace, input, program string, args ...string) error {
	cmd := ns.Command(program, args...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
