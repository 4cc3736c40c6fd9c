// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"slices"
	"strings"

	"narthex/internal/importer/draft"
)

// ImportIPTables makes a draft of what iptables-save or ip6tables-save prints. The error is
// a *draft.SyntaxError.
func ImportIPTables(name string, text []byte) (*draft.Draft, error) {
	d := &draft.Draft{}
	s := &ruleset{}
	table, saved := "filter", 4
	for i, raw := range strings.Split(string(text), "\n") {
		at := draft.Origin{File: name, Line: i + 1}
		if raw = strings.TrimSpace(raw); strings.HasPrefix(raw, "#") {
			if strings.Contains(raw, "tables-save") {
				saved = familyOf(raw)
			}
			continue
		}
		words, err := shellWords(raw)
		if err != nil {
			return nil, &draft.SyntaxError{Origin: at, Msg: err.Error()}
		}
		switch {
		case len(words) == 0 || words[0] == "COMMIT":
		case strings.HasPrefix(words[0], "*"):
			table = words[0][1:]
		case strings.HasPrefix(words[0], ":"):
			c := s.chain(keyOf(saved, table) + words[0][1:])
			c.drops = len(words) > 1 && words[1] == "DROP"
			c.hook = hookOf(table, words[0][1:])
		default:
			if strings.HasPrefix(words[0], "[") {
				words = words[1:] // counters
			}
			family := saved
			for len(words) > 0 && (words[0] == "iptables" || words[0] == "ip6tables") {
				family = familyOf(words[0])
				words = words[1:]
			}
			if len(words) < 2 || !slices.Contains([]string{"-A", "-I", "--append", "--insert", "-P", "-N", "-F", "-X"}, words[0]) {
				return nil, &draft.SyntaxError{Origin: at, Msg: fmt.Sprintf("%q is not understood: this is read as iptables-save prints it", raw)}
			}
			key := keyOf(family, table)
			c := s.chain(key + words[1])
			if c.hook == "" {
				c.hook = hookOf(table, words[1])
			}
			switch words[0] {
			case "-P":
				c.drops = len(words) > 2 && words[2] == "DROP"
			case "-A", "--append":
				c.rules = append(c.rules, readRule(at, key, family, words, words[2:]))
			case "-I", "--insert":
				c.rules = slices.Insert(c.rules, 0, readRule(at, key, family, words, words[2:]))
			}
		}
	}
	translate(d, s)
	return d, nil
}

// familyOf returns the family of addresses by the name of a command.
func familyOf(command string) int {
	if strings.Contains(command, "ip6tables") {
		return 6
	}
	return 4
}

// keyOf returns what the chains of a table begin with: each family has its own.
func keyOf(family int, table string) string { return fmt.Sprintf("%d %s ", family, table) }

// hookOf returns where a chain of iptables is asked; nothing for those of users.
func hookOf(table, chain string) string {
	switch {
	case !slices.Contains([]string{"INPUT", "PREROUTING", "FORWARD", "OUTPUT", "POSTROUTING"}, chain):
		return ""
	case table == "nat":
		return table
	case chain == "INPUT":
		return "input"
	case chain == "PREROUTING":
		return "prerouting"
	}
	return "other"
}

// shellWords takes a line apart as iptables-restore does.
func shellWords(line string) ([]string, error) {
	var words []string
	var b strings.Builder
	open, quote := false, byte(0)
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote == 0 && (c == ' ' || c == '\t'):
			if open {
				words = append(words, b.String())
				b.Reset()
			}
			open = false
		case c == '\\' && i+1 < len(line) && quote != '\'':
			i++
			b.WriteByte(line[i])
			open = true
		case quote == 0 && (c == '"' || c == '\''):
			quote, open = c, true
		case c == quote && quote != 0:
			quote = 0
		default:
			b.WriteByte(c)
			open = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("the quote %c is not closed", quote)
	}
	if open {
		words = append(words, b.String())
	}
	return words, nil
}

