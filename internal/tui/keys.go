// SPDX-License-Identifier: Apache-2.0

package tui

import "charm.land/bubbles/v2/key"

// bindings are the keys. What they do is in their help, which the help screen and the last line
// show.
type bindings struct {
	quit, help, pause, sort, reverse, filter, up, down, clear, suspend key.Binding
}

var keys = bindings{
	up:      bind("↑ k", "choose the service above", "up", "k"),
	down:    bind("↓ j", "choose the service below", "down", "j"),
	sort:    bind("s", "sort by the next: policy, waiting, arrived, rejected, wait, name", "s"),
	reverse: bind("r", "reverse the order", "r"),
	filter:  bind("/", "show only services, classes, rules and sources with a text", "/"),
	clear:   bind("esc", "show all again; leave this help", "esc"),
	pause:   bind("p", "pause, and go on", "p", "space"),
	help:    bind("?", "this help", "?", "h"),
	quit:    bind("q", "quit", "q", "ctrl+c"),
	suspend: bind("ctrl+z", "leave it in the background; fg comes back", "ctrl+z"),
}

func bind(shown, does string, names ...string) key.Binding {
	return key.NewBinding(key.WithKeys(names...), key.WithHelp(shown, does))
}

// helped are the keys in the order of the help screen.
func (b bindings) helped() []key.Binding {
	return []key.Binding{b.up, b.down, b.sort, b.reverse, b.filter, b.clear, b.pause, b.help, b.suspend, b.quit}
}
