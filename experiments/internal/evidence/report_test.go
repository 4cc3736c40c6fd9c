// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// example is a result that has something of everything.
func example(id string) *Result {
	return &Result{
		ID: id, Title: "Something | with <signs> & `code`", Source: "a paper", Then: "it *rose*", Setup: "a server,\nand clients",
		Plots:  []Plot{*plots()["linear"], {Name: "log", Title: "another"}},
		Tables: []Table{{Title: "figures", Columns: []string{"what", "rate (/s)", "p99 (ms)"}, Rows: []Row{{Name: "Narthex", Ours: true, Cells: []Cell{{Samples: []float64{1, 2, 4}}, {Text: "–"}}}}}},
		Claims: []Claim{AtLeast(Shape, "it rises", "/s", 1, 2, 2.5, 1.5), Between(Figure, "it is within", "", 1, 2, 1.25)},
		Ratios: []Ratio{{What: "rate", Peer: "nginx", Samples: []float64{1.5, 1.6, 1.4}}, {What: "rate", Peer: "nothing", Samples: []float64{math.Inf(1), math.NaN()}}},
		Notes:  []string{"a note"}, Repeated: []string{"a run, and why"}, Command: "make experiments ONLY=" + id, Runs: 3, Took: 90 * time.Second,
	}
}

var machine = &Machine{CPU: "a CPU", Cores: 2, Kernel: "6.12", Narthex: "v1-2-gabc", Programs: []Program{{"nginx", "1.22"}}, Command: "make experiments"}

// saved makes a report of results.
func saved(t *testing.T, dir string, order []string, results ...*Result) (md, page string) {
	t.Helper()
	for _, r := range results {
		if err := Save(dir, r, machine); err != nil {
			t.Fatal(err)
		}
	}
	if err := SaveMachine(dir, machine); err != nil {
		t.Fatal(err)
	}
	if err := Write(dir, order); err != nil {
		t.Fatal(err)
	}
	return string(read(t, dir, "README.md")), string(read(t, dir, "index.html"))
}

func TestRoundTrip(t *testing.T) {
	dir := t.TempDir()
	want := example("fig5")
	if err := Save(dir, want, machine); err != nil {
		t.Fatal(err)
	}
	got, err := Load(dir, "fig5")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, &got.Result, cmpopts.EquateNaNs()); d != "" {
		t.Errorf("read otherwise than written (-want +got):\n%s", d)
	}
	if got.Made.Narthex != machine.Narthex || got.Made.Kernel != machine.Kernel {
		t.Errorf("made with %+v", got.Made)
	}
}

// TestUpdate does one experiment of a report again: all else stays, and the pages have both.
func TestUpdate(t *testing.T) {
	dir, order := t.TempDir(), []string{"fig5", "tab6", "fig12"}
	saved(t, dir, order, example("fig12"), example("fig5"))
	before := map[string]string{}
	for _, file := range []string{"data/fig5.json", "plots/fig5.svg", "plots/fig5-log.png"} {
		before[file] = string(read(t, dir, file))
	}
	r := example("fig12")
	r.Plots, r.Claims = r.Plots[:1], []Claim{AtLeast(Figure, "ninety-seven per cent", "%", 97, 50)}
	md, page := saved(t, dir, order, r)
	for file, text := range before {
		if string(read(t, dir, file)) != text {
			t.Errorf("%s has changed", file)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "plots/fig12-log.svg")); err == nil {
		t.Error("a diagram that the experiment no longer has is still there")
	}
	for _, text := range []string{md, page} {
		for _, want := range []string{
			"Of 3 experiments, 1 hold, 1 do not, 0 could not be judged, 1 have not been done: tab6.",
			"wanted ≥ 97 %, got 50 %", "plots/fig5.svg", "plots/fig12.svg", "not done", "1.5 (1.4 to 1.6)", "2 (1 to 4)", "make experiments ONLY=fig12",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("a page does not say %q", want)
			}
		}
		if five, twelve := strings.LastIndex(text, "data/fig5.json"), strings.LastIndex(text, "data/fig12.json"); five > twelve {
			t.Error("the order is another one")
		}
	}
}

