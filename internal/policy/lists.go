// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ListFile is a file of addresses that rules name.
type ListFile struct {
	Pos  Pos
	Name string
	File string // as in the policy
	Max  int    // entries
}

// Bounds of lists.
const (
	MaxLists       = 32        // in a policy; the data path has a bit for each
	MaxListEntries = 5_000_000 // of all lists together
	defaultMax     = 1_000_000 // entries of one that names no other number
)

// ListPath returns where the file of a list is: a relative one is beside the policy.
func (p *Policy) ListPath(list int) string {
	file := p.Lists[list].File
	if filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(filepath.Dir(p.File), file)
}

// lists decodes the lists by name.
func (d *decoder) lists(n *yaml.Node) []ListFile {
	if !d.plain(n) || n.Tag == "!!null" {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		d.errorAt(n, `"lists" is a mapping of names to files, as {crawlers: {file: crawlers.txt}}, not %s`, kindOf(n))
		return nil
	}
	var out []ListFile
	seen := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if !d.key(key, "lists", seen) {
			continue
		}
		seen[key.Value] = key
		l := ListFile{Pos: position(key), Max: defaultMax}
		if !scalar(d, key, "a list's name", &l.Name, parseName) {
			continue
		}
		d.listFile(n.Content[i+1], &l)
		if len(out) == MaxLists {
			d.errorAt(key, "there can be at most %d lists; put several files into one", MaxLists)
			break
		}
		out = append(out, l)
	}
	return out
}

func (d *decoder) listFile(n *yaml.Node, l *ListFile) {
	seen := d.mapping(n, &listForm, func(key string, n *yaml.Node) {
		switch key {
		case "file":
			scalar(d, n, key, &l.File, parseFile)
		case "max":
			scalar(d, n, key, &l.Max, parseInt(1, MaxListEntries))
		}
	})
	if seen != nil {
		d.required(n, "a list", seen, "file", "the path of a file, as {file: crawlers.txt}")
	}
}

// parseFile reads the path of a file.
func parseFile(s string) (string, error) {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", fmt.Errorf("%s has control characters in it; write the path of a file", quote(s))
	}
	return s, nil
}

// from decodes addresses and lists.
func (d *decoder) from(n *yaml.Node) (ranges []Range, lists []reference) {
	var nodes []*yaml.Node
	for _, e := range d.list(n, "from") {
		if e.Kind != yaml.ScalarNode || !strings.HasPrefix(e.Value, "@") {
			nodes = append(nodes, e)
			continue
		}
		r := reference{position(e), e.Value}
		if d.plain(e) {
			lists = append(lists, r)
		}
	}
	once := onlyOnce[Range](d, "from", len(nodes))
	for _, e := range nodes {
		var r Range
		if scalar(d, e, "from", &r, parseRange) && once(r, position(e)) {
			ranges = append(ranges, r)
		}
	}
	return ranges, d.differing("from", lists)
}

// resolveLists finds the lists of rules, and warns of those that no rule names.
func (d *decoder) resolveLists(p *Policy, r *raw) {
	p.Lists = r.lists
	index := map[string]int{}
	for i := range p.Lists {
		index["@"+p.Lists[i].Name] = i
	}
	used := map[int]bool{}
	find := func(refs []reference) (out []int) {
		for _, l := range refs {
			if i := d.lookup(l, "list", "from", index); i >= 0 {
				out, used[i] = append(out, i), true
			}
		}
		slices.Sort(out)
		return out
	}
	for i := range p.Connections {
		p.Connections[i].FromLists = find(r.connections[i].fromLists)
	}
	for i := range p.Requests {
		p.Requests[i].FromLists = find(r.requests[i].fromLists)
	}
	for i := range p.Lists {
		if !used[i] {
			d.warnf(p.Lists[i].Pos, `list %q is read for nothing: no rule has "@%s" in its "from"`, p.Lists[i].Name, p.Lists[i].Name)
		}
	}
}

// FromNames returns whom a rule is for in the words of a policy.
func (p *Policy) fromNames(from []Range, lists []int) []string {
	var out []string
	for _, i := range lists {
		out = append(out, "@"+p.Lists[i].Name)
	}
	return append(out, words(from)...)
}

// inLists reports whether one of the lists has a client that is in those of the bits.
func inLists(lists []int, bits uint64) bool {
	return slices.ContainsFunc(lists, func(i int) bool { return bits>>i&1 != 0 })
}

// listWord is the word of the key with the bits of the lists that the source is in.
const listWord = 3

// listed returns the sub-trie that leads to an outcome if the source is in one of the lists.
func (f *forest) listed(lists []int, outcome Entry) (Entry, error) {
	all := none
	for _, list := range lists {
		n := Node{Word: listWord, Shift: uint8(list / 4 * 4)}
		for v := range n.Child {
			if v>>(list%4)&1 != 0 {
				n.Child[v] = outcome
			}
		}
		var err error
		if all, err = f.firstOf(all, f.add(&n)); err != nil {
			return none, err
		}
	}
	return all, nil
}

// turn says when a sub-trie tests what it does: ports from the highest bits on, then lists from the first on. A
// lower number comes later; 0 tests nothing.
func turn(n *Node) int {
	if n.Word == listWord {
		return 16 - int(n.Shift)/4
	}
	return 17 + int(n.Shift)/4
}

// turned returns a node that tests what comes at a turn.
func turned(turn int) Node {
	if turn <= 16 {
		return Node{Word: listWord, Shift: uint8(4 * (16 - turn))}
	}
	return Node{Word: portWord, Shift: uint8(4 * (turn - 17))}
}
