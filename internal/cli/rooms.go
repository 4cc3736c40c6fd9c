// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"narthex/internal/api"
	"narthex/internal/figures"
	"narthex/internal/policy"
)

// printRooms shows the waiting rooms: a line for each, and of the classes that have had
// requests how things are and what has happened. Two narrow tables fit a screen of 80
// columns where a wide one would not.
func printRooms(b *strings.Builder, s api.Status) {
	rooms := slices.DeleteFunc(slices.Clone(s.Services), func(s api.ServiceStatus) bool { return s.RoomStatus == nil })
	if len(rooms) == 0 {
		return
	}
	w := s.WaitingRoom
	fmt.Fprintf(b, "\nslots in use: %d of %d (%d bytes each); flows: %d of %d\n", w.Slots-w.FreeSlots, w.Slots, w.SlotSize, w.UsedFlows, w.Flows)
	for _, s := range rooms {
		fmt.Fprintf(b, "%s  %s  limit %s  in service %d  waiting %d of %d\n", s.Name, s.Mode, s.Limit, s.InService, s.Waiting, s.QueueSize)
		printAdaptation(b, s)
		if s.CPU != nil {
			fmt.Fprintf(b, "  processor time: %s s in cgroup %s\n", strconv.FormatFloat(s.CPU.Seconds, 'f', 1, 64), s.CPU.Cgroup)
		}
		if s.Gathering > 0 {
			fmt.Fprintf(b, "  heads that are not complete: %d\n", s.Gathering)
		}
		printRoomClasses(b, unit(s.Protocol), slices.DeleteFunc(slices.Clone(s.Classes), unused))
	}
}

// printPools shows what services share the places of.
func printPools(b *strings.Builder, pools []api.ServicePool) {
	for _, p := range pools {
		in := ""
		if p.Pool != "" {
			in = fmt.Sprintf("  in pool %s (share %d)", p.Pool, p.Share)
		}
		fmt.Fprintf(b, "\npool %s%s  between %s  limit %s  in service %d  waiting %d\n", p.Name, in, p.Between, p.Limit, p.InService, p.Waiting)
		t := newTable("MEMBER", ">SHARE", ">WANTED", ">DUE", ">IN SERVICE", ">WAITING", ">SERVED", ">PLACE-SECONDS")
		for _, m := range p.Members {
			t.add(m.Name, shareText(p.Between, m), strconv.Itoa(m.Wanted), dueText(m.Due), strconv.Itoa(m.InService), strconv.Itoa(m.Waiting),
				amount(m.Served), strconv.FormatFloat(m.Used, 'f', 1, 64))
		}
		t.printIndented(b)
	}
}

func shareText(between string, m api.PoolMember) string {
	if between != string(policy.BetweenShares) {
		return "-"
	}
	return strconv.Itoa(m.Share)
}

// dueText says how many places are due, as far as that is known.
func dueText(due *float64) string {
	if due == nil {
		return "-"
	}
	return strconv.FormatFloat(*due, 'f', 1, 64)
}

// unit is what takes its turn at a service.
func unit(p policy.Protocol) string {
	if p == policy.HTTP {
		return "request"
	}
	return "connection"
}

// unused is of a class that has nothing to show. A head that cannot be read is rejected before it arrives.
func unused(c api.RoomClassStatus) bool {
	return c.Arrived == 0 && c.InService == 0 && c.Waiting == 0 && len(c.Rejected) == 0
}

func printRoomClasses(b *strings.Builder, unit string, classes []api.RoomClassStatus) {
	if len(classes) == 0 {
		return
	}
	now := newTable("CLASS", ">IN SERVICE", ">WAITING", ">WAIT p50/p99", ">SERVICE p50/p99")
	sofar := newTable("CLASS", ">ARRIVED", ">ADMITTED", ">HELD", ">RELEASED", ">REJECTED", ">GAVE UP")
	for _, c := range classes {
		now.add(c.Name, of(c.InService, c.Max), strconv.Itoa(c.Waiting), durationsText(c.Wait), durationsText(c.Service))
		sofar.add(c.Name, amount(c.Arrived), amount(c.Admitted), amount(c.Held), amount(c.Released), amount(rejected(c)), amount(c.GaveUp))
	}
	now.printIndented(b)
	sofar.printIndented(b)
	for _, c := range classes {
		printIncidents(b, unit, c)
	}
}

// printIncidents tells what a class has no column for, where there is anything to tell.
func printIncidents(b *strings.Builder, unit string, c api.RoomClassStatus) {
	if c.BytesIn > 0 || c.BytesOut > 0 {
		fmt.Fprintf(b, "  %s: %s bytes in, %s out\n", c.Name, amount(c.BytesIn), amount(c.BytesOut))
	}
	if len(c.Rejected) > 0 {
		fmt.Fprintf(b, "  %s rejected: %s\n", c.Name, reasonsText(c.Rejected))
	}
	if c.WouldHold > 0 {
		fmt.Fprintf(b, "  %s: %s of those admitted would have waited\n", c.Name, amount(c.WouldHold))
	}
	if c.Ahead > 0 {
		fmt.Fprintf(b, "  %s: %s of those released were known, and went ahead\n", c.Name, amount(c.Ahead))
	}
	if c.Lost > 0 {
		fmt.Fprintf(b, "  %s: the end of %s was not seen\n", c.Name, count(int(c.Lost), unit))
	}
	if c.Paused > 0 {
		fmt.Fprintf(b, "  %s: %s left service for want of the body\n", c.Name, count(int(c.Paused), unit))
	}
}

func rejected(c api.RoomClassStatus) (sum uint64) {
	for _, n := range c.Rejected {
		sum += n
	}
	return sum
}

// reasonsText lists the most frequent reason first.
func reasonsText(reasons map[string]uint64) string {
	names := slices.SortedFunc(maps.Keys(reasons), func(a, b string) int {
		return cmp.Or(cmp.Compare(reasons[b], reasons[a]), cmp.Compare(a, b))
	})
	var list []string
	for _, name := range names {
		list = append(list, amount(reasons[name])+" "+name)
	}
	return strings.Join(list, ", ")
}

func durationsText(d api.Durations) string {
	if d.Count == 0 {
		return "-"
	}
	return span(d.P50) + " / " + span(d.P99)
}

// span returns two digits or more of a time in seconds.
func span(seconds float64) string { return figures.Span(seconds) }

// amount returns a number in at most seven characters.
func amount(n uint64) string { return figures.Amount(n) }
