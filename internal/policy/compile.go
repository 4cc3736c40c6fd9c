// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
)

// maxPrefixes bounds the prefixes of all rules together; a range of addresses can be up
// to 254 of them.
const maxPrefixes = 1 << 20

// errManyPrefixes says that maxPrefixes was met.
var errManyPrefixes = errors.New("too many prefixes")

// Compile turns a policy into tables. It warns of rules that can never match. The error
// is of type Errors.
func Compile(p *Policy) (*Tables, []Warning, error) {
	d := &diagnostics{file: p.File}
	t := plainTables(p)
	c := &compiler{policy: p, forest: newForest(), groups: groupServices(p)}
	err := c.expand()
	for i := 0; i < len(c.groups) && err == nil; i++ {
		err = c.build(&c.groups[i])
	}
	if err == nil {
		err = c.buildTrusted(t)
	}
	if err == nil {
		err = c.place(t)
	}
	if err != nil {
		c.blame(d, err)
		return nil, nil, d.err()
	}
	c.warnUnreachable(d, t)
	if n := t.size().Steps; n > MaxSteps {
		d.errorf(p.Connections[0].Pos, "look-ups of connection rules would take %d steps, of at most %d: name fewer lists beside long prefixes of IPv6 and ports", n, MaxSteps)
	}
	t.Answers = compileAnswers(p)
	t.Answers.fits(d, p)
	if err := d.err(); err != nil {
		return nil, nil, err
	}
	requests, more, err := compileRequests(p)
	if err != nil {
		return nil, nil, err
	}
	t.Requests = requests
	return t, MergeWarnings(d.warned(), more), nil
}

// plainTables returns all of the tables but the nodes.
func plainTables(p *Policy) *Tables {
	t := &Tables{Hash: p.Hash, Default: p.Default}
	for _, s := range p.Services {
		t.Services = append(t.Services, ServiceTable{
			Name: s.Name, Listen: s.Listen, Interfaces: s.Interfaces, XDP: s.XDP, Shadow: s.Shadow,
			Room: RoomTable{
				Protocol: s.Protocol, Limit: s.Concurrency.Limit, Adaptive: s.Concurrency.Mode == ConcurrencyAuto,
				Floor: s.Concurrency.floor(), Ceiling: s.Concurrency.ceiling(), Target: s.Concurrency.target(),
				Overload: s.Overload, Queue: s.Queue, Ends: s.ServiceEnds, Reject: s.Reject, H2C: s.H2C, Requests: s.Requests, Mark: s.SocketMark, Labels: s.Labels,
			},
		})
	}
	t.addPools(p)
	for i, c := range p.Classes {
		t.Classes = append(t.Classes, ClassTable{c.Name, c.Priority, c.Reserve, c.Max, c.Stall, socketPriority(i, len(p.Classes)), c.Fair, c.Known})
	}
	t.Rules = make([]RuleTable, len(p.Connections))
	for i, r := range p.Connections {
		t.Listed = t.Listed || len(r.FromLists) > 0
		t.Rules[i] = RuleTable{r.Name, r.Action, r.Rate.Interval(), uint32(r.Burst), r.Per, r.Class, r.When, r.Rate.Auto, limitTables(r.Limits)}
	}
	for i := range t.Services {
		t.Services[i].Auto = p.autoRules(i)
		t.Services[i].Bounded = slices.ContainsFunc(p.Connections, func(c Connection) bool { return c.bounds(i) })
		r := &t.Services[i].Room
		r.Ruled = slices.ContainsFunc(p.Requests, func(q Request) bool { return q.seenIn(r.Protocol) })
		r.Followed = r.Protocol == HTTP || r.Mark != 0 || r.Ruled || t.HasRoom(i)
	}
	t.steerPools(p)
	return t
}

// bounds reports whether the rule is for a service and bounds how many connections there are at once.
func (c *Connection) bounds(service int) bool {
	return (len(c.To) == 0 || slices.Contains(c.To, service)) && slices.ContainsFunc(c.Limits, func(b Bound) bool { return b.AtOnce > 0 })
}

