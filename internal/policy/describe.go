// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"
)

// Describe prints at most this many rules of a table one by one; of a longer one it prints
// the first few and a summary.
const (
	describeAll   = 50
	describeFirst = 10
)

// Describe writes in words what a policy means, with every default filled in. The error
// is that of the writer.
func Describe(w io.Writer, p *Policy, t *Tables) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "%s: %s, %s, %s, %s\n", p.File, count(len(p.Services), "service"), classCount(len(p.Classes)),
		count(len(p.Connections), "connection rule"), count(len(p.Requests), "request rule"))
	for i := range p.Services {
		describeService(b, &p.Services[i])
		t.describeRoom(b, i, &p.Services[i])
		if p.Services[i].Shadow {
			fmt.Fprintln(b, "  shadow mode: decides and counts, drops and holds nothing")
		}
	}
	describeLists(b, p)
	describePools(b, p)
	describeClasses(b, p)
	describeConnections(b, p)
	describeRequests(b, p)
	s := t.size()
	fmt.Fprintf(b, "\ntables: %s, %d KiB; a look-up takes at most %s\n", count(s.Nodes, "node"), (s.Bytes+1023)/1024, count(s.Steps, "step"))
	if r := s.Requests; r != nil {
		fmt.Fprintf(b, "tables of the request rules: %s, %s, %s, %d KiB\n",
			count(r.Keys, "key"), count(r.Nodes, "node"), count(r.States, "state"), (r.Bytes+1023)/1024)
	}
	return b.Flush()
}

func classCount(n int) string {
	if n == 1 {
		return "1 class"
	}
	return fmt.Sprintf("%d classes", n)
}

func describeService(b io.Writer, s *Service) {
	fmt.Fprintf(b, "\nservice %s\n", s.Name)
	fmt.Fprintf(b, "  listens on %s\n", inWords(words(s.Listen), "and"))
	on := "every interface that has an address, but lo"
	if len(s.Interfaces) > 0 {
		on = inWords(s.Interfaces, "and")
	}
	how := map[XDPMode]string{
		XDPAuto:    "XDP in the driver where it can, else tcx",
		XDPNative:  "XDP in the driver only",
		XDPGeneric: "generic XDP",
		XDPOff:     "tcx",
	}[s.XDP]
	fmt.Fprintf(b, "  policed on %s, by %s\n", on, how)
}

func describeClasses(b io.Writer, p *Policy) {
	fmt.Fprint(b, "\nclasses, most important first\n")
	for i, c := range p.Classes {
		fmt.Fprintf(b, "  %s (priority %d)", c.Name, c.Priority)
		if c.Reserve > 0 {
			fmt.Fprintf(b, ", %d%% of the admissions while it waits", c.Reserve)
		}
		if c.Max > 0 {
			fmt.Fprintf(b, ", at most %d in service", c.Max)
		}
		if c.Stall > 0 {
			fmt.Fprintf(b, ", reset when it keeps a worker waiting for %s while others wait", span(c.Stall))
		}
		if c.fairAt.Line > 0 {
			fmt.Fprintf(b, ", %s", c.Fair.inWords())
		}
		if c.Known > 0 {
			fmt.Fprintf(b, ", %s", knownInWords(c.Known))
		}
		if i == p.Default {
			fmt.Fprint(b, "; the default")
		}
		fmt.Fprintln(b)
	}
}

func describeLists(b io.Writer, p *Policy) {
	if len(p.Lists) == 0 {
		return
	}
	fmt.Fprint(b, "\nlists, read anew when they change\n")
	for i, l := range p.Lists {
		fmt.Fprintf(b, "  %s: %s, at most %s\n", l.Name, p.ListPath(i), plural(l.Max, "entry", "entries"))
	}
}

func describeConnections(b io.Writer, p *Policy) {
	fmt.Fprint(b, "\nconnection rules, the first that matches a SYN decides\n")
	show := len(p.Connections)
	if show > describeAll {
		show = describeFirst
	}
	for i := range p.Connections[:show] {
		fmt.Fprintf(b, "  %d. %s\n", i+1, p.describeConnection(&p.Connections[i]))
	}
	if rest := p.Connections[show:]; len(rest) > 0 {
		var n [4]int
		for _, r := range rest {
			n[r.Action]++
		}
		fmt.Fprintf(b, "  … and %d more: %d limit a rate, %d drop, %d pass, %d only name a class\n",
			len(rest), n[ActionPolice], n[ActionDrop], n[ActionPass], n[ActionClassify])
	}
	fmt.Fprintf(b, "  a SYN that no rule matches passes, class %s\n", p.Classes[p.Default].Name)
}

// describeConnection puts one rule into a line.
func (p *Policy) describeConnection(r *Connection) string {
	from, to := "anybody", "any service"
	if len(r.From)+len(r.FromLists) > 0 {
		from = inWords(p.fromNames(r.From, r.FromLists), "or")
	}
	if len(r.FromPort) > 0 {
		from += ", port " + inWords(words(r.FromPort), "or") + ","
	}
	if len(r.To) > 0 {
		to = inWords(p.serviceNames(r.To), "or")
	}
	s := fmt.Sprintf("%s: from %s to %s: ", r.Name, from, to)
	if len(r.Learned) > 0 {
		var names []string
		for _, c := range r.Learned {
			names = append(names, p.Classes[c].Name)
		}
		s += "if learned in " + inWords(names, "or") + ": "
	}
	s += r.When.inWords()
	switch r.Action {
	case ActionDrop:
		if r.When == WhenAlways {
			return s + "drop"
		}
		s += "drop; else "
	case ActionPass:
		return s + "pass, whatever limits there are"
	case ActionPolice:
		s += fmt.Sprintf("at most %s, ", limitsInWords(r.Rate, r.Burst, r.Per, r.Limits))
	}
	return s + "class " + p.ClassName(r.Class)
}

