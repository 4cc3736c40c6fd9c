// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"math"
	"slices"
	"strings"

	"narthex/internal/live"
)

// mostPoints is how many views a sparkline can have.
const mostPoints = 300

// history is what services did in the views before, by name.
type history map[string]*past

type past struct {
	arrived, waiting []float64 // the oldest first
}

// add notes a view. A service that is in it no more is forgotten.
func (h history) add(v live.View) {
	there := map[string]bool{}
	for i, s := range v.Services {
		there[s.Name] = true
		p := h[s.Name]
		if p == nil {
			p = &past{}
			h[s.Name] = p
		}
		waiting := 0
		if room := v.Status.Services[i].RoomStatus; room != nil {
			waiting = room.Waiting
		}
		p.waiting = appended(p.waiting, float64(waiting))
		switch {
		case v.Interval == 0: // there are no rates
		case v.Status.Services[i].RoomStatus == nil:
			p.arrived = appended(p.arrived, s.SYNs)
		default:
			p.arrived = appended(p.arrived, s.Arrived)
		}
	}
	for name := range h {
		if !there[name] {
			delete(h, name)
		}
	}
}

func appended(list []float64, v float64) []float64 {
	list = append(list, v)
	return list[max(0, len(list)-mostPoints):]
}

func (h history) clone() history {
	c := history{}
	for name, p := range h {
		c[name] = &past{slices.Clone(p.arrived), slices.Clone(p.waiting)}
	}
	return c
}

var (
	blocks      = []rune("▁▂▃▄▅▆▇█")
	asciiBlocks = []rune("_.-:=+*#")
)

// sparkline draws the last values in so many columns, the newest to the right. The largest
// is as high as a column gets; it returns that, too.
func sparkline(values []float64, width int, levels []rune) (line string, most float64) {
	values = values[max(0, len(values)-width):]
	if len(values) > 0 {
		most = slices.Max(values)
	}
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", max(0, width-len(values))))
	for _, v := range values {
		level := 0
		if most > 0 && v > 0 {
			level = max(1, int(math.Round(v/most*float64(len(levels)-1))))
		}
		b.WriteRune(levels[level])
	}
	return b.String(), most
}
