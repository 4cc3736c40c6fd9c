// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bounds of pools. The data path relies on them.
const (
	MaxMembers   = 32  // services and pools in a pool
	MaxShare     = 100 // of a member
	maxPoolBytes = 58  // bytes in a pool's name: it has a slot beside those of services
)

// Between says by what the members of a pool come first.
type Between string

// The orders of a pool.
const (
	BetweenClasses Between = "classes" // they are one queue
	BetweenShares  Between = "shares"  // each has its share of the places
)

var betweens = []Between{BetweenClasses, BetweenShares}

var parseBetween = parseWord(betweens...)

// Pool is what several services share: the places of one server.
type Pool struct {
	Pos         Pos
	Name        string
	Concurrency Concurrency
	Between     Between
	Membership
}

// Membership says in which pool a service or a pool is.
type Membership struct {
	Pool  int // index into Policy.Pools + 1; 0: none
	Share int // 0: not given, which is 1
	pool  reference
	share Pos
}

// share is the share, also where it is not given.
func (m Membership) shareOrOne() int { return max(m.Share, 1) }

// PoolTable is a pool as the data path sees it.
type PoolTable struct {
	Name     string
	Limit    int // as of RoomTable
	Adaptive bool
	Shares   bool     // each member has its share; else they are one queue
	Pool     int      // index into Tables.Pools of the one that it is in, + 1; 0: none
	Share    int      // of that
	Members  []Member // services and pools
	// Steered is what steers the limit goes by: the services of the pool as one.
	Steered ServiceTable
}

// PoolMeaning is what a pool means.
type PoolMeaning struct {
	Name        string   `json:"name"`
	Line        int      `json:"line"`
	Concurrency string   `json:"concurrency"`
	Between     Between  `json:"between"`
	Pool        string   `json:"pool,omitempty"`
	Share       int      `json:"share,omitempty"` // of that pool
	Members     []string `json:"members"`         // services, then pools
}

// poolMeanings says what the pools mean.
func (p *Policy) poolMeanings() (list []PoolMeaning) {
	for i := range p.Pools {
		q := &p.Pools[i]
		m := PoolMeaning{Name: q.Name, Line: q.Pos.Line, Concurrency: q.Concurrency.String(), Between: q.Between, Members: []string{}}
		m.Pool, m.Share = q.Membership.meaning(p)
		for _, of := range p.Members(i) {
			if of.Pool {
				m.Members = append(m.Members, p.Pools[of.Index].Name)
			} else {
				m.Members = append(m.Members, p.Services[of.Index].Name)
			}
		}
		list = append(list, m)
	}
	return list
}

// meaning names the pool, and says which share it is.
func (m Membership) meaning(p *Policy) (pool string, share int) {
	if m.Pool == 0 {
		return "", 0
	}
	if q := &p.Pools[m.Pool-1]; q.Between == BetweenShares {
		return q.Name, m.shareOrOne()
	}
	return p.Pools[m.Pool-1].Name, 0
}

// Member is a service or a pool in a pool, by its index.
type Member struct {
	Pool  bool
	Index int
}

var poolForm = form{
	what: "a pool",
	doc:  "What several services share: the places of one server, or those of several tenants.",
	keys: []key{
		{name: "name", required: true, value: nameValue(), doc: "A name of your choice, by which services name the pool. No service has the same."},
		{
			name: "concurrency", value: anyOf(oneOf([]string{"auto", "unlimited"}), whole(1, maxConcurrency), object(&concurrencyForm)),
			defText: "auto; unlimited in a pool", examples: []any{"auto", 64}, doc: "How many requests of all members together may be in service at once, as of a service.",
		},
		{
			name: "between", value: oneOf(betweens), def: string(BetweenClasses),
			doc: "Who is next. classes: the members are one queue, in which the most important class goes first. shares: each member has its share of the places while it has requests waiting, and classes order inside each.",
		},
		{name: "pool", value: nameValue(), defText: "none", doc: "The pool that this one is in, one with between: shares that is in none."},
		shareKey,
	},
}

