// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"fmt"
	"strconv"
	"strings"

	"charm.land/lipgloss/v2"

	"narthex/internal/api"
	"narthex/internal/figures"
	"narthex/internal/live"
	"narthex/internal/policy"
)

// From how many columns on there is room for how many were held, and for bytes.
const (
	withHeld  = 88
	withBytes = 102
)

// serviceTable is the main table, without rows.
func serviceTable(width int) *table {
	columns := []column{
		{head: "SERVICE/CLASS"}, {"IN SERV", 7, true}, {"WAITING", 7, true}, {"ARRIV/s", 7, true}, {"SERVE/s", 7, true},
	}
	if width >= withHeld {
		columns = append(columns, column{"HELD/s", 6, true})
	}
	columns = append(columns, column{"REJECT/s", 8, true})
	if width >= withBytes {
		columns = append(columns, column{"B IN/s", 6, true}, column{"B OUT/s", 7, true})
	}
	columns = append(columns, column{"WAIT p50/99", 11, true}, column{"SERV p50/99", 11, true})
	return newTable(width, columns)
}

// serviceLines draws the services: a line for each, and the details of those that are open.
// It returns where those of the chosen one begin and end.
func (m *Model) serviceLines(width int, open func(i int) bool) (lines []string, from, to int) {
	services := m.services()
	t := serviceTable(width)
	chosen := m.chosenOf(services)
	for i, s := range services {
		if i == chosen {
			from = len(lines)
		}
		t.rows = nil
		name := s.live.Name
		if i == chosen && len(services) > 1 && !m.still {
			name = "> " + name
		}
		row := serviceRow(s, name, len(t.columns))
		if !open(i) {
			warn(row, s.status)
		}
		t.add(row...)
		lines = append(lines, t.lines()...)
		if open(i) {
			lines = append(lines, m.details(s, width)...)
			t.rows = nil
			for _, c := range s.classes {
				if !idle(c) {
					t.add(classRow(c, len(t.columns))...)
				}
			}
			lines = append(lines, t.lines()...)
		}
		if i == chosen {
			to = len(lines)
		}
	}
	return lines, from, to
}

// idle is a class that has never had anything to do.
func idle(c class) bool {
	return c.status.Arrived == 0 && c.status.InService == 0 && c.status.Waiting == 0
}

func serviceRow(s service, name string, columns int) []cell {
	cells := []cell{{name, bold}}
	if s.status.RoomStatus == nil {
		for len(cells) < columns {
			cells = append(cells, as(faint, "-"))
		}
		return cells
	}
	limit := 0
	if a := s.status.Adaptation; a != nil && a.Auto {
		limit = a.Limit
	} else if n, err := strconv.Atoi(s.status.Limit); err == nil {
		limit = n
	}
	cells = append(cells, as(good, of(s.status.InService, limit)), as(waits, strconv.Itoa(s.status.Waiting)))
	l := &s.live
	cells = append(cells, rates(perSecond{l.Arrived, l.Served, l.Held, l.Rejected, l.BytesIn, l.BytesOut}, columns)...)
	return append(cells, cell{}, cell{})
}

// warn says in the last cells of a service without details what they would warn of.
func warn(row []cell, s api.ServiceStatus) {
	var words []string
	if !s.Listening {
		words = append(words, "NO SERVER")
	}
	if a := s.Adaptation; a != nil && a.Overload {
		words = append(words, overloadWord(a))
	}
	if len(s.Interfaces) == 0 {
		words = append(words, "OFF")
	}
	if s.Mode == "shadow" {
		words = append(words, "SHADOW")
	}
	cells := row[len(row)-2:]
	for i := range min(len(words), len(cells)) {
		cells[i] = cell{words[i], alarm}
	}
}

func classRow(c class, columns int) []cell {
	cells := []cell{{"  " + c.live.Name, plain}, as(good, of(c.live.InService, c.status.Max)), as(waits, strconv.Itoa(c.live.Waiting))}
	l := &c.live
	cells = append(cells, rates(perSecond{l.Arrived, l.Served, l.Held, l.Rejected, l.BytesIn, l.BytesOut}, columns)...)
	return append(cells, as(waits, quantileText(c.live.Wait)), as(plain, quantileText(c.live.Service)))
}

type perSecond struct{ arrived, served, held, rejected, bytesIn, bytesOut float64 }

