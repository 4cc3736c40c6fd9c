// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/policy"
)

// longestMemory is for how long clients can be remembered by hand: as long as rules can learn them.
const longestMemory = 30 * 24 * time.Hour

// everyone are all addresses.
var everyone = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}

// table reads what is remembered.
func (e *engine) table(kind, from string) (t api.Table, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	within := everyone
	if from != "" {
		p, err := parseClients(from)
		if err != nil {
			return t, err
		}
		within = []netip.Prefix{p}
	}
	if kind != "" && !slices.Contains(api.TableKinds, kind) {
		return t, noKind(kind, api.TableKinds)
	}
	is := func(k string) bool { return kind == "" || kind == k }
	t = api.Table{Blocked: []api.TableClient{}, Learned: []api.TableClient{}, Buckets: []api.TableBucket{}, AtOnce: []api.TablePlaces{}}
	if is(api.TableBlocked) {
		if t.Blocked, err = e.clients(e.dp.Blocked, within); err != nil {
			return t, err
		}
	}
	if is(api.TableLearned) {
		if t.Learned, err = e.clients(e.dp.Learned, within); err != nil {
			return t, err
		}
	}
	if is(api.TableBuckets) {
		if t.Buckets, err = e.buckets(from, within[0]); err != nil {
			return t, err
		}
	}
	if is(api.TableAtOnce) {
		t.AtOnce, err = e.places(within)
	}
	return t, err
}

func noKind(kind string, kinds []string) error {
	return usagef("%q is nothing that is remembered: name %s", kind, strings.Join(kinds, ", "))
}

// parseClients reads an address or a prefix.
func parseClients(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err == nil {
		return p.Masked(), nil
	}
	a, err := parseClient(s)
	if err != nil {
		return p, usagef("%q is no address and no prefix: write it like 192.0.2.1, 192.0.2.0/24 or 2001:db8::/32", s)
	}
	return netip.PrefixFrom(a, a.BitLen()), nil
}

// parseClient reads the address of a client.
func parseClient(s string) (netip.Addr, error) {
	a, port, err := parseFrom(s)
	if err == nil && port != 0 {
		err = usagef("%q has a port: a client is an address", s)
	}
	return a, err
}

// clients lists those that the data path remembers within some addresses.
func (e *engine) clients(read func() ([]datapath.Remembered, error), within []netip.Prefix) ([]api.TableClient, error) {
	list := []api.TableClient{}
	all, err := read()
	if err != nil {
		return list, err
	}
	for _, r := range all {
		if !slices.ContainsFunc(within, r.Client.Overlaps) {
			continue
		}
		c := api.TableClient{Client: clientText(r.Client), Left: r.Left.Seconds()}
		if r.Class >= 0 {
			c.Class = e.current.tables.Classes[r.Class].Name
		}
		list = append(list, c)
	}
	return list, nil
}

// clientText is a client as people write it.
func clientText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// tokenRule is a rule that has a bucket, or one for each source.
type tokenRule struct {
	of, name string
	per      policy.Per
	burst    uint32
	atOnce   uint32 // places, in place of a bucket
	read     func(netip.Addr) (datapath.Bucket, error)
	fill     func(netip.Addr) (bool, error)
}

// tokenRules lists what has buckets: rates of rules and, each by itself, their limits.
func (e *engine) tokenRules() (all []tokenRule) {
	for i := range e.current.tables.Rules {
		r := &e.current.tables.Rules[i]
		all = append(all, tokensOf(tokenRule{of: connectionTable, name: r.Name, per: r.Per, burst: r.Burst}, r.Action, r.Interval, r.Auto, r.Limits,
			func(limit int, a netip.Addr) (datapath.Bucket, error) { return e.dp.Bucket(i, limit, a) },
			func(limit int, a netip.Addr) (bool, error) { return e.dp.FillBucket(i, limit, a) })...)
	}
	requests := e.current.tables.RequestRules()
	for i := range requests {
		r := &requests[i]
		all = append(all, tokensOf(tokenRule{of: requestTable, name: r.Name, per: r.Per, burst: r.Burst}, r.Action, r.Interval, r.Auto, r.Limits,
			func(limit int, a netip.Addr) (datapath.Bucket, error) { return e.dp.RequestBucket(i, limit, a, "") },
			func(limit int, a netip.Addr) (bool, error) { return e.dp.FillRequestBucket(i, limit, a) })...)
	}
	return all
}