var shareKey = key{
	name: "share", value: whole(1, MaxShare), defText: "1",
	doc: "Its share of the places of the pool that it is in, beside those of the others. With between: shares only.",
}

func (d *decoder) pool(n *yaml.Node) Pool {
	p := Pool{Pos: position(n), Between: BetweenClasses}
	seen := d.mapping(n, &poolForm, func(key string, n *yaml.Node) {
		switch key {
		case "name":
			scalar(d, n, key, &p.Name, parsePoolName)
		case "concurrency":
			d.concurrency(n, &p.Concurrency)
		case "between":
			scalar(d, n, key, &p.Between, parseBetween)
		default:
			d.membership(key, n, &p.Membership)
		}
	})
	if seen != nil {
		d.required(n, "a pool", seen, "name", "a word of your choice")
		d.poolFits(&p.Concurrency, p.pool, "pool", seen)
	}
	return p
}

func parsePoolName(s string) (string, error) {
	if len(s) > maxPoolBytes {
		return "", fmt.Errorf("%s is too long; a pool's name has at most %d bytes", quote(s), maxPoolBytes)
	}
	return parseName(s)
}

// membership decodes the keys pool and share.
func (d *decoder) membership(key string, n *yaml.Node, m *Membership) {
	switch key {
	case "pool":
		scalar(d, n, key, &m.pool, ref(n))
	case "share":
		scalar(d, n, key, &m.Share, parseInt(1, MaxShare))
		m.share = position(n)
	}
}

// poolFits sets the limit that a service or pool in a pool has of its own. Where the pool's sets itself, there
// is one who decides.
func (d *decoder) poolFits(c *Concurrency, in reference, what string, seen map[string]*yaml.Node) {
	n := seen["concurrency"]
	switch {
	case in.name == "":
	case n == nil:
		*c = Concurrency{Mode: ConcurrencyUnlimited}
	case c.Mode == ConcurrencyAuto:
		d.errorAt(n, "concurrency: %v", fmt.Errorf("the limit of a %s in a pool %w", what, errNotAuto))
	}
}

// errNotAuto says what the limit of who is in a pool cannot be.
var errNotAuto = errors.New("does not set itself, the outermost pool's does; give a number, or unlimited")

// resolvePools finds the pools that services and pools are in, and checks what is in them.
func (d *decoder) resolvePools(p *Policy, r *raw, services map[string]int) {
	p.Pools = r.pools
	pools := unique(d, "pool", p.Pools, func(q *Pool) (string, Pos) { return q.Name, q.Pos })
	for i := range p.Pools {
		q := &p.Pools[i]
		if s, taken := services[q.Name]; taken {
			d.errorf(q.Pos, "pool %q has the name of the service at line %d; give it another", q.Name, p.Services[s].Pos.Line)
		}
		d.join(p, &q.Membership, pools, "pool "+quote(q.Name), q.Pos)
	}
	for i := range p.Services {
		s := &p.Services[i]
		d.join(p, &s.Membership, pools, "service "+quote(s.Name), s.Pos)
	}
	for i := range p.Pools {
		d.checkPool(p, i)
	}
}

// join finds the pool of a member.
func (d *decoder) join(p *Policy, m *Membership, pools map[string]int, who string, at Pos) {
	if m.pool.name != "" {
		m.Pool = d.lookup(m.pool, "pool", "pool", pools) + 1
	}
	if m.Share == 0 || (m.Pool == 0 && m.pool.name != "") {
		return
	}
	if m.Pool == 0 || p.Pools[m.Pool-1].Between != BetweenShares {
		d.errorf(m.share, "share: %s is in no pool with \"between: shares\"; remove the share, or give its pool that", who)
	}
}

