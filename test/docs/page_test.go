// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"narthex/test/docs/blocks"
)

// pages returns the paths of the documentation's pages, from the repository.
func pages(t *testing.T) (list []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/decisions/*.md"} {
		found, err := filepath.Glob(filepath.Join(repository, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("no page %s: %v", pattern, err)
		}
		for _, path := range found {
			name, _ := filepath.Rel(repository, path)
			list = append(list, name)
		}
	}
	return list
}

// tally counts what became of blocks.
type tally struct {
	mu       sync.Mutex
	executed map[string]int // by language
	skipped  map[string]int // by reason
}

func (c *tally) add(of map[string]int, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of[what]++
}

// TestPages executes every example of every page.
func TestPages(t *testing.T) {
	count := &tally{executed: map[string]int{}, skipped: map[string]int{}}
	t.Run("page", func(t *testing.T) {
		for _, name := range pages(t) {
			t.Run(strings.TrimPrefix(name, "docs/"), func(t *testing.T) {
				t.Parallel()
				testPage(t, name, count)
			})
		}
	})
	for _, lang := range slices.Sorted(maps.Keys(count.executed)) {
		t.Logf("%4d executed: %s", count.executed[lang], lang)
	}
	total := 0
	for _, why := range slices.Sorted(maps.Keys(count.skipped)) {
		t.Logf("%4d not executed: %s", count.skipped[why], why)
		total += count.skipped[why]
	}
	t.Logf("%4d blocks are not executed", total)
}

func testPage(t *testing.T, name string, count *tally) {
	text, err := os.ReadFile(filepath.Join(repository, name))
	if err != nil {
		t.Fatal(err)
	}
	list, err := blocks.Read(string(text))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	p := &page{t: t, name: name}
	defer func() {
		if err := p.save(string(text)); err != nil {
			t.Error(err)
		}
	}()
	for i := range list {
		b := &list[i]
		if why, skip := b.Words["skip"]; skip {
			count.add(count.skipped, why)
			continue
		}
		if b.Has("path") || b.Lang == "mermaid" {
			continue // TestShortWay; a drawing
		}
		if err := p.execute(b); err != nil {
			t.Fatalf("%s:%d: %v", name, b.Line, err)
		}
		count.add(count.executed, b.Lang)
	}
}

// page is one that is being executed.
type page struct {
	t     *testing.T
	name  string
	scene *scene // made when the first block needs it

	recorded []recording
}

var record = flag.Bool("record", false, "write into pages what their commands print, where they show something else")

// recording replaces lines of a page.
type recording struct {
	from, lines int // after this line, from 1
	text        string
}

// save writes what was recorded into the page.
func (p *page) save(text string) error {
	if len(p.recorded) == 0 {
		return nil
	}
	lines := strings.Split(text, "\n")
	for _, r := range slices.Backward(p.recorded) {
		lines = slices.Replace(lines, r.from, r.from+r.lines, strings.Split(r.text, "\n")...)
	}
	return os.WriteFile(filepath.Join(repository, p.name), []byte(strings.Join(lines, "\n")), 0o644)
}

// on returns the scene.
func (p *page) on() *scene {
	if p.scene == nil {
		p.scene = newScene(p.t)
		set := scenes[p.name]
		if set == nil {
			set = (*scene).install
		}
		set(p.scene)
	}
	return p.scene
}

func (p *page) execute(b *blocks.Block) error {
	if b.Has("fresh") {
		p.on().fresh()
	}
	if err := p.needs(b); err != nil {
		return err
	}
	path, isFile := b.Words["file"]
	if isFile {
		if err := sameAsExample(path, b.Text()); err != nil {
			return err
		}
		p.on().write(path, b.Text())
	}
	switch b.Lang {
	case "yaml":
		return checkYAML(p.t, b)
	case "json":
		return checkJSON(b)
	case "console", "sh":
		if isFile { // a script
			return nil
		}
		return p.run(b)
	}
	if !isFile {
		return fmt.Errorf("nothing is known of a block of %q: README.md in test/docs says how to mark it", b.Lang)
	}
	return nil
}

// sameAsExample compares a block that shows one of the examples with it.
func sameAsExample(path, shown string) error {
	if !strings.HasPrefix(path, "examples/") {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(repository, path))
	if err == nil && string(text) != shown {
		err = fmt.Errorf("%s says something else", path)
	}
	return err
}
