// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/live"
	"narthex/internal/policy"
)

// eventFilter says which events a client is told of. What is empty lets all through.
type eventFilter struct {
	from    netip.Prefix
	rule    string
	class   string
	service string
	reason  string
	kind    datapath.EventKind
	sample  int // one in so many; 0 and 1: all
}

func (f *eventFilter) admits(e datapath.Event) bool {
	is := func(wanted, what string) bool { return wanted == "" || wanted == what }
	return (!f.from.IsValid() || f.from.Contains(e.Client.Addr())) && is(f.rule, e.Rule) && is(f.class, e.Class) &&
		is(f.service, e.Service) && is(f.reason, e.Reason) && is(string(f.kind), string(e.Kind))
}

// eventFilter reads a filter from the query of a URL. A name that the policy in force does not
// have is an error: one would wait in vain.
func (e *engine) eventFilter(query url.Values) (f eventFilter, err error) {
	e.mu.Lock()
	p := e.current.policy
	e.mu.Unlock()
	return eventFilterOf(query, p)
}

// eventFilterOf is eventFilter for a policy, or for events that are of any.
func eventFilterOf(query url.Values, p *policy.Policy) (f eventFilter, err error) {
	known := func(what, name string, names func(*policy.Policy) []string) error {
		if p == nil {
			return nil
		}
		return known(what+" in the policy in force", name, names(p))
	}
	for _, key := range slices.Sorted(maps.Keys(query)) {
		value := query.Get(key)
		switch key {
		case "from":
			f.from, err = eventSource(value)
		case "rule":
			f.rule, err = value, known("rule", value, ruleNames)
		case "class":
			f.class, err = value, known("class", value, classNames)
		case "service":
			f.service, err = value, known("service", value, serviceNames)
		case "reason":
			f.reason, err = value, offered("reason", value, EventReasons())
		case "kind":
			f.kind, err = datapath.EventKind(value), offered("kind of events", value, EventKinds())
		case "sample":
			f.sample, err = eventSample(value)
		default:
			err = usagef("there is no filter %q: use from, rule, class, service, reason, kind or sample", key)
		}
		if err != nil {
			return eventFilter{}, err
		}
	}
	return f, nil
}

// CheckEventFilter finds what is wrong with a filter whatever the policy.
func CheckEventFilter(f api.EventFilter) (err error) {
	if f.From != "" {
		_, err = eventSource(f.From)
	}
	if err == nil && f.Reason != "" {
		err = offered("reason", f.Reason, EventReasons())
	}
	if err == nil && f.Kind != "" {
		err = offered("kind of events", f.Kind, EventKinds())
	}
	if err == nil && f.Sample < 0 {
		_, err = eventSample(strconv.Itoa(f.Sample))
	}
	return err
}

// eventSample reads of how many events one is told.
func eventSample(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, usagef("%q is no sample: use a number from 1, 10 for one event in ten", text)
	}
	return n, nil
}

// eventSource reads an address or a prefix.
func eventSource(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, usagef("%q is neither an address nor a prefix: write it like 192.0.2.1, 192.0.2.0/24 or 2001:db8::/32", text)
	}
	return prefix.Masked(), nil
}

func known(what, name string, names []string) error {
	if slices.Contains(names, name) {
		return nil
	}
	return usagef("there is no %s called %q", what, name)
}

func offered(what, name string, names []string) error {
	if slices.Contains(names, name) {
		return nil
	}
	return usagef("there is no %s %q: use one of %s", what, name, strings.Join(names, ", "))
}

func ruleNames(p *policy.Policy) (names []string) {
	for _, c := range p.Connections {
		names = append(names, c.Name)
	}
	for _, r := range p.Requests {
		names = append(names, r.Name)
	}
	return names
}

func classNames(p *policy.Policy) (names []string) {
	for _, c := range p.Classes {
		names = append(names, c.Name)
	}
	return names
}

func serviceNames(p *policy.Policy) (names []string) {
	for _, s := range p.Services {
		names = append(names, s.Name)
	}
	return names
}

// EventKinds lists the kinds of events that can be asked for.
func EventKinds() (names []string) {
	for _, k := range datapath.EventKinds() {
		names = append(names, string(k))
	}
	return names
}

// EventReasons lists the reasons for which somebody may be turned away.
func EventReasons() []string {
	names := slices.Concat(datapath.RejectNames(), live.SYNReasons)
	slices.Sort(names)
	return slices.Compact(names)
}