// checkPool checks what a pool is in, and what is in it.
func (d *decoder) checkPool(p *Policy, i int) {
	q := &p.Pools[i]
	if q.Pool > 0 {
		outer := &p.Pools[q.Pool-1]
		switch {
		case q.Pool-1 == i:
			d.errorf(q.pool.pos, "pool: %s is in itself; name another, or none", quote(q.Name))
		case outer.Pool > 0 || outer.pool.name != "":
			d.errorf(q.pool.pos, "pool: %s is in a pool itself; pools are at most two levels deep", quote(outer.Name))
		case outer.Between != BetweenShares:
			d.errorf(q.pool.pos, "pool: %s orders its members by classes, and can have services alone; give it \"between: shares\"", quote(outer.Name))
		}
	}
	switch n := len(p.Members(i)); {
	case n == 0:
		d.warnf(q.Pos, "nothing is in pool %q: services name it by \"pool: %s\"", q.Name, q.Name)
	case n > MaxMembers:
		d.errorf(q.Pos, "%d services and pools are in pool %q; there can be at most %d: make pools of some, and put those into it", n, q.Name, MaxMembers)
	}
}

// Members lists what is in a pool: its services, then its pools.
func (p *Policy) Members(pool int) (all []Member) {
	for i := range p.Services {
		if p.Services[i].Pool == pool+1 {
			all = append(all, Member{Index: i})
		}
	}
	for i := range p.Pools {
		if p.Pools[i].Pool == pool+1 {
			all = append(all, Member{Pool: true, Index: i})
		}
	}
	return all
}

// ServicesOf lists the services of a pool, and of the pools in it.
func (t *Tables) ServicesOf(pool int) (all []int) {
	for _, m := range t.Pools[pool].Members {
		if m.Pool {
			all = append(all, t.ServicesOf(m.Index)...)
		} else {
			all = append(all, m.Index)
		}
	}
	slices.Sort(all)
	return all
}

// SteeredBy returns the index of the pool whose limit sets itself and that a service is in, or -1.
func (t *Tables) SteeredBy(service int) int {
	for at := t.Services[service].Room.Pool; at > 0; at = t.Pools[at-1].Pool {
		if t.Pools[at-1].Adaptive {
			return at - 1
		}
	}
	return -1
}

// addPools adds the pools, and has services go by their limits, too: nobody is let in beyond that of a pool,
// so that what a service may have at once is the least of all.
func (t *Tables) addPools(p *Policy) {
	for i := range p.Pools {
		q := &p.Pools[i]
		t.Pools = append(t.Pools, PoolTable{
			Name: q.Name, Limit: q.Concurrency.Limit, Adaptive: q.Concurrency.Mode == ConcurrencyAuto,
			Shares: q.Between == BetweenShares, Pool: q.Pool, Share: q.shareOrOne(), Members: p.Members(i),
		})
	}
	for i := range p.Services {
		room := &t.Services[i].Room
		if room.Pool = p.Services[i].Pool; room.Pool > 0 {
			room.Share = p.Services[i].shareOrOne()
		}
		for at := room.Pool; at > 0; at = t.Pools[at-1].Pool {
			q := &t.Pools[at-1]
			if q.Limit > 0 && (room.Limit == 0 || q.Limit < room.Limit) {
				room.Limit = q.Limit
			}
			room.Adaptive = room.Adaptive || q.Adaptive
		}
		room.Adaptive = room.Adaptive && room.Limit == 0
	}
}

// steerPools says what steers the limits of pools that set themselves.
func (t *Tables) steerPools(p *Policy) {
	for i := range t.Pools {
		members := t.ServicesOf(i)
		if !t.Pools[i].Adaptive || len(members) == 0 {
			continue
		}
		s := t.Services[members[0]]
		s.Name, s.Listen = t.Pools[i].Name, nil
		c, size := p.Pools[i].Concurrency, 0
		for _, m := range members {
			s.Listen = append(s.Listen, t.Services[m].Listen...)
			s.Shadow = s.Shadow && t.Services[m].Shadow
			size += t.Services[m].Room.Queue.Size
		}
		s.Auto = nil
		for _, m := range members {
			for _, r := range t.Services[m].Auto {
				if !slices.ContainsFunc(s.Auto, func(o AutoRule) bool { return o.AutoRuleName == r.AutoRuleName }) {
					s.Auto = append(s.Auto, r)
				}
			}
		}
		s.Room.Limit, s.Room.Adaptive = 0, true
		s.Room.Floor, s.Room.Ceiling, s.Room.Target, s.Room.Queue.Size = c.floor(), c.ceiling(), c.target(), size
		t.Pools[i].Steered = s
	}
}