// rates are the cells of a row that are per second, of a table with so many columns.
func rates(r perSecond, columns int) []cell {
	const withoutHeld, withoutBytes = 8, 9
	cells := []cell{as(plain, figures.Rate(r.arrived)), as(good, figures.Rate(r.served))}
	if columns > withoutHeld {
		cells = append(cells, as(waits, figures.Rate(r.held)))
	}
	cells = append(cells, as(bad, figures.Rate(r.rejected)))
	if columns > withoutBytes {
		cells = append(cells, as(plain, figures.Rate(r.bytesIn)), as(plain, figures.Rate(r.bytesOut)))
	}
	return cells
}

// of returns how many of how many, without the second if there is no bound or no room.
func of(n, most int) string {
	const room = 7
	if text := fmt.Sprintf("%d/%d", n, most); most > 0 && len(text) <= room {
		return text
	}
	return strconv.Itoa(n)
}

func quantileText(q live.Quantiles) string {
	if q.Count == 0 {
		return "-"
	}
	return figures.Span(q.P50) + " " + figures.Span(q.P99)
}

// details are the lines under a service: what sets its limit, and how it went before.
func (m *Model) details(s service, width int) []string {
	text := limitText(s.status)
	if warning := warningText(s.status); warning != "" {
		text = alarm.Render(warning) + " " + text
	}
	lines := []string{fitted("  "+text, width)}
	if !m.still {
		lines = append(lines, m.sparklines(s, width))
	}
	return lines
}

// limitText says how many may be in service, and who says so.
func limitText(s api.ServiceStatus) string {
	var words []string
	switch {
	case s.RoomStatus == nil:
		words = append(words, "only SYNs are policed")
	case s.Limit == "unlimited":
		words = append(words, "no limit")
	default:
		words = append(words, "limit "+s.Limit)
	}
	if a := s.Adaptation; a != nil {
		if a.Auto {
			words[0] += " set by " + a.Signal
		}
		for _, k := range a.Keep {
			if k.Share < 1 {
				words = append(words, fmt.Sprintf("%.0f%% of new %s let in", 100*k.Share, k.Class))
			}
		}
		if a.Auto && a.Ceiling > 0 {
			words = append(words, fmt.Sprintf("%d to %d", a.Floor, a.Ceiling))
		}
	}
	if s.RoomStatus != nil {
		words = append(words, fmt.Sprintf("queue %d", s.QueueSize))
		if s.Protocol != policy.HTTP {
			words = append(words, "of connections")
		}
	}
	return strings.Join(words, " · ")
}

// overloadWord says how overloaded a service is.
func overloadWord(a *api.AdaptationStatus) string {
	if higher := a.Level == "rejecting" || a.Level == "flooded"; higher {
		return "OVERLOADED, " + strings.ToUpper(a.Level)
	}
	return "OVERLOADED"
}

// warningText is what one has to know first of a service.
func warningText(s api.ServiceStatus) string {
	var words []string
	if !s.Listening {
		words = append(words, "NO SERVER LISTENS on "+strings.Join(s.Silent, " "))
	}
	if a := s.Adaptation; a != nil && a.Overload {
		words = append(words, fmt.Sprintf("%s %.2f", overloadWord(a), a.Degree))
	}
	if s.Mode == "shadow" {
		words = append(words, "SHADOW: all are let in")
	}
	if len(s.Interfaces) == 0 {
		words = append(words, "ON NO INTERFACE")
	}
	return strings.Join(words, ", ")
}

// sparklines draws what arrived at a service and what waited there.
func (m *Model) sparklines(s service, width int) string {
	p := m.shown.history[s.live.Name]
	if p == nil {
		p = &past{}
	}
	if s.status.RoomStatus == nil {
		const around = len("  SYNs  max 99999")
		line, most := sparkline(p.arrived, max(width-around, 1), m.levels())
		return fitted(fmt.Sprintf("  SYNs %s max %s", good.Render(line), figures.Rate(most)), width)
	}
	const around = len("  arrived  max 99999   waiting  max 99999")
	points := max((width-around)/2, 1)
	arrived, mostArrived := sparkline(p.arrived, points, m.levels())
	waiting, mostWaiting := sparkline(p.waiting, points, m.levels())
	return fitted(fmt.Sprintf("  arrived %s max %s  waiting %s max %s",
		good.Render(arrived), pad(figures.Rate(mostArrived)), waits.Render(waiting), figures.Rate(mostWaiting)), width)
}

func (m *Model) levels() []rune {
	if m.opts.ASCII {
		return asciiBlocks
	}
	return blocks
}

// pad makes a rate as wide as a rate can be.
func pad(rate string) string {
	return lipgloss.NewStyle().Width(5).Render(rate)
}