// tokensOf lists what of a rule has buckets.
func tokensOf(rate tokenRule, action policy.Action, interval time.Duration, auto policy.AutoRate, limits []policy.LimitTable,
	read func(int, netip.Addr) (datapath.Bucket, error), fill func(int, netip.Addr) (bool, error),
) (all []tokenRule) {
	add := func(r tokenRule, limit int) {
		r.read = func(a netip.Addr) (datapath.Bucket, error) { return read(limit, a) }
		r.fill = func(a netip.Addr) (bool, error) { return fill(limit, a) }
		all = append(all, r)
	}
	if action == policy.ActionPolice && (interval > 0 || auto.On) {
		add(rate, datapath.RateOf)
	}
	for i, l := range limits {
		add(tokenRule{of: rate.of, name: limitName(rate.name, i), per: l.Per, burst: l.Burst, atOnce: l.AtOnce}, i)
	}
	return all
}

// limitName names a limit of a rule, by its index.
func limitName(rule string, limit int) string { return fmt.Sprintf("%s.limits.%d", rule, limit+1) }

// hasOneFor says whether a rule has a bucket for a source, or, where none is named, one for all.
func (r *tokenRule) hasOneFor(source bool) bool {
	return r.per.Key.Kind == "" && (r.per != policy.PerRule) == source
}

// buckets lists those of rules, or where one address is asked for those of that source.
func (e *engine) buckets(from string, source netip.Prefix) ([]api.TableBucket, error) {
	list := []api.TableBucket{}
	if from != "" && !source.IsSingleIP() {
		return list, nil // buckets of sources are found by an address, and not listed
	}
	for _, r := range e.tokenRules() {
		if !r.hasOneFor(from != "") {
			continue
		}
		b, err := r.read(source.Addr())
		if err != nil {
			return list, err
		}
		if from != "" && !b.Known {
			continue
		}
		t := api.TableBucket{Rule: r.name, Of: r.of, Burst: r.burst, AtOnce: r.atOnce, Tokens: b.Tokens, FullIn: b.Full.Seconds()}
		if from != "" {
			t.Per = r.per.String()
		}
		list = append(list, t)
	}
	return list, nil
}

// places lists who within some addresses has places of limits of what there is at once, the most first.
func (e *engine) places(within []netip.Prefix) ([]api.TablePlaces, error) {
	list := []api.TablePlaces{}
	clients, err := e.connected()
	if err != nil {
		return list, err
	}
	all, err := e.dp.Places(clients)
	if err != nil {
		return list, err
	}
	for _, p := range all {
		of, name, limits := connectionTable, "", []policy.LimitTable(nil)
		if p.Request {
			r := &e.current.tables.RequestRules()[p.Rule]
			of, name, limits = requestTable, r.Name, r.Limits
		} else {
			r := &e.current.tables.Rules[p.Rule]
			name, limits = r.Name, r.Limits
		}
		t := api.TablePlaces{Rule: limitName(name, p.Limit), Of: of, Taken: p.Places, AtOnce: limits[p.Limit].AtOnce}
		if p.Client.IsValid() {
			if !slices.ContainsFunc(within, p.Client.Overlaps) {
				continue
			}
			t.Client = clientText(p.Client)
		}
		list = append(list, t)
	}
	slices.SortStableFunc(list, func(a, b api.TablePlaces) int { return cmp.Compare(b.Taken, a.Taken) })
	return list, nil
}

// connected lists the clients of the services' connections, where a rule bounds how many of these there are.
func (e *engine) connected() (clients []netip.Addr, err error) {
	ports := map[uint16]bool{}
	for i := range e.current.tables.Services {
		s := &e.current.tables.Services[i]
		for _, l := range s.Listen {
			if s.Bounded {
				ports[l.Port] = true
			}
		}
	}
	if len(ports) == 0 {
		return nil, nil
	}
	sockets, err := e.net.Diag()
	if err != nil {
		return nil, err
	}
	defer sockets.Close()
	for port := range ports {
		for _, v6 := range []bool{false, true} {
			if err := sockets.Peers(port, v6, func(a netip.Addr) { clients = append(clients, a) }); err != nil {
				return nil, err
			}
		}
	}
	return clients, nil
}