// describePools writes what pools there are.
func describePools(b io.Writer, p *Policy) {
	if len(p.Pools) == 0 {
		return
	}
	fmt.Fprint(b, "\npools\n")
	for i := range p.Pools {
		q := &p.Pools[i]
		fmt.Fprintf(b, "  %s: %s for %s", q.Name, q.placesInWords(), inWords(p.membersInWords(i), "and"))
		if q.Pool > 0 {
			fmt.Fprintf(b, ", in pool %s", q.Membership.inWords(p))
		}
		fmt.Fprintf(b, "; %s\n", map[Between]string{
			BetweenClasses: "one queue, in which classes go first by their priority whatever the service",
			BetweenShares:  "each has its share while it has requests waiting, and classes order inside each",
		}[q.Between])
	}
}

func (q *Pool) placesInWords() string {
	switch q.Concurrency.Mode {
	case ConcurrencyFixed:
		return "at most " + count(q.Concurrency.Limit, "request") + " in service"
	case ConcurrencyUnlimited:
		return "any number of requests in service"
	}
	return "auto, " + q.Concurrency.boundsInWords() + q.Concurrency.targetInWords() + ","
}

// membersInWords names the members, with their shares where these count.
func (p *Policy) membersInWords(pool int) (list []string) {
	for _, m := range p.Members(pool) {
		name, of := "", Membership{}
		if m.Pool {
			name, of = "pool "+p.Pools[m.Index].Name, p.Pools[m.Index].Membership
		} else {
			name, of = p.Services[m.Index].Name, p.Services[m.Index].Membership
		}
		if p.Pools[pool].Between == BetweenShares {
			name += fmt.Sprintf(" (share %d)", of.shareOrOne())
		}
		list = append(list, name)
	}
	if len(list) == 0 {
		return []string{"nothing"}
	}
	return list
}

// inWords names the pool, with the share of it where that counts; empty for none.
func (m Membership) inWords(p *Policy) string {
	if m.Pool == 0 {
		return ""
	}
	q := &p.Pools[m.Pool-1]
	if q.Between != BetweenShares {
		return q.Name
	}
	return fmt.Sprintf("%s (share %d)", q.Name, m.shareOrOne())
}

// poolInWords says which pool bounds what a service has in service.
func (t *Tables) poolInWords(service int) string {
	if pool := t.Services[service].Room.Pool; pool > 0 {
		return ", within those of pool " + t.Pools[pool-1].Name
	}
	return ""
}

func poolItems(p *Policy) []item {
	items := make([]item, len(p.Pools))
	for i := range p.Pools {
		q := &p.Pools[i]
		items[i] = item{q.Name, []attribute{
			{"concurrency", q.Concurrency.String()}, {"between", string(q.Between)}, {"pool", q.Membership.inWords(p)},
		}, fmt.Sprintf("concurrency %s, between %s, for %s", q.Concurrency, q.Between, strings.Join(p.membersInWords(i), ", "))}
	}
	return items
}

func (d *differ) pools() {
	d.named(inPools, poolItems(d.from), poolItems(d.to), &meanings{
		renamed: func(string, string) string { return "" },
		removed: "its services have places of their own again",
		changed: func(was []int, i int, key string) string {
			if key == "concurrency" {
				return limitEffect(d.from.Pools[was[i]].Concurrency, d.to.Pools[i].Concurrency)
			}
			return ""
		},
	})
}

func (l *settingList) addPool(q *Pool) {
	if q.Pool > 0 {
		l.add(q.Concurrency.word(), setPooled(&q.Concurrency), "pools", q.Name, "concurrency")
		return
	}
	l.addConcurrency(&q.Concurrency, "pools", q.Name)
}
