// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) {
	time.Local = time.UTC
	os.Exit(m.Run())
}

// screen is a model that has seen views of some seconds.
func screen(width, height, views int) *Model {
	m := New(Options{Interval: time.Second})
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	for i := range views {
		m.Update(ViewMsg(overload(i)))
	}
	return m
}

// text is what is to be read on the screen.
func text(m *Model) string { return ansi.Strip(m.View().Content) }

// press sends keys by their names: a letter, or such as enter.
func press(t *testing.T, m *Model, names ...string) (last tea.Cmd) {
	t.Helper()
	special := map[string]tea.KeyPressMsg{
		"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "up": {Code: tea.KeyUp}, "down": {Code: tea.KeyDown},
		"backspace": {Code: tea.KeyBackspace}, "ctrl+c": {Code: 'c', Mod: tea.ModCtrl}, "ctrl+u": {Code: 'u', Mod: tea.ModCtrl},
	}
	for _, name := range names {
		msg, is := special[name]
		if !is {
			msg = tea.KeyPressMsg{Code: []rune(name)[0], Text: name}
		}
		_, last = m.Update(msg)
	}
	return last
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestScreens(t *testing.T) {
	for name, m := range map[string]*Model{
		"80x24": screen(80, 24, 40), "120x40": screen(120, 40, 40), "200x50": screen(200, 50, 40), "first-80x24": screen(80, 24, 1),
		"none-80x24": screen(80, 24, 0),
	} {
		golden(t, name, text(m)+"\n")
	}
	m := screen(80, 24, 3)
	press(t, m, "?")
	golden(t, "help-80x24", text(m)+"\n")
	m = screen(80, 24, 10)
	m.opts.ASCII = true
	golden(t, "ascii-80x24", text(m)+"\n")
	golden(t, "plain", Plain(overload(5), 100, false))
	golden(t, "pools", Plain(pooled(5), 80, false))
	m = screen(80, 24, 0)
	m.Update(ViewMsg(pooled(3)))
	golden(t, "pools-80x24", text(m)+"\n")
}

// Whatever the size, a screen has its lines and no more, and none that is too wide.
func TestScreensFit(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {120, 40}, {200, 50}, {40, 10}, {20, 5}, {1, 1}, {300, 100}, {80, 8}, {129, 24}, {131, 24}} {
		for _, help := range []bool{false, true} {
			m := screen(size[0], size[1], 60)
			m.helping = help
			lines := strings.Split(m.View().Content, "\n")
			if len(lines) != size[1] {
				t.Errorf("%v: %d lines", size, len(lines))
			}
			for _, line := range lines {
				if n := ansi.StringWidth(line); n > size[0] {
					t.Errorf("%v: %d columns: %s", size, n, line)
				}
			}
		}
	}
}

// The chosen of many services is on the screen with its classes.
func TestManyServices(t *testing.T) {
	v := overload(1)
	for i := range 40 {
		s, l := v.Status.Services[0], v.Services[0]
		s.Name, l.Name = fmt.Sprintf("tenant-%02d", i), fmt.Sprintf("tenant-%02d", i)
		v.Status.Services, v.Services = append(v.Status.Services, s), append(v.Services, l)
	}
	m := New(Options{})
	m.Update(ViewMsg(v))
	for i := range 42 {
		name := v.Services[i].Name
		if got := text(m); !strings.Contains(got, "\n> "+name) || (name != "mail" && !strings.Contains(got, "\n  crawlers")) {
			t.Fatalf("%s is chosen:\n%s", name, got)
		}
		press(t, m, "down")
	}
	if press(t, m, "up", "k"); m.chosen != "tenant-37" {
		t.Errorf("two above the last: %s", m.chosen)
	}
}

func TestKeys(t *testing.T) {
	order := func(m *Model, names ...string) bool {
		got, from := text(m), 0
		for _, name := range names {
			at := strings.Index(got[from:], name)
			if at < 0 {
				return false
			}
			from += at
		}
		return true
	}
	m := screen(120, 40, 5)
	if !order(m, "shop", "gold", "anonymous", "crawlers", "mail") {
		t.Errorf("in the order of the policy:\n%s", text(m))
	}
	if press(t, m, "s"); !order(m, "crawlers", "anonymous", "gold", "sort: waiting") {
		t.Errorf("by waiting:\n%s", text(m))
	}
	if press(t, m, "r"); !order(m, "gold", "anonymous", "crawlers", "sort: waiting reversed") {
		t.Errorf("reversed:\n%s", text(m))
	}
	if press(t, m, "r", "s", "s"); !order(m, "anonymous", "crawlers", "gold", "sort: rejected") {
		t.Errorf("by rejected:\n%s", text(m))
	}
	if press(t, m, "s", "s"); !order(m, "mail", "shop", "anonymous", "gold", "login", "per-client", "192.0.2.44", "198.51", "sort: name") {
		t.Errorf("by name:\n%s", text(m))
	}
	if press(t, m, "s"); !order(m, "sort: policy") {
		t.Errorf("after the last order:\n%s", text(m))
	}
	if press(t, m, "q")() != tea.Quit() || press(t, m, "ctrl+c")() != tea.Quit() || press(t, m, "/", "ctrl+c")() != tea.Quit() {
		t.Error("q does not quit")
	}
}

