// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"strconv"

	"narthex/internal/api"
	"narthex/internal/figures"
	"narthex/internal/policy"
)

// poolBlock has the pools and their members: who wants how many places, how many are due to it, and how many it got.
func (m *Model) poolBlock(width int) block {
	t := newTable(width, []column{
		{head: "POOL/MEMBER"}, {"SHARE", 5, true}, {"WANTS", 6, true}, {"DUE", 6, true}, {"GOT", 6, true},
		{"IN SERV", 7, true}, {"WAITING", 7, true}, {"SERVE/s", 7, true},
	})
	v := m.shown.view
	for i, p := range v.Status.Pools {
		t.add(cell{p.Name, bold}, cell{}, cell{}, cell{}, cell{}, as(good, of(p.InService, limitOf(p))), as(waits, strconv.Itoa(p.Waiting)), cell{})
		for j, member := range p.Members {
			share, due := "-", "-"
			if p.Between == string(policy.BetweenShares) {
				share = strconv.Itoa(member.Share)
			}
			if member.Due != nil {
				due = figures.Rate(*member.Due)
			}
			live := v.Pools[i].Members[j]
			t.add(cell{"  " + member.Name, plain}, as(faint, share), as(plain, strconv.Itoa(member.Wanted)), as(plain, due), as(good, figures.Rate(live.Got)),
				as(good, strconv.Itoa(member.InService)), as(waits, strconv.Itoa(member.Waiting)), as(good, figures.Rate(live.Served)))
		}
	}
	return block{head: t.head(), rows: t.lines()}
}

// limitOf is how many of a pool may be in service; 0: any number.
func limitOf(p api.ServicePool) int {
	if p.Adaptation != nil {
		return p.Adaptation.Limit
	}
	n, err := strconv.Atoi(p.Limit)
	if err != nil {
		return 0
	}
	return n
}