// seenIn reports whether a service of that protocol shows what a request rule asks for.
func (q *Request) seenIn(p Protocol) bool {
	tls := q.asksTLS()
	switch p {
	case HTTP:
		return !tls
	case TLS:
		return !q.asksHTTP()
	}
	return false
}

// asksTLS reports whether a rule asks for something that is seen in TLS alone.
func (q *Request) asksTLS() bool { return q.asksText(true) }

// asksHTTP reports whether a rule asks for something that is seen in HTTP alone.
func (q *Request) asksHTTP() bool {
	return q.asksText(false) || len(q.Cookie)+len(q.Header)+len(q.Query)+q.Parameters > 0 || !q.Without.empty()
}

// socketPriority returns the SO_PRIORITY of the i-th of n classes. The kernel's priorities
// (linux/pkt_sched.h) are names and not an order: pfifo_fast and prio send 6, interactive,
// before 0, best effort, and that before 2, bulk. 1, filler, is sent like 2: to count
// classes from 0 on would put the second one last.
func socketPriority(i, n int) int {
	const bestEffort, bulk, interactive = 0, 2, 6
	switch {
	case n > 1 && i == 0:
		return interactive
	case n > 2 && i == n-1:
		return bulk
	}
	return bestEffort
}

// group is services to which the same rules apply. They share their tables.
type group struct {
	services []int
	own      []int // rules that name the services, ascending; those for all services come on top
	plain    Roots
	learned  []Roots // like ServiceTable.Learned
}

// groupServices finds the groups in the order of their first services.
func groupServices(p *Policy) []group {
	own := make([][]int, len(p.Services))
	for i, r := range p.Connections {
		for _, s := range r.To {
			own[s] = append(own[s], i)
		}
	}
	var groups []group
	byRules := map[string]int{}
	var key []byte
	for s, rules := range own {
		key = key[:0]
		for _, r := range rules {
			key = binary.NativeEndian.AppendUint32(key, uint32(r))
		}
		g, ok := byRules[string(key)]
		if !ok {
			g = len(groups)
			byRules[string(key)] = g
			groups = append(groups, group{own: rules})
		}
		groups[g].services = append(groups[g].services, s)
	}
	return groups
}

// compiler builds the nodes of one policy.
type compiler struct {
	policy *Policy
	forest *forest
	groups []group
	v4, v6 []rulePrefix // of all rules, by address, then length, then file order
	wide   int          // rule with the most prefixes
}

// rulePrefix is one prefix of a rule; its entry is the rule's outcome by port.
type rulePrefix struct {
	prefix
	rule int32
}

// expand lists the prefixes of all rules.
func (c *compiler) expand() error {
	most := 0
	for i := range c.policy.Connections {
		r := &c.policy.Connections[i]
		entry, err := RuleEntry(i), error(nil)
		if len(r.FromPort) > 0 {
			entry, err = c.forest.ports(r.FromPort, entry)
		}
		if err != nil {
			return err
		}
		before := len(c.v4) + len(c.v6)
		if err := c.addRule(int32(i), r, entry); err != nil {
			return err
		}
		added := len(c.v4) + len(c.v6) - before
		if added > most {
			most, c.wide = added, i
		}
		if before+added > maxPrefixes {
			return errManyPrefixes
		}
	}
	sortPrefixes(c.v4)
	sortPrefixes(c.v6)
	return nil
}

func (c *compiler) addRule(rule int32, from *Connection, entry Entry) error {
	anybody := entry
	if len(from.FromLists) > 0 {
		var err error
		if anybody, err = c.listed(from, RuleEntry(int(rule))); err != nil {
			return err
		}
	}
	if len(from.From) == 0 || len(from.FromLists) > 0 {
		c.v4 = append(c.v4, rulePrefix{prefix{entry: anybody}, rule})
		c.v6 = append(c.v6, rulePrefix{prefix{entry: anybody}, rule})
	}
	for _, r := range from.From {
		for _, p := range r.Prefixes() {
			rp := rulePrefix{newPrefix(p, entry), rule}
			if p.Addr().Is4() {
				c.v4 = append(c.v4, rp)
			} else {
				c.v6 = append(c.v6, rp)
			}
		}
	}
	return nil
}