func TestFilter(t *testing.T) {
	m := screen(120, 40, 5)
	press(t, m, "/", "L", "o", "g", "q")
	if got := text(m); !strings.Contains(got, "filter: Logq_") || strings.Contains(got, "login") {
		t.Errorf("while it is typed:\n%s", got)
	} else if !strings.Contains(got, "the filter hides 2: esc shows all") || strings.Contains(got, "no rule has matched") {
		t.Errorf("it does not say what the filter hides:\n%s", got)
	}
	press(t, m, "backspace", "i", "enter")
	got := text(m)
	if !strings.Contains(got, "login ") || !strings.Contains(got, "192.0.2.44") || strings.Contains(got, "198.51.100.7") ||
		!strings.Contains(got, "no service or class has the text") || !strings.Contains(got, "/ filter: Logi (esc: all)") {
		t.Errorf("by a rule:\n%s", got)
	}
	press(t, m, "/", "ctrl+u", "c", "r", "a", "w", "enter")
	if got = text(m); !strings.Contains(got, "crawlers ") || strings.Contains(got, "anonymous ") || strings.Contains(got, "mail") {
		t.Errorf("by a class:\n%s", got)
	}
	press(t, m, "esc")
	if got = text(m); !strings.Contains(got, "anonymous") || !strings.Contains(got, "198.51.100.7") {
		t.Errorf("all again:\n%s", got)
	}
	m.typing = true
	m.Update(tea.PasteMsg{Content: "ma\x1bil\n"})
	if m.filter != "mail" {
		t.Errorf("pasted: %q", m.filter)
	}
}

func TestPause(t *testing.T) {
	m := screen(80, 24, 5)
	before := text(m)
	press(t, m, "p")
	for i := range 5 {
		m.Update(ViewMsg(overload(5 + i)))
	}
	got := text(m)
	if !strings.Contains(got, "PAUSED at 03:00:04") {
		t.Errorf("it does not say that it is paused:\n%s", got)
	}
	if diff := cmp.Diff(strings.Split(before, "\n")[1:], strings.Split(got, "\n")[1:]); diff != "" {
		t.Errorf("paused (-before +got):\n%s", diff)
	}
	if press(t, m, "p"); !strings.Contains(text(m), " 03:00:09") {
		t.Errorf("going on:\n%s", text(m))
	}
}

func TestADaemonThatGoesAndComes(t *testing.T) {
	m := screen(80, 24, 5)
	m.Update(LostMsg{"the daemon has ended"})
	if got := text(m); !strings.Contains(got, "NO DAEMON, trying again: the daemon has ended") || !strings.Contains(got, "gold") {
		t.Errorf("when it has gone:\n%s", got)
	}
	m.Update(ViewMsg(overload(5)))
	if got := text(m); strings.Contains(got, "NO DAEMON") || !strings.Contains(got, "the daemon answers again") {
		t.Errorf("when it is back:\n%s", got)
	}
	if m.Update(ViewMsg(overload(20))); strings.Contains(text(m), "answers again") {
		t.Errorf("long after:\n%s", text(m))
	}
	m.Update(LostMsg{"gone"})
	v := overload(21)
	v.Status.PID, v.Status.Enforcing = 99, false
	m.Update(ViewMsg(v))
	if got := text(m); !strings.Contains(got, "a new daemon answers") || !strings.Contains(got, "NOT ENFORCING") {
		t.Errorf("another one:\n%s", got)
	}
	v.Status.Policy.Hash = "0123456789"
	m.Update(ViewMsg(v))
	if got := text(m); !strings.Contains(got, "another policy is in force: 01234567") {
		t.Errorf("after a reload:\n%s", got)
	}
}

func TestNoNews(t *testing.T) {
	m := screen(80, 24, 5)
	for range 3 {
		m.Update(tickMsg{})
	}
	if strings.Contains(text(m), "NO NEWS") {
		t.Error("no news after three seconds")
	}
	if m.Update(tickMsg{}); !strings.Contains(text(m), "NO NEWS from the daemon for 4s") {
		t.Errorf("after four:\n%s", text(m))
	}
	if m.Update(ViewMsg(overload(9))); strings.Contains(text(m), "NO NEWS") {
		t.Errorf("with the next view:\n%s", text(m))
	}
}
