// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// dashboard is what of Grafana's model is looked at.
type dashboard struct {
	Title         string
	SchemaVersion int
	Panels        []panel
	Annotations   struct{ List []target }
	Templating    struct {
		List []struct {
			Name, Type string
			Query      json.RawMessage // text of a data source, else an object
		}
	}
}

type panel struct {
	ID                 int
	Type, Title        string
	Description        string
	GridPos            struct{ X, Y, W, H int }
	Datasource         struct{ Type, UID string }
	Targets            []target
	FieldConfig        json.RawMessage
	Options, Transform json.RawMessage
}

type target struct {
	Expr, LegendFormat string
	Datasource         struct{ Type, UID string }
}

func readDashboard(t *testing.T) (d dashboard, text string) {
	t.Helper()
	text = read(t, filepath.Join(packaged, "grafana", "narthex.json"))
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	return d, text
}

// expressions are all that a dashboard asks for, as Grafana would send them if everything was
// selected.
func (d dashboard) expressions() (list []string) {
	ready := strings.NewReplacer("$__rate_interval", "1m", "$__range", "1m", "$__interval", "1m",
		"$job", ".*", "$node", ".*", "$narthex_instance", ".*", "$instance", ".*", "$service", ".*")
	targets := slices.Clone(d.Annotations.List)
	for _, p := range d.Panels {
		targets = append(targets, p.Targets...)
	}
	for _, target := range targets {
		list = append(list, ready.Replace(target.Expr))
	}
	return list
}

// queries are those of the variables that are chosen from: label_values(METRIC{...}, LABEL).
func (d dashboard) queries(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			var q struct{ Query string }
			if err := json.Unmarshal(v.Query, &q); err != nil {
				t.Fatal(err)
			}
			found[v.Name] = q.Query
		}
	}
	return found
}

// TestDashboardIsWhole finds what Grafana would show as an error.
func TestDashboardIsWhole(t *testing.T) {
	d, text := readDashboard(t)
	if d.Title != "Narthex" || d.SchemaVersion < 38 || len(d.Panels) < 20 {
		t.Errorf("%q of schema %d with %d panels", d.Title, d.SchemaVersion, len(d.Panels))
	}
	variables := map[string]bool{"__rate_interval": true, "__range": true, "__interval": true, "__all": true} // Grafana's own
	for _, v := range d.Templating.List {
		variables[v.Name] = true
	}
	for _, name := range []string{"datasource", "instance", "narthex_instance", "service"} {
		if !variables[name] {
			t.Errorf("there is no variable %s", name)
		}
	}
	for _, m := range regexp.MustCompile(`\$\{?(\w+)`).FindAllStringSubmatch(text, -1) {
		if !variables[m[1]] {
			t.Errorf("variable %s is used, and not defined", m[1])
		}
	}
	kinds := []string{"row", "stat", "timeseries", "heatmap", "table", "state-timeline"}
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || !slices.Contains(kinds, p.Type) {
			t.Errorf("panel %d %q of type %s: twice, without a title or of no known type", p.ID, p.Title, p.Type)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%q and %q overlap, or do not fit", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 || p.Description == "" {
			t.Errorf("%q asks for nothing, or does not say what it shows", p.Title)
		}
		for _, source := range append(p.Targets, target{Expr: "x", Datasource: p.Datasource}) {
			if source.Expr == "" || source.Datasource.UID != "${datasource}" || source.Datasource.Type != "prometheus" {
				t.Errorf("%q asks %+v", p.Title, source)
			}
		}
	}
}
