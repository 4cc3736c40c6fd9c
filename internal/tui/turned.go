// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"narthex/internal/api"
	"narthex/internal/figures"
)

// leastRate is what is lost in rounding.
const leastRate = 0.05

// turnedLines say how many are turned away, and for what reasons.
func (m *Model) turnedLines(width int) []string {
	requests, reasons := 0.0, map[string]float64{}
	syns, would := 0.0, 0.0
	for _, s := range m.services() {
		requests += s.live.Rejected
		syns += s.live.SYNsDropped
		would += s.live.SYNsWouldDrop
		for reason, rate := range s.live.RejectedBy {
			reasons[reason] += rate
		}
	}
	unruled := maps.Clone(m.shown.view.DroppedBy)
	byRules := syns
	for _, rate := range unruled {
		byRules -= rate
	}
	if byRules > leastRate && len(m.shown.view.Services) > 0 {
		unruled["by rules"] = byRules
	}
	style := func(rate float64) lipgloss.Style {
		if rate == 0 {
			return faint
		}
		return bad
	}
	head := title.Render("TURNED AWAY ")
	if m.shown.view.Interval == 0 {
		return []string{head + faint.Render("rates come with the next view")}
	}
	first := style(requests).Render(fmt.Sprintf("requests %s/s%s", figures.Rate(requests), listed(reasons)))
	second := style(syns).Render(fmt.Sprintf("SYNs %s/s%s", figures.Rate(syns), listed(unruled)))
	if would > 0 {
		second += fmt.Sprintf(", and %s/s but for shadow mode", figures.Rate(would))
	}
	if one := head + first + " · " + second; ansi.StringWidth(one) <= width {
		return []string{one}
	}
	return []string{fitted(head+first, width), fitted(strings.Repeat(" ", ansi.StringWidth(head))+second, width)}
}

// listed are rates by reason, the highest first.
func listed(by map[string]float64) string {
	if len(by) == 0 {
		return ""
	}
	names := slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		return cmp.Or(cmp.Compare(by[b], by[a]), cmp.Compare(a, b))
	})
	var list []string
	for _, name := range names {
		list = append(list, figures.Rate(by[name])+" "+name)
	}
	return " (" + strings.Join(list, ", ") + ")"
}

// block is a part of the screen: a head and rows, of which as many are shown as fit.
type block struct {
	head string
	rows []string
	none string // said if there are no rows
}

func (m *Model) ruleBlock(width int) block {
	t := newTable(width, []column{
		{head: "RULE"}, {"KIND", 10, false}, {"DOES", 16, false}, {"MATCH/s", 8, true}, {"DROP/s", 8, true},
	})
	for _, r := range m.rules() {
		t.add(cell{r.Name, plain}, cell{r.Kind, faint}, cell{doesText(m.status(r)), faint}, as(plain, figures.Rate(r.Matched)), as(bad, figures.Rate(r.Dropped)))
	}
	return block{t.head(), t.lines(), m.none("no rule has matched", len(m.shown.view.Rules))}
}

// none is what is said where no row is: that there is nothing, or that the filter hides it all.
func (m *Model) none(nothing string, hidden int) string {
	if hidden == 0 {
		return nothing
	}
	return fmt.Sprintf("the filter hides %d: esc shows all", hidden)
}

func doesText(r api.RuleStatus) string {
	switch {
	case r.RateNow > 0:
		return fmt.Sprintf("%s, %.3g/s", r.Rate, r.RateNow)
	case r.Burst == 0 && r.Rate != "":
		return r.Rate
	case r.Rate != "":
		return fmt.Sprintf("%s burst %d", r.Rate, r.Burst)
	case len(r.Limits) > 0:
		return fmt.Sprintf("%d limits", len(r.Limits))
	case r.Action == "classify":
		return "class " + r.Class
	}
	return r.Action
}

func (m *Model) sourceBlock(width int) block {
	t := newTable(width, []column{
		{head: "CLIENT"}, {"BY RULE", 14, false}, {"REASON", 11, false}, {"TURNED/s", 8, true}, {"SEEN/s", 8, true},
	})
	for _, s := range m.sources() {
		by := as(plain, s.Rule)
		t.add(cell{s.Client, plain}, by, cell{s.Reason, plain}, as(bad, figures.Rate(s.Turned)), as(plain, figures.Rate(s.Seen)))
	}
	return block{t.head(), t.lines(), m.none("no client was seen", len(m.shown.view.Sources))}
}

// changeBlock has the last changes of limits, of all services.
func (m *Model) changeBlock(width int) block {
	type change struct {
		service string
		api.LimitChange
	}
	var all []change
	for _, s := range m.services() {
		for _, c := range s.status.Changes {
			all = append(all, change{s.live.Name, c})
		}
	}
	slices.SortStableFunc(all, func(a, b change) int { return b.At.Compare(a.At) })
	b := block{head: title.Render("LIMIT CHANGES"), none: "no limit has changed"}
	for _, c := range all {
		text := fmt.Sprintf("%s %s %s: %s", c.At.Local().Format(time.TimeOnly), c.service, changeText(c.LimitChange), c.Reason)
		b.rows = append(b.rows, fitted(text, width))
	}
	return b
}

func changeText(c api.LimitChange) string {
	text := c.Old + " → " + c.New
	if c.Old == c.New {
		text = c.New
	}
	if c.By != "agent" {
		text += " by " + c.By
	}
	return text
}