func TestPages(t *testing.T) {
	dir := t.TempDir()
	md, page := saved(t, dir, []string{"fig5"}, example("fig5"))
	text := wellFormed(t, page, false)
	for _, want := range []string{"Something | with <signs> & code", "it *rose*", "a server,\nand clients", "a CPU, 2 cores"} {
		if !strings.Contains(text, want) {
			t.Errorf("index.html does not say %q", want)
		}
	}
	if !strings.Contains(md, `Something \| with &lt;signs> & `+"`code`") {
		t.Error("README.md does not escape signs in tables")
	}
	for _, m := range regexp.MustCompile(`(?:src|href)="([^"#]+)"|\]\(([^)#:]+)\)`).FindAllStringSubmatch(page+md, -1) {
		to := m[1] + m[2]
		if strings.HasPrefix(to, "../../docs/") {
			to = filepath.Join("../../..", "docs", filepath.Base(to))
		} else {
			to = filepath.Join(dir, to)
		}
		if _, err := os.Stat(to); err != nil {
			t.Errorf("a link leads nowhere: %v", err)
		}
	}
	if n := strings.Count(page, "<img "); n != 2 || n != strings.Count(page, ` alt="Line plot`) {
		t.Errorf("%d pictures, want 2, each with a description", n)
	}
	for _, line := range strings.Split(md, "\n") { // all rows of a table have as many cells as its head
		if strings.HasPrefix(line, "| [fig5]") && strings.Count(strings.ReplaceAll(line, `\|`, ""), "|") != 6 {
			t.Errorf("a row of the summary has another number of cells: %s", line)
		}
	}
}

// TestWorseFirst has the pages begin with what peers do better.
func TestWorseFirst(t *testing.T) {
	r := example("fig5")
	r.Ratios = append(r.Ratios, Ratio{What: "latency", Peer: "HAProxy", Samples: []float64{2}, Low: true})
	md, page := saved(t, t.TempDir(), []string{"fig5"}, r)
	for _, text := range []string{md, page} {
		sentence := "Worse than HAProxy: latency, ours is 2 × theirs; less is better."
		if first := strings.Index(text, sentence); first < 0 || first > strings.Index(text, ">Summary<")+strings.Index(text, "## Summary")+1 {
			t.Error("it is not said before the summary")
		}
		section := text[strings.LastIndex(text, "Shape: ")-400:]
		if !strings.Contains(section[:400], "Worse than HAProxy") {
			t.Error("it is not said first in the experiment's section")
		}
	}
}

// TestMarks has results that are no evidence marked as such, on both pages, and the report fail.
func TestMarks(t *testing.T) {
	for _, c := range []struct {
		name, mark string
		spoil      func(*Result)
		made       Machine
	}{
		{"quick", "quick run, no evidence", func(r *Result) { r.Quick = true }, *machine},
		{"one round", "of 1 rounds alone", func(r *Result) { r.Runs = 1 }, *machine},
		{"stale", "stale: of commit v0", func(*Result) {}, Machine{Narthex: "v0", Kernel: machine.Kernel, CPU: machine.CPU}},
		{"another kernel", "stale: of another machine or kernel", func(*Result) {}, Machine{Narthex: machine.Narthex, Kernel: "5", CPU: machine.CPU}},
		{"invalid", "Invalid: the clients ran out of ports.", func(r *Result) { r.Invalid = []string{"the clients ran out of ports"} }, *machine},
		{"nothing", "", func(*Result) {}, *machine},
	} {
		dir, r := t.TempDir(), example("fig5")
		r.Plots = nil
		c.spoil(r)
		if err := Save(dir, r, &c.made); err != nil {
			t.Fatal(err)
		}
		md, page := saved(t, dir, []string{"fig5"})
		if !strings.Contains(md, c.mark) || !strings.Contains(page, c.mark) {
			t.Errorf("%s: the pages do not say %q", c.name, c.mark)
		}
		report, err := Open(dir, []string{"fig5"})
		if err != nil {
			t.Fatal(err)
		}
		if c.name == "invalid" && (strings.Contains(md, "| holds |") || strings.Contains(page, ">holds</td>")) {
			t.Error("a claim of an invalid result holds")
		}
		if report.Holds() != (c.mark == "") {
			t.Errorf("%s: the report holds: %v", c.name, report.Holds())
		}
	}
}

// TestHere has the description of this machine name neither it nor folders.
func TestHere(t *testing.T) {
	m, err := Here(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, row := range m.Rows() {
		text += row[1] + "\n"
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if m.Kernel == "unknown" || m.CPU == "unknown" || !strings.Contains(m.Memory, "GiB") {
		t.Errorf("not described: %+v", m)
	}
	if strings.Contains(text, "/root") || strings.Contains(text, "/home") || len(host) > 3 && strings.Contains(text, host) {
		t.Errorf("it names the host or folders:\n%s", text)
	}
}
