// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// PlaceTables find in which of the sets of addresses that request rules ask for a client is, and a
// destination. A step of the look-up is that of the connection rules; a rule's Entry stands for one of Sets.
type PlaceTables struct {
	From, To Roots
	// FromField and ToField are the fields whose patterns the sets are; 0: no rule asks.
	FromField, ToField int
	Nodes              []Node
	Sets               [][]uint32 // patterns, ascending
}

// MaxSets bounds the sets that one address is in.
const MaxSets = 10

// from returns the patterns of a client.
func (t *PlaceTables) from(a netip.Addr) []uint32 { return t.at(t.From, netip.AddrPortFrom(a, 0)) }

// to returns the patterns of a destination.
func (t *PlaceTables) to(a netip.AddrPort) []uint32 { return t.at(t.To, a) }

func (t *PlaceTables) at(r Roots, a netip.AddrPort) []uint32 {
	if !a.Addr().IsValid() {
		return nil
	}
	if i := lookup(t.Nodes, r.of(a.Addr()), NewKey(a.Addr(), a.Port())); i >= 0 {
		return t.Sets[i]
	}
	return nil
}

// placeSets are the sets of addresses that rules ask for in one key. What the same rules name is one set,
// so that long lists of one rule are one pattern, and what many rules name is one, too.
type placeSets struct {
	key   string // of the rules
	field int    // 0: no rule asks
	sets  []*placeSet
	of    map[int][]int // by rule: its sets
	named map[int][]Destination
	lists map[int][]*spot // by rule, of from: those that it names beside
}

type placeSet struct {
	spot  *spot
	rules []int
	addrs []Destination
}

// addPlaces finds the sets of both keys.
func (c *requestCompiler) addPlaces() {
	from := func(q *Request) []Destination { return q.froms() }
	c.places[0] = c.newPlaces("from", from)
	c.places[0].lists = map[int][]*spot{}
	for i := range c.policy.Requests {
		for _, list := range c.policy.Requests[i].FromLists {
			any := c.fields[c.tables.Lists+list].any
			any.field = c.tables.Lists + list
			c.places[0].lists[i] = append(c.places[0].lists[i], any)
		}
	}
	c.places[1] = c.newPlaces("to", c.policy.to)
}

// addLists gives each list a field, whose one pattern has the field's number.
func (c *requestCompiler) addLists() {
	n, last := 0, 0
	for i := range c.policy.Requests {
		for _, list := range c.policy.Requests[i].FromLists {
			n, last = max(n, list+1), i
		}
	}
	for list := range n {
		field := c.newField(owner(last), "list "+c.policy.Lists[list].Name, 0, "")
		if list == 0 {
			c.tables.Lists = field
		}
	}
	c.tables.ListCount = n
}

func (c *requestCompiler) newPlaces(key string, named func(*Request) []Destination) placeSets {
	p := placeSets{key: key, of: map[int][]int{}, named: map[int][]Destination{}}
	rules := map[Destination][]int{}
	var order []Destination
	for i := range c.policy.Requests {
		p.named[i] = named(&c.policy.Requests[i])
		for _, to := range p.named[i] {
			if rules[to] == nil {
				order = append(order, to)
			}
			if in := rules[to]; len(in) == 0 || in[len(in)-1] != i {
				rules[to] = append(in, i)
			}
		}
	}
	if len(order) == 0 {
		return p
	}
	p.field = c.newField(owner(rules[order[0]][0]), key, 0, "")
	byRules := map[string]int{}
	for _, to := range order {
		var by []byte
		for _, r := range rules[to] {
			by = binary.NativeEndian.AppendUint32(by, uint32(r))
		}
		n, there := byRules[string(by)]
		if !there {
			n = len(p.sets)
			byRules[string(by)] = n
			p.sets = append(p.sets, &placeSet{rules: rules[to], spot: &spot{rule: NoMatch, by: rules[to][0], field: p.field, flags: PatternEdge}})
			for _, r := range rules[to] {
				p.of[r] = append(p.of[r], n)
			}
		}
		p.sets[n].addrs = append(p.sets[n].addrs, to)
	}
	return p
}

// ask returns what a rule asks of the key's field.
func (p *placeSets) ask(rule int) ask {
	a := ask{field: p.field, joint: true, spots: slices.Clone(p.lists[rule])}
	if len(a.spots) > 0 {
		a.field = a.spots[0].field
	}
	for _, n := range p.of[rule] {
		a.spots = append(a.spots, p.sets[n].spot)
	}
	return a
}

// mostCompared bounds the entries of a key of which it is found out whether one is within another.
const mostCompared = 1 << 12