// listed returns the outcome of a rule for who is in one of its lists. Ports are tested first.
func (c *compiler) listed(r *Connection, rule Entry) (Entry, error) {
	in, err := c.forest.listed(r.FromLists, rule)
	if err != nil || len(r.FromPort) == 0 {
		return in, err
	}
	return c.forest.ports(r.FromPort, in)
}

func newPrefix(p netip.Prefix, entry Entry) prefix {
	k := NewKey(p.Addr(), 0)
	return prefix{[2]uint64{k[0], k[1]}, p.Bits(), entry}
}

func sortPrefixes(list []rulePrefix) {
	slices.SortFunc(list, func(a, b rulePrefix) int {
		return cmp.Or(cmp.Compare(a.word[0], b.word[0]), cmp.Compare(a.word[1], b.word[1]),
			cmp.Compare(a.bits, b.bits), cmp.Compare(a.rule, b.rule))
	})
}

// build makes the tables of a group.
func (c *compiler) build(g *group) error {
	own := make([]bool, len(c.policy.Connections))
	for _, r := range g.own {
		own[r] = true
	}
	plain := c.applies(own, NotLearned)
	var err error
	if g.plain, err = c.buildRoots(plain); err != nil {
		return err
	}
	learned, asked := make([]Roots, len(c.policy.Classes)), false
	for class := range learned {
		applies := c.applies(own, class)
		learned[class] = g.plain
		if slices.Equal(applies, plain) {
			continue
		}
		asked = true
		if learned[class], err = c.buildRoots(applies); err != nil {
			return err
		}
	}
	if asked {
		g.learned = learned
	}
	return nil
}

// applies says which rules are for all services or own, and for sources that are remembered
// in the class or not at all.
func (c *compiler) applies(own []bool, learned int) []bool {
	applies := make([]bool, len(c.policy.Connections))
	for i := range applies {
		r := &c.policy.Connections[i]
		applies[i] = (own[i] || len(r.To) == 0) && (len(r.Learned) == 0 || slices.Contains(r.Learned, learned))
	}
	return applies
}

// buildRoots makes the tables of both address families from the rules that apply.
func (c *compiler) buildRoots(applies []bool) (r Roots, err error) {
	if r.RootV4, err = c.buildFamily(c.v4, applies); err != nil {
		return r, err
	}
	r.RootV6, err = c.buildFamily(c.v6, applies)
	return r, err
}

// buildFamily makes the table of one address family from the rules that apply. Rules of
// one prefix become one outcome first.
func (c *compiler) buildFamily(all []rulePrefix, applies []bool) (Entry, error) {
	if err := c.forest.spend(len(all)); err != nil {
		return none, err
	}
	var list []prefix
	for i := range all {
		if applies[all[i].rule] {
			list = append(list, all[i].prefix)
		}
	}
	list, err := c.forest.fold(list)
	if err != nil {
		return none, err
	}
	return c.forest.build(list, 0, none)
}

// place copies the nodes that are in use to the tables and sets the roots.
func (c *compiler) place(t *Tables) error {
	place := c.forest.placer(&t.Nodes)
	roots := func(r Roots) Roots { return Roots{place(r.RootV4), place(r.RootV6)} }
	for _, g := range c.groups {
		plain, learned := roots(g.plain), []Roots(nil)
		for _, r := range g.learned {
			learned = append(learned, roots(r))
		}
		for _, s := range g.services {
			t.Services[s].Roots, t.Services[s].Learned = plain, learned
		}
	}
	for i := range t.Services {
		t.Services[i].Trusted = roots(t.Services[i].Trusted)
	}
	if len(t.Nodes) > MaxNodes {
		return errTooLarge
	}
	return nil
}