// String returns the value as a policy has it.
func (f Fair) String() string {
	switch {
	case f == FairNone:
		return "none"
	case f == FairSource:
		return "source"
	case f.Key.Name != "":
		return fmt.Sprintf("{%s: %s}", f.Key.Kind, f.Key.Name)
	case f.Key.Kind != "":
		return f.Key.Kind
	}
	return fmt.Sprintf("{v4: %d, v6: %d}", f.V4, f.V6)
}

// knownInWords says who goes ahead in a class.
func knownInWords(d time.Duration) string {
	return "first who was answered within " + span(d)
}

// inWords says in which order those of a class are served.
func (f Fair) inWords() string {
	if f == FairNone {
		return "in order of arrival"
	}
	s := fmt.Sprintf("fair between IPv4 /%d and IPv6 /%d", f.V4, f.V6)
	if f.Key.Kind != "" {
		s += ", and in each between the values of " + f.Key.String()
	}
	return s
}

// String says who shares a bucket.
func (p Per) String() string {
	switch p {
	case PerRule:
		return "all together"
	case PerSource:
		return "each IPv4 address and IPv6 /64"
	}
	if p.Key.Kind != "" {
		return fmt.Sprintf("each %s, or source without one", p.Key)
	}
	return fmt.Sprintf("each IPv4 /%d and IPv6 /%d", p.V4, p.V6)
}

func describeRequests(b io.Writer, p *Policy) {
	if len(p.Requests) == 0 {
		return
	}
	fmt.Fprint(b, "\nrequest rules, the first that matches a request decides\n")
	show := len(p.Requests)
	if show > describeAll {
		show = describeFirst
	}
	for i := range p.Requests[:show] {
		fmt.Fprintf(b, "  %d. %s\n", i+1, p.describeRequest(&p.Requests[i]))
	}
	if rest := p.Requests[show:]; len(rest) > 0 {
		var n [5]int
		for _, r := range rest {
			n[r.Action]++
		}
		fmt.Fprintf(b, "  … and %d more: %d limit a rate, %d reset, %d reject, %d pass, %d only name a class\n",
			len(rest), n[ActionPolice], n[ActionDrop], n[ActionReject], n[ActionPass], n[ActionClassify])
	}
}

// describeRequest puts one rule into a line.
func (p *Policy) describeRequest(r *Request) string {
	var asks []string
	ask := func(what string, patterns []string) {
		if len(patterns) > 0 {
			asks = append(asks, what+" "+inWords(patterns, "or"))
		}
	}
	ask("from", p.fromNames(r.From, r.FromLists))
	ask("to", p.ToNames(r))
	for _, field := range shownFields {
		f := &textFields[field]
		ask(cmp.Or(f.what, f.key.name), r.texts(field))
	}
	for kind, pairs := range [][]Pair{r.Cookie, r.Header, r.Query} {
		what := []string{"cookie ", "header ", "parameter "}[kind]
		for _, p := range pairs {
			patterns := p.Values
			for _, f := range p.Folded {
				patterns = append(patterns[:len(patterns):len(patterns)], f+" without case")
			}
			ask(what+p.Name, patterns)
		}
	}
	if r.Parameters > 0 {
		asks = append(asks, fmt.Sprintf("at least %s", count(r.Parameters, "parameter")))
	}
	for kind, names := range r.Without.lists() {
		if len(names) > 0 {
			asks = append(asks, "without "+[]string{"header ", "cookie ", "parameter "}[kind]+inWords(names, "and"))
		}
	}
	if len(asks) == 0 {
		asks = []string{"every request"}
	}
	return r.Name + ": " + strings.Join(asks, ", ") + ": " + p.describeOutcome(r)
}

func (p *Policy) describeOutcome(r *Request) string {
	var does []string
	switch r.Action {
	case ActionDrop:
		does = append(does, "reset")
	case ActionReject:
		does = append(does, "reject")
	case ActionPass:
		does = append(does, "pass, never held, never counted")
	case ActionPolice:
		beyond := map[Over]string{OverReject: "reject", OverDrop: "reset", OverDemote: "the lowest class"}[r.Over]
		does = append(does, fmt.Sprintf("at most %s, beyond that %s", limitsInWords(r.Rate, r.Burst, r.Per, r.Limits), beyond))
	}
	if r.Answer != nil {
		does = append(does, "answered "+r.Answer.For(r.cause(), r.Block).String())
	}
	if r.Block > 0 {
		does = append(does, "block the client for "+span(r.Block))
	}
	if r.Class >= 0 {
		does = append(does, "class "+p.Classes[r.Class].Name)
	}
	if r.Learn > 0 {
		does = append(does, "remember the client for "+span(r.Learn))
	}
	return r.When.inWords() + strings.Join(does, ", ")
}

// inWords says of a rule that it is not always enforced.
func (w When) inWords() string {
	switch w {
	case WhenOverload:
		return "while overloaded, "
	case WhenRejecting:
		return "while requests are turned away, "
	case WhenFlooded:
		return "while flooded, "
	}
	return ""
}

// inWords lists values as in a sentence, the first few of many.
func inWords(values []string, conjunction string) string {
	const most = 6
	if n := len(values); n > most {
		return fmt.Sprintf("%s %s %d more", strings.Join(values[:most-1], ", "), conjunction, n-most+1)
	}
	if n := len(values); n > 1 {
		return strings.Join(values[:n-1], ", ") + " " + conjunction + " " + values[n-1]
	}
	return strings.Join(values, "")
}
