// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"strings"
)

// set reads a set's elements.
func (p *parser) set(key, name string) error {
	return p.block(func() error {
		if p.word() == "elements" && p.is("=") {
			p.at++
			p.elements(key + " " + name)
			return nil
		}
		p.rest()
		return nil
	})
}

func (p *parser) elements(key string) {
	p.sets[key] = append(p.sets[key], p.elementsOf(p.rest())...)
}

// elementsOf returns the elements of a set; what is said of them is not of interest.
func (p *parser) elementsOf(list []token) []string {
	out := []string{}
	if p.following++; p.following > maxJumps {
		p.following--
		return out
	}
	defer func() { p.following-- }()
	begins := true
	for i := 0; i < len(list); i++ {
		t := list[i]
		switch {
		case t.sign && t.text == ";": // nft lists long sets on several lines
		case t.sign:
			begins = t.text == "{" || t.text == ","
		case p.expanded > maxTokens:
			return out
		case begins && strings.HasPrefix(t.text, "$"):
			out = append(out, p.elementsOf(p.defined[t.text[1:]])...)
			begins = false
		case begins:
			out = append(out, t.text)
			p.expanded++
			begins = false
		}
	}
	return out
}
