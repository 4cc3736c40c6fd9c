// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"fmt"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Interrupt is the command that is Ctrl-C.
const Interrupt = "^C"

// Command is one command of a block and what the page shows that it prints.
type Command struct {
	Text  string
	Shown []string
	Line  int // of what is shown, counted in the block from 0
}

// Commands takes a block of console or sh apart.
func Commands(b *Block) ([]Command, error) {
	if b.Lang == "sh" {
		return statements(b.Text())
	}
	var list []Command
	for i, line := range b.Body {
		text, isCommand := strings.CutPrefix(line, "$ ")
		more, goesOn := strings.CutPrefix(line, "> ")
		switch last := len(list) - 1; {
		case line == Interrupt:
			list = append(list, Command{Text: Interrupt})
		case isCommand:
			list = append(list, Command{Text: text, Line: i + 1})
		case last < 0:
			return nil, fmt.Errorf("%q is shown before any command: commands begin with \"$ \"", line)
		case goesOn && len(list[last].Shown) == 0:
			list[last].Text += "\n" + more
			list[last].Line = i + 1
		default:
			list[last].Shown = append(list[last].Shown, line)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no command: commands begin with \"$ \"")
	}
	return list, nil
}

// statements are the commands of a script, as a shell reads them.
func statements(script string) (list []Command, err error) {
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
		list = append(list, Command{Text: script[s.Pos().Offset():end]})
	}
	return list, nil
}
