// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
)

// TestAccessible reads the figures from the accessibility tree, as a screen reader does.
func TestAccessible(t *testing.T) {
	s, p, c := show(t, desktop)
	c.crowd = 1
	s.play(c, 30)
	p.text("#headline-word", "Overload")
	p.text("#waiting", "bronze")
	tree := p.tree()
	for _, want := range []node{
		{"heading", "Overload"},
		{"table", "Classes"},
		{"figure", "Served, by class per second"},
		{"table", "Served, by class, per second"},
		{"table", "Turned away, by reason, requests per second"},
		{"table", "Waiting, by class, now"},
		{"table", "In service, and the limit, at once"},
		{"table", "Time waiting, by class, p50 solid, p99 dashed"},
		{"table", "Time in service, by class, p50 solid, p99 dashed"},
		{"table", "Connections (SYNs), per second"},
		{"rowheader", "max_wait"},
		{"rowheader", "bronze"},
		{"columnheader", "p99 now"},
		{"slider", "Look back"},
		{"combobox", "Service"},
		{"status", ""},
		{"main", ""},
	} {
		if !slices.Contains(tree, want) {
			t.Errorf("the accessibility tree has no %s %q", want.role, want.name)
		}
	}
	// Figures of the last view, of which the scene has told.
	last := *s.feed.last
	p.text("#connection-text", "03:00:30")
	bronze := last.Services[0].Classes[1]
	for _, figure := range []string{strconv.Itoa(bronze.Waiting), fmt.Sprintf("%.0f", bronze.Served), fmt.Sprintf("%.1fs", bronze.Wait.P99)} {
		if !slices.Contains(tree, node{"cell", figure}) {
			t.Errorf("the accessibility tree has no cell %q", figure)
		}
	}
	if t.Failed() {
		t.Logf("%v", tree)
	}
}

// node is one of the accessibility tree.
type node struct{ role, name string }

func (p *page) tree() (nodes []node) {
	p.t.Helper()
	for _, n := range call(p, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
		if !n.Ignored {
			nodes = append(nodes, node{value(n.Role), value(n.Name)})
		}
	}
	return nodes
}

func value(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	return strings.Trim(string(v.Value), `"`)
}