// options is a rule of iptables that is being read.
type options struct {
	*rule
	words  []string
	at     int
	limit  *limit
	hash   bool
	mask   int
	hashed string // --hashlimit-mode
}

func readRule(at draft.Origin, key string, family int, all, words []string) *rule {
	r := &rule{Origin: at, text: strings.Join(all, " "), family: family}
	o := &options{rule: r, words: words, mask: -1}
	for o.at < len(o.words) {
		not := false
		if o.words[o.at] == "!" {
			not = true
			o.at++
		}
		if o.at < len(o.words) {
			o.option(key, o.take(), not)
		}
	}
	o.finish()
	return r
}

func (o *options) take() string {
	o.at++
	if o.at > len(o.words) {
		o.leave("an option has no value")
		return ""
	}
	return o.words[o.at-1]
}

func (o *options) option(key, name string, not bool) {
	r := o.rule
	switch name {
	case "-m", "--match":
		o.module(o.take())
	case "-p", "--protocol":
		if p := o.take(); (p == "tcp" || p == "6") == not && p != "all" {
			r.other = true
		}
	case "-s", "--source", "--src":
		r.sources(strings.Split(o.take(), ","), not)
	case "--src-range":
		r.sources([]string{o.take()}, not)
	case "-d", "--destination", "--dst":
		for _, d := range strings.Split(o.take(), ",") {
			a, err := readAddress(d)
			if err != nil || not {
				r.leave("the server's addresses are named in a way that is not carried over")
			}
			r.daddr = append(r.daddr, a)
		}
	case "-i", "--in-interface":
		r.iif = o.take()
		if not {
			r.iif = "not " + r.iif
		}
	case "--dport", "--dports", "--destination-port", "--destination-ports":
		r.dports(strings.Split(o.take(), ","), not)
	case "--syn":
		r.fresh = r.fresh || !not
		r.old = r.old || not
	case "--tcp-flags":
		mask, want := o.take(), o.take()
		if want == "SYN" && strings.Contains(mask, "SYN") && !not {
			r.fresh = true
		} else {
			r.leave("--tcp-flags %s %s is not carried over", mask, want)
		}
	case "--ctstate", "--state":
		r.states(strings.Split(o.take(), ","), not)
	case "--comment", "--reject-with", "--log-prefix", "--log-level", "--hashlimit-name", "--hashlimit-htable-size", "--hashlimit-htable-max",
		"--hashlimit-htable-expire", "--hashlimit-htable-gcinterval":
		o.take()
	case "-j", "--jump", "-g", "--goto":
		o.verdict(key, o.take())
		r.leaves = r.verdict == "jump" && (name == "-g" || name == "--goto")
	default:
		o.limits(name, not)
	}
}

// module notes modules without which a rule would say something else.
func (o *options) module(name string) {
	switch name {
	case "tcp", "conntrack", "state", "multiport", "comment", "hashlimit", "limit", "connlimit", "iprange":
	case "set":
		o.leave("the set is not in this file")
		o.instead = "write its addresses in from: of a connection rule (ipset list shows them)"
	case "recent":
		o.leave("a list of recent addresses is not carried over")
		o.instead = "a rate with per: source counts each client; block: of a request rule keeps clients away for a time"
	case "udp", "icmp", "icmp6":
		o.other = true
	default:
		o.leave("-m %s is not carried over", name)
	}
}

func (o *options) verdict(key, target string) {
	r := o.rule
	switch target {
	case "ACCEPT":
		r.verdict = "accept"
	case "DROP", "REJECT", "TARPIT":
		r.verdict = "drop"
	case "RETURN":
		r.verdict = "return"
	case "LOG", "NFLOG", "ULOG", "MARK", "CONNMARK", "SET", "CT", "TCPMSS", "NOTRACK", "AUDIT", "TRACE":
		o.at = len(o.words) // goes on with the next rule
	default:
		r.verdict, r.target = "jump", key+target
	}
}