// examples returns for each entry of a rule the patterns that all of its addresses have.
func (p *placeSets) examples(rule int) (out [][]uint32) {
	compare := 0
	for _, s := range p.sets {
		compare += len(s.addrs)
	}
	for _, s := range p.lists[rule] {
		out = append(out, []uint32{s.number})
	}
	for _, to := range p.named[rule] {
		var has []uint32
		for _, s := range p.sets {
			covers := slices.Contains(s.addrs, to)
			if compare*len(p.named[rule]) <= mostCompared {
				covers = slices.ContainsFunc(s.addrs, func(from Destination) bool { return from.covers(to) })
			}
			if covers {
				has = append(has, s.spot.number)
			}
		}
		out = append(out, has)
	}
	return out
}

// buildPlaces makes the tables of both keys.
func (c *requestCompiler) buildPlaces() {
	if c.places[0].field+c.places[1].field == 0 {
		return
	}
	t := &PlaceTables{FromField: c.places[0].field, ToField: c.places[1].field}
	b := placeBuilder{forest: newForest(), known: map[string]Entry{}}
	b.forest.unite = b.union
	place := b.forest.placer(&t.Nodes)
	for i, roots := range []*Roots{&t.From, &t.To} {
		p := &c.places[i]
		r, err := b.roots(p)
		if err != nil {
			c.blamePlaces(p, err)
			return
		}
		*roots = Roots{place(r.RootV4), place(r.RootV6)}
	}
	t.Sets = b.sets
	c.tables.Places = t
}

// placeBuilder builds tries whose outcomes are sets.
type placeBuilder struct {
	forest *forest
	sets   [][]uint32
	known  map[string]Entry
}

// outcome returns the entry of a set.
func (b *placeBuilder) outcome(set []uint32) Entry {
	var key []byte
	for _, n := range set {
		key = binary.NativeEndian.AppendUint32(key, n)
	}
	if e, ok := b.known[string(key)]; ok {
		return e
	}
	e := RuleEntry(len(b.sets))
	b.sets = append(b.sets, set)
	b.known[string(key)] = e
	return e
}

// manySetsError says that an address is in too many sets.
type manySetsError struct{ set []uint32 }

func (e *manySetsError) Error() string { return "an address is in too many sets" }

func (b *placeBuilder) union(x, y Entry) (Entry, error) {
	i, _ := x.Rule()
	j, _ := y.Rule()
	set := slices.Concat(b.sets[i], b.sets[j])
	slices.Sort(set)
	set = slices.Compact(set)
	if len(set) > MaxSets {
		return none, &manySetsError{set}
	}
	return b.outcome(set), nil
}

func (b *placeBuilder) roots(p *placeSets) (r Roots, err error) {
	var v4, v6 []prefix
	for _, s := range p.sets {
		for _, to := range s.addrs {
			e := b.outcome([]uint32{s.spot.number})
			if to.Ports != (PortRange{}) {
				if e, err = b.forest.ports([]PortRange{to.Ports}, e); err != nil {
					return r, err
				}
			}
			if !to.Addrs.First.IsValid() {
				v4, v6 = append(v4, prefix{entry: e}), append(v6, prefix{entry: e})
				continue
			}
			for _, within := range to.Addrs.Prefixes() {
				if within.Addr().Is4() {
					v4 = append(v4, newPrefix(within, e))
				} else {
					v6 = append(v6, newPrefix(within, e))
				}
			}
		}
	}
	if len(v4)+len(v6) > maxPrefixes {
		return r, errManyPrefixes
	}
	if r.RootV4, err = b.forest.trie(v4); err != nil {
		return r, err
	}
	r.RootV6, err = b.forest.trie(v6)
	return r, err
}

// blamePlaces says why the tables of a key cannot be built.
func (c *requestCompiler) blamePlaces(p *placeSets, err error) {
	if many, ok := err.(*manySetsError); ok {
		var names []string
		var last *Request
		for _, s := range p.sets {
			if slices.Contains(many.set, s.spot.number) {
				last = &c.policy.Requests[s.rules[0]]
				names = append(names, last.Name)
			}
		}
		c.report.errorf(last.Pos, "%s: entries of %d rules (%s) hold within one another; at most %d can: name the narrower ones alone, or let rules share the same entries",
			p.key, len(many.set), someNames(slices.Compact(names)), MaxSets)
		return
	}
	most := slices.MaxFunc(p.sets, func(a, b *placeSet) int { return len(a.addrs) - len(b.addrs) })
	r := &c.policy.Requests[most.rules[0]]
	c.report.errorf(r.Pos, tooLarge+"%q of request rules names too many addresses, rule %q the most, %s; write prefixes instead of ranges, or merge neighbouring prefixes",
		p.key, r.Name, plural(len(p.named[most.rules[0]]), "entry", "entries"))
}

// placed is in which sets an example is: of the client, of the destination.
type placed [2][]uint32