// clearTable forgets what is remembered. Who asks for it is for the log.
func (e *engine) clearTable(req api.TableClearRequest, by string) (api.TableClearResult, error) {
	result := api.TableClearResult{Cleared: []string{}}
	if !slices.Contains(api.TableKinds, req.Kind) {
		return result, noKind(req.Kind, api.TableKinds)
	}
	if req.Kind == api.TableAtOnce {
		return result, usagef("places come back with the end of what has them; another at_once is for the policy, and `narthex reload`")
	}
	if req.Kind != api.TableBuckets && req.Rule != "" {
		return result, usagef("a rule has buckets alone: name addresses of who is %s", req.Kind)
	}
	if req.All == (len(req.From) > 0) && req.Rule == "" || req.All && req.Rule != "" {
		return result, usagef("name what is to be cleared: addresses, or all")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	within := everyone
	if !req.All {
		within = nil
	}
	for _, s := range req.From {
		p, err := parseClients(s)
		if err != nil {
			return result, err
		}
		within = append(within, p)
	}
	var err error
	switch req.Kind {
	case api.TableBlocked:
		result.Cleared, err = forgotten(e.dp.Unblock(within))
	case api.TableLearned:
		result.Cleared, err = forgotten(e.dp.Unlearn(within))
	default:
		result.Cleared, err = e.fillBuckets(req, within)
	}
	if len(result.Cleared) > 0 {
		e.log.Info("cleared", "what", req.Kind, "entries", len(result.Cleared), "by", by)
	}
	return result, err
}

func forgotten(gone []netip.Prefix, err error) ([]string, error) {
	list := []string{}
	for _, p := range gone {
		list = append(list, clientText(p))
	}
	return list, err
}

// fillBuckets fills the buckets of rules, or those that sources have under them.
func (e *engine) fillBuckets(req api.TableClearRequest, sources []netip.Prefix) ([]string, error) {
	list, found := []string{}, false
	addresses := []netip.Addr{{}}
	if len(req.From) > 0 {
		addresses = nil
		for _, p := range sources {
			if !p.IsSingleIP() {
				return list, usagef("%s: buckets of sources are found by an address, not by a prefix", p)
			}
			addresses = append(addresses, p.Addr())
		}
	}
	for _, r := range e.tokenRules() {
		if req.Rule != "" && r.name != req.Rule && !strings.HasPrefix(r.name, req.Rule+".limits.") {
			continue
		}
		found = true
		if !r.hasOneFor(len(req.From) > 0) {
			continue
		}
		for _, a := range addresses {
			filled, err := r.fill(a)
			if err != nil {
				return list, err
			}
			if filled {
				list = append(list, r.name)
			}
		}
	}
	if req.Rule != "" && !found {
		return list, usagef("no rule with a rate is named %q", req.Rule)
	}
	return list, nil
}

// addTable remembers clients.
func (e *engine) addTable(req api.TableAddRequest, by string) (api.TableAddResult, error) {
	result := api.TableAddResult{Added: []string{}}
	kinds := []string{api.TableBlocked, api.TableLearned}
	long := time.Duration(req.For * float64(time.Second))
	switch {
	case !slices.Contains(kinds, req.Kind):
		return result, noKind(req.Kind, kinds)
	case len(req.From) == 0:
		return result, usagef("name addresses")
	case long < time.Second || long > longestMemory:
		return result, usagef("%s: say for how long, from 1s to %d days", long, longestMemory/(24*time.Hour))
	case (req.Class != "") != (req.Kind == api.TableLearned):
		return result, usagef("who is learned is learned in a class, and who is blocked has none")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	class := slices.IndexFunc(e.current.tables.Classes, func(c policy.ClassTable) bool { return c.Name == req.Class })
	if req.Class != "" && class < 0 {
		return result, usagef("no class is named %q", req.Class)
	}
	var clients []netip.Addr
	for _, s := range req.From {
		a, err := parseClient(s)
		if err != nil {
			return result, err
		}
		if by := e.trusting(a); by != "" && req.Kind == api.TableBlocked {
			return result, usagef("%s is a trusted proxy of service %s, which is never blocked: its clients are", a, by)
		}
		clients = append(clients, a)
	}
	for _, a := range clients {
		var failed error
		if req.Kind == api.TableBlocked {
			failed = e.dp.Block(a, long)
		} else {
			failed = e.dp.Learn(a, class, long)
		}
		if failed != nil {
			return result, fmt.Errorf("add %s: %w", a, failed)
		}
		result.Added = append(result.Added, clientText(datapath.ClientPrefix(a)))
	}
	e.log.Info("added", "what", req.Kind, "clients", result.Added, "for", long, "by", by)
	return result, nil
}

// overlap says whether a range has addresses of a client.
func overlap(r policy.Range, client netip.Prefix) bool {
	first := client.Addr()
	return client.Contains(r.First) || r.First.Compare(first) <= 0 && first.Compare(r.Last) <= 0
}

// trusting is a service that has a trusted proxy among the addresses of a client; empty: none.
func (e *engine) trusting(a netip.Addr) string {
	client := datapath.ClientPrefix(a)
	for i := range e.current.policy.Services {
		s := &e.current.policy.Services[i]
		if slices.ContainsFunc(s.TrustedProxies, func(r policy.Range) bool { return overlap(r, client) }) {
			return s.Name
		}
	}
	return ""
}
