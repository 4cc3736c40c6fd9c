// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// scaleTable is the only table of nftables that is touched.
const scaleTable = "narthex_scale"

// chains are the same rules in firewalls: as the wiki of nftables has it, in a list and in a set
// (https://wiki.nftables.org/wiki-nftables/index.php/Sets), and in a list of iptables.
func (st *stage) chains() []variant {
	return []variant{
		st.chain("nftables, list", scaleLinear, nftablesList, []string{"nft", "-f"}, []string{"nft", "delete", "table", "inet", scaleTable}),
		st.chain("nftables, set", scaleRules, nftablesSet, []string{"nft", "-f"}, []string{"nft", "delete", "table", "inet", scaleTable}),
		st.chain("iptables, list", scaleLinear, iptablesList, []string{"iptables-restore"}, []string{"iptables", "-F"}),
	}
}

// chain is a firewall whose rules a program puts in force from a file, and another takes away.
func (st *stage) chain(name string, xs []float64, text func(rules int) string, apply, remove []string) variant {
	run := func(args []string) error {
		if out, err := st.rig.Server.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %.500s", args[0], err, out)
		}
		return nil
	}
	v := variant{name: name, xs: xs, start: nobody}
	v.measure = func(ctx context.Context, x float64) (o outcome, err error) {
		dir, err := st.rig.Server.TempDir("rules")
		if err != nil {
			return o, err
		}
		file := filepath.Join(dir, "rules")
		if err := os.WriteFile(file, []byte(text(int(x))), 0o600); err != nil {
			return o, err
		}
		begun := time.Now()
		if err := run(append(apply[:len(apply):len(apply)], file)); err != nil {
			return o, err
		}
		took := time.Since(begun)
		rate := scaleSYNs
		if x > 1000 && name != "nftables, set" {
			rate = scaleSYNsLinear
		}
		if o, err = st.syns(ctx, rate, nil); err != nil {
			return o, err
		}
		o.values[loadTime] = took.Seconds()
		return o, run(remove)
	}
	return v
}

// nftablesChain begins a chain for SYNs, as the peers of other experiments have it.
const nftablesChain = "\tchain in {\n\t\ttype filter hook input priority filter; policy accept;\n"

const nftablesSYN = "tcp dport 80 tcp flags & (fin|syn|rst|ack) == syn"

func nftablesList(rules int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %s {\n%s", scaleTable, nftablesChain)
	for i := range rules - 1 {
		fmt.Fprintf(&b, "\t\tip saddr %s %s drop\n", scaleFrom(i), nftablesSYN)
	}
	fmt.Fprintf(&b, "\t\tip saddr %s %s drop\n\t}\n}\n", greedyNet, nftablesSYN)
	return b.String()
}

func nftablesSet(rules int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %s {\n\tset sources {\n\t\ttype ipv4_addr;\n", scaleTable)
	for i := range rules - 1 {
		if i == 0 {
			fmt.Fprint(&b, "\t\telements = {")
		}
		fmt.Fprintf(&b, " %s,", scaleFrom(i))
	}
	if rules > 1 {
		fmt.Fprint(&b, " }\n")
	}
	fmt.Fprintf(&b, "\t}\n%s\t\tip saddr @sources %s drop\n\t\tip saddr %s %s drop\n\t}\n}\n", nftablesChain, nftablesSYN, greedyNet, nftablesSYN)
	return b.String()
}

func iptablesList(rules int) string {
	var b strings.Builder
	fmt.Fprint(&b, "*filter\n:INPUT ACCEPT\n")
	for i := range rules - 1 {
		fmt.Fprintf(&b, "-A INPUT -s %s -p tcp --syn --dport 80 -j DROP\n", scaleFrom(i))
	}
	fmt.Fprintf(&b, "-A INPUT -s %s -p tcp --syn --dport 80 -j DROP\nCOMMIT\n", greedyNet)
	return b.String()
}
