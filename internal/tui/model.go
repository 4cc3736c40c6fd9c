// SPDX-License-Identifier: Apache-2.0

// Package tui is the screen of `narthex top`: who is served, who waits, and who is turned away
// and why. It draws what a live.View holds and asks nobody for anything.
package tui

import (
	"strings"
	"time"
	"unicode"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"narthex/internal/live"
)

// Options are what a screen has to know beside views.
type Options struct {
	Interval time.Duration // between views
	ASCII    bool          // the terminal does not show UTF-8
}

// ViewMsg is a view to show.
type ViewMsg live.View

// LostMsg says that no views come any more, and why. A ViewMsg ends that.
type LostMsg struct{ Why string }

// Model is the screen's state.
type Model struct {
	opts          Options
	width, height int

	latest, shown screenful
	seen          bool   // there was a view
	lost          string // why no views come; empty: they do
	note          string // what has happened, until the time of a view
	noteUntil     time.Time
	quiet         int // ticks since the last view

	paused  bool
	helping bool
	sort    int // in orders
	reverse bool
	filter  string // only what has this text is shown
	typing  bool   // keys go to the filter
	still   bool   // there is one view and nothing before
	chosen  string // the service whose details are shown if those of all do not fit
}

// screenful is a view with what was seen before.
type screenful struct {
	view    live.View
	history history
}

const (
	// The size of the oldest terminals, until the real one is known.
	usualWidth, usualHeight = 80, 24
	// noteLasts is how long a note is shown.
	noteLasts = 10 * time.Second
	// ofLate is how many intervals may pass before it is said that no view comes.
	ofLate = 3
)

// New returns a screen that has seen no view.
func New(opts Options) *Model {
	return &Model{opts: opts, width: usualWidth, height: usualHeight, latest: screenful{history: history{}}}
}

type tickMsg struct{}

// tick comes once a second.
func tick() tea.Cmd { return tea.Tick(time.Second, func(time.Time) tea.Msg { return tickMsg{} }) }

// Init begins to count the time without views.
func (m *Model) Init() tea.Cmd { return tick() }

// Update takes views, keys and sizes.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case ViewMsg:
		m.take(live.View(msg))
	case LostMsg:
		m.lost = msg.Why
	case tickMsg:
		m.quiet++
		return m, tick()
	case tea.KeyPressMsg:
		return m, m.press(msg)
	case tea.PasteMsg:
		if m.typing {
			m.filter += printable(msg.Content)
		}
	}
	return m, nil
}

// take shows a view unless the screen is paused.
func (m *Model) take(v live.View) {
	switch before := m.latest.view.Status.PID; {
	case m.lost != "" && m.seen && before != v.Status.PID:
		m.remark(v, "a new daemon answers: its counters go on if the policy stayed in force")
	case m.lost != "" && m.seen:
		m.remark(v, "the daemon answers again")
	case m.seen && m.latest.view.Status.Policy.Hash != v.Status.Policy.Hash:
		m.remark(v, "another policy is in force: "+shortHash(v.Status.Policy.Hash))
	}
	m.lost, m.quiet, m.seen = "", 0, true
	m.latest.view = v
	m.latest.history.add(v)
	if !m.paused {
		m.shown = m.latest
	}
}

func (m *Model) remark(v live.View, note string) {
	m.note, m.noteUntil = note, v.Time.Add(noteLasts)
}

func (m *Model) press(msg tea.KeyPressMsg) tea.Cmd {
	if m.typing {
		return m.edit(msg)
	}
	switch {
	case key.Matches(msg, keys.quit):
		return tea.Quit
	case key.Matches(msg, keys.suspend):
		return tea.Suspend
	case key.Matches(msg, keys.help):
		m.helping = !m.helping
	case key.Matches(msg, keys.clear):
		if !m.helping {
			m.filter = ""
		}
		m.helping = false
	case m.helping:
	case key.Matches(msg, keys.pause):
		m.pause()
	case key.Matches(msg, keys.sort):
		m.sort = (m.sort + 1) % len(orders)
	case key.Matches(msg, keys.reverse):
		m.reverse = !m.reverse
	case key.Matches(msg, keys.up):
		m.choose(-1)
	case key.Matches(msg, keys.down):
		m.choose(1)
	case key.Matches(msg, keys.filter):
		m.typing = true
	}
	return nil
}

// edit changes the filter, which applies while it is typed.
func (m *Model) edit(msg tea.KeyPressMsg) tea.Cmd {
	switch msg.String() {
	case "ctrl+c":
		return tea.Quit
	case "esc":
		m.filter, m.typing = "", false
	case "enter":
		m.typing = false
	case "ctrl+u":
		m.filter = ""
	case "backspace":
		if text := []rune(m.filter); len(text) > 0 {
			m.filter = string(text[:len(text)-1])
		}
	default:
		m.filter += printable(msg.Text)
	}
	return nil
}

// printable leaves out what would move the cursor.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, text)
}

// pause keeps what is shown, or shows the latest again.
func (m *Model) pause() {
	m.paused = !m.paused
	if m.paused {
		m.shown.history = m.shown.history.clone()
	} else {
		m.shown = m.latest
	}
}

// choose goes on to another service.
func (m *Model) choose(by int) {
	services := m.services()
	if len(services) == 0 {
		return
	}
	at := min(max(m.chosenOf(services)+by, 0), len(services)-1)
	m.chosen = services[at].live.Name
}

// chosenOf returns which of the services is chosen: the first, if none is.
func (m *Model) chosenOf(services []service) int {
	for i, s := range services {
		if s.live.Name == m.chosen {
			return i
		}
	}
	return 0
}

// View draws the screen.
func (m *Model) View() tea.View {
	v := tea.NewView(m.draw())
	v.AltScreen = true
	v.WindowTitle = "narthex top"
	return v
}
