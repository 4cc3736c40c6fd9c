// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// interrupt is the command that is Ctrl-C.
const interrupt = "^C"

// command is one command of a block and what the page shows that it prints.
type command struct {
	text  string
	shown []string
	line  int // of what is shown, counted in the block from 0
}

// commands takes a block of console or sh apart.
func commands(b *block) ([]command, error) {
	if b.lang == "sh" {
		return statements(b.text())
	}
	var list []command
	for i, line := range b.body {
		text, isCommand := strings.CutPrefix(line, "$ ")
		more, goesOn := strings.CutPrefix(line, "> ")
		switch last := len(list) - 1; {
		case line == interrupt:
			list = append(list, command{text: interrupt})
		case isCommand:
			list = append(list, command{text: text, line: i + 1})
		case last < 0:
			return nil, fmt.Errorf("%q is shown before any command: commands begin with \"$ \"", line)
		case goesOn && len(list[last].shown) == 0:
			list[last].text += "\n" + more
			list[last].line = i + 1
		default:
			list[last].shown = append(list[last].shown, line)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no command: commands begin with \"$ \"")
	}
	return list, nil
}

// statements are the commands of a script, as a shell reads them.
func statements(script string) (list []command, err error) {
	file, err := syntax.NewParser().Parse(strings.NewReader(script), "")
	if err != nil {
		return nil, fmt.Errorf("read as a shell does: %w", err)
	}
	for _, s := range file.Stmts {
		end := s.End().Offset()
		for _, r := range s.Redirs {
			if r.Hdoc != nil { // ends with its delimiter, which is no part of the tree
				line := strings.IndexByte(script[r.Hdoc.End().Offset():], '\n')
				end = max(end, r.Hdoc.End().Offset()+uint(max(0, line)))
			}
		}
		list = append(list, command{text: script[s.Pos().Offset():end]})
	}
	return list, nil
}
