// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"bytes"
	"embed"
	"fmt"
	"html"
	htmltemplate "html/template"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"
)

//go:embed page.md page.html
var pages embed.FS

// Report is what the pages show.
type Report struct {
	Machine *Machine // of the last run
	Results []*Stored
	Missing []string // experiments that have not been done
}

// Open assembles a report from the JSON files of its folder, with the experiments in the order
// given. Experiments of which there is no file are missing.
func Open(dir string, order []string) (*Report, error) {
	machine, err := loadMachine(dir)
	if err != nil {
		return nil, err
	}
	results, err := load(dir, order)
	if err != nil {
		return nil, err
	}
	r := &Report{Machine: machine, Results: results}
	for _, id := range order {
		if !slices.ContainsFunc(results, func(s *Stored) bool { return s.ID == id }) {
			r.Missing = append(r.Missing, id)
		}
	}
	return r, nil
}

// Write writes a report's pages, README.md and index.html, from the JSON files of its folder.
func Write(dir string, order []string) error {
	r, err := Open(dir, order)
	if err != nil {
		return err
	}
	md, err := template.New("page.md").Funcs(template.FuncMap{
		"md": markdown, "cell": cell, "spread": Spread, "took": Took,
	}).ParseFS(pages, "page.md")
	if err != nil {
		return err
	}
	page, err := htmltemplate.New("page.html").Funcs(htmltemplate.FuncMap{
		"text": marked, "spread": Spread, "took": Took, "class": class,
	}).ParseFS(pages, "page.html")
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := md.Execute(&out, r); err != nil {
		return err
	}
	// Parts that are left out leave empty lines.
	text := append(bytes.TrimSpace(regexp.MustCompile(`\n{3,}`).ReplaceAll(out.Bytes(), []byte("\n\n"))), '\n')
	if err := os.WriteFile(filepath.Join(dir, "README.md"), text, 0o644); err != nil {
		return err
	}
	out.Reset()
	if err := page.Execute(&out, r); err != nil {
		return err
	}
	text = regexp.MustCompile(`(?m)^\s*\n`).ReplaceAll(out.Bytes(), nil)
	return os.WriteFile(filepath.Join(dir, "index.html"), text, 0o644)
}

// Holds reports whether nothing is missing, and all results hold and are evidence.
func (r *Report) Holds() bool {
	return len(r.Missing) == 0 && !slices.ContainsFunc(r.Results, func(s *Stored) bool {
		return s.Verdict() != Holds || len(r.Marks(s)) > 0
	})
}

// Summary counts verdicts.
func (r *Report) Summary() string {
	count := map[Verdict]int{}
	for _, s := range r.Results {
		count[s.Verdict()]++
	}
	all := len(r.Results) + len(r.Missing)
	text := fmt.Sprintf("Of %d experiments, %d hold, %d do not, %d could not be judged", all, count[Holds], count[Fails], count[NotJudged])
	if n := len(r.Missing); n > 0 {
		text += fmt.Sprintf(", %d have not been done: %s", n, strings.Join(r.Missing, ", "))
	}
	return text + "."
}

// Better lists where a peer is better.
func (r *Report) Better() []Lesson {
	var all []Lesson
	for _, s := range r.Results {
		for _, q := range s.Compared() {
			if q.Standing == Worse {
				all = append(all, Lesson{s.ID, q.String()})
			}
		}
	}
	return all
}

// Lesson is a sentence about an experiment.
type Lesson struct{ ID, Text string }

// Marks say what keeps a result from being evidence of this report.
func (r *Report) Marks(s *Stored) []string {
	var marks []string
	if s.Quick {
		marks = append(marks, "quick run, no evidence")
	} else if s.Runs < 3 {
		marks = append(marks, fmt.Sprintf("of %d rounds alone", s.Runs))
	}
	if was, is := s.Made, r.Machine; was.Narthex != is.Narthex {
		marks = append(marks, "stale: of commit "+was.Narthex)
	} else if was.Kernel != is.Kernel || was.CPU != is.CPU {
		marks = append(marks, "stale: of another machine or kernel")
	}
	return marks
}

// Picture is a plot with what a page needs.
type Picture struct{ File, Title, Alt string }

// Pictures are the plots' files.
func (s *Stored) Pictures() []Picture {
	var all []Picture
	for i := range s.Plots {
		p := &s.Plots[i]
		all = append(all, Picture{plotsFolder + "/" + s.file(p), p.Title, p.alt()})
	}
	return all
}

// Shape and Figures are the verdicts on the claims of either kind.
func (s *Stored) Shape() Verdict { return s.VerdictOn(Shape) }

// Figures is the verdict on claims that figures are reached.
func (s *Stored) Figures() Verdict { return s.VerdictOn(Figure) }

// class is that of a verdict or a standing in the style sheet.
func class(v any) string {
	switch v {
	case Holds, Better:
		return "good"
	case Fails, Worse:
		return "bad"
	case NotJudged, NotCompared:
		return "unknown"
	}
	return "plain"
}

var code = regexp.MustCompile("`([^`]+)`")

// marked is text for HTML, in which `this` is code.
func marked(text string) htmltemplate.HTML {
	return htmltemplate.HTML(code.ReplaceAllString(html.EscapeString(text), "<code>$1</code>"))
}

// markdown escapes what would be taken for formatting, but for `code`.
func markdown(text string) string {
	inCode := false
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '`':
			inCode = !inCode
		case inCode:
		case strings.ContainsRune(`\*[]`, r):
			b.WriteByte('\\')
		case r == '<':
			b.WriteString("&lt;")
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// cell is text for a table in Markdown.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(markdown(text)), " "), "|", `\|`)
}
