// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"
)

func (d *differ) services() {
	d.named(inServices, serviceItems(d.from), serviceItems(d.to), &meanings{
		renamed: func(from, to string) string {
			d.service[from] = to
			return "its counters and its waiting room begin anew; who waits is let in"
		},
		removed: "nothing of it is policed any more; who waits is let in",
		changed: func(was []int, i int, key string) string {
			return serviceEffect(key, &d.from.Services[was[i]], &d.to.Services[i])
		},
	})
}

func serviceItems(p *Policy) []item {
	items := make([]item, len(p.Services))
	for i := range p.Services {
		s := &p.Services[i]
		mode := "enforce"
		if s.Shadow {
			mode = "shadow"
		}
		mark, requests := "", ""
		if s.SocketMark != 0 {
			mark = fmt.Sprintf("%#x", s.SocketMark)
		}
		if s.Requests > 0 {
			requests = fmt.Sprint(s.Requests)
		}
		on := "those with an address"
		if len(s.Interfaces) > 0 {
			on = strings.Join(s.Interfaces, " ")
		}
		items[i] = item{s.Name, append([]attribute{
			{"listen", strings.Join(words(s.Listen), " ")}, {"interfaces", on}, {"xdp", string(s.XDP)}, {"protocol", string(s.Protocol)},
			{"concurrency", s.Concurrency.String()}, {"queue.size", fmt.Sprint(s.Queue.Size)}, {"queue.max_wait", span(s.Queue.MaxWait)},
			{"queue.max_service", span(s.Queue.MaxService)}, {"queue.target", orNever(s.Queue.Target)}, {"service_ends", string(s.ServiceEnds)}, {"reject", s.Reject.attribute()},
			{"trusted_proxies", strings.Join(words(s.TrustedProxies), " ")}, {"h2c", string(s.H2C)}, {"requests_per_connection", requests}, {"socket_mark", mark}, {"labels", strings.Join(s.Labels.words(), " ")}, {"mode", mode},
			{"pool", s.Membership.inWords(p)},
		}, s.Overload.attributes()...), fmt.Sprintf("%s on %s, concurrency %s, mode %s", s.Protocol, inWords(words(s.Listen), "and"), s.Concurrency, mode)}
	}
	return items
}

// serviceEffect says what another value means to those who are there already.
func serviceEffect(key string, from, to *Service) string {
	switch key {
	case "concurrency":
		return limitEffect(from.Concurrency, to.Concurrency)
	case "queue.size":
		if to.Queue.Size < from.Queue.Size {
			return "who waits beyond that stays; who comes then is rejected, or takes the place of a lower class"
		}
	case "queue.max_wait":
		if to.Queue.MaxWait < from.Queue.MaxWait {
			return "who has waited longer is rejected"
		}
	case "mode":
		if to.Shadow {
			return "drops, holds and rejects nobody any more; who waits is let in"
		}
		return "drops, holds and rejects from now on"
	}
	return ""
}

func limitEffect(from, to Concurrency) string {
	const raised = "who waits is let in as far as there is room"
	switch {
	case from.Mode == ConcurrencyFixed && to.Mode == ConcurrencyFixed && to.Limit < from.Limit:
		return "who is in service stays; it is reached when requests have ended"
	case from.Mode == ConcurrencyFixed && to.Mode == ConcurrencyFixed, to.Mode == ConcurrencyUnlimited:
		return raised
	case to.Mode == ConcurrencyAuto && from.Mode != ConcurrencyAuto:
		return "the limit sets itself"
	case from.Mode == ConcurrencyAuto && to.Mode == ConcurrencyFixed:
		return "the limit does not set itself any more"
	}
	return ""
}

func (d *differ) classes() {
	was := d.named(inClasses, classItems(d.from), classItems(d.to), &meanings{
		renamed: func(from, to string) string {
			d.class[from] = to
			return "who waits in the old one goes last, and clients that are learned in it are forgotten"
		},
		removed: "who waits in it goes last",
		changed: func(was []int, _ int, key string) string {
			if key == "priority" && !d.reordered(was) {
				return "the order stays the same, so this changes nothing"
			}
			return ""
		},
	})
	d.order(was)
	from, to := d.classNamed(d.from.Default), d.to.ClassName(-1)
	if from != to {
		d.add(Change{Table: inClasses, Kind: changed, Key: "default_class", From: from, To: to})
	}
}

func classItems(p *Policy) []item {
	items := make([]item, len(p.Classes))
	for i, c := range p.Classes {
		words := fmt.Sprintf("priority %d", c.Priority)
		if i > 0 {
			words += ", after " + p.Classes[i-1].Name
		}
		items[i] = item{c.Name, []attribute{
			{"priority", fmt.Sprint(c.Priority)}, {"reserve", orNone(c.Reserve, "%")}, {"max", orNone(c.Max, "")},
			{"stall", orNever(c.Stall)}, {"fair", c.Fair.String()}, {"known", orNever(c.Known)},
		}, words}
	}
	return items
}

// classNamed returns the name of an old class as it is called now.
func (d *differ) classNamed(class int) string {
	name := d.from.ClassName(class)
	if now, ok := d.class[name]; ok {
		return now
	}
	return name
}

// reordered reports whether classes that stay change their order.
func (d *differ) reordered(was []int) bool {
	stay := slices.DeleteFunc(slices.Clone(was), func(at int) bool { return at < 0 })
	return !slices.IsSorted(stay)
}

// order says which classes go before which others that they went after.
func (d *differ) order(was []int) {
	if !d.reordered(was) {
		return
	}
	var before []string
	for i := range was {
		var passed []string
		for j := i + 1; j < len(was); j++ {
			if was[i] >= 0 && was[j] >= 0 && was[j] < was[i] {
				passed = append(passed, d.to.Classes[j].Name)
			}
		}
		if len(passed) > 0 {
			before = append(before, fmt.Sprintf("%s goes before %s now", d.to.Classes[i].Name, inWords(passed, "and")))
		}
	}
	d.add(Change{
		Table: inClasses, Kind: changed, Key: "order", From: classOrder(d.from), To: classOrder(d.to), Effect: strings.Join(before, ", "),
	})
}

func classOrder(p *Policy) string {
	var names []string
	for _, c := range p.Classes {
		names = append(names, c.Name)
	}
	return strings.Join(names, ", ")
}
