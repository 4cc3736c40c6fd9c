// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

// oddities are values at the edges of what is accepted.
var oddities = []string{
	"0", "1", "-0", "+1", "007", "1.0", "1e3", "0x100", "1_000", "true", "off", "no", "~", "2024-01-02", ".5s", "1.5s", "+5s", "-0s", "1h2m3s", "100us", "5",
	"10%", "100%", "101%", "1/s", "60000000/m", "10/h", "*", "*:80", "[*]:80", "[192.0.2.1]:81", "[::1]:82", "10.0.0.0/8", "0.0.0.0-255.255.255.255", "::", "1:2:3:4:5:6:7:8",
	"65535", "65536", "0-65535", "1000000", "1000001", "4294967279", "4294967280", "/", "/a b", "/ä", "A*", "get", "a.b", ".inf", "x-y", "Cookie", "drop", "pass", "overload", "demote",
	"default", "unlimited", "auto", "none", "eth0", "lo", "any", "ἀ", "\u212aelvin", " ", "\u00a0", "a\u00a0b", "\t",
}

// corpus is valid policies, which mutations begin from, and the texts of all, valid or not.
func corpus(t testing.TB) (roots []*yaml.Node, texts []string) {
	t.Helper()
	var files []string
	for _, pattern := range []string{"testdata/*.yaml", "../../examples/*.yaml"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	texts = oddities
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var ignored diagnostics
		root := document(&ignored, data)
		if root == nil || len(data) > 8<<10 {
			continue
		}
		if _, _, err := Parse(file, data); err == nil {
			roots = append(roots, root)
		}
		for _, n := range everyNode(root) {
			if n.Kind == yaml.ScalarNode {
				texts = append(texts, n.Value)
			}
		}
	}
	return roots, texts
}

// everyNode lists a node and all below it.
func everyNode(n *yaml.Node) []*yaml.Node {
	all := []*yaml.Node{n}
	for _, c := range n.Content {
		all = append(all, everyNode(c)...)
	}
	return all
}

// copied returns a copy of a node and all below it, without comments.
func copied(n *yaml.Node) *yaml.Node {
	c := &yaml.Node{Kind: n.Kind, Style: n.Style, Tag: n.Tag, Value: n.Value, Alias: n.Alias}
	for _, below := range n.Content {
		c.Content = append(c.Content, copied(below))
	}
	return c
}

// mutate changes one thing.
func mutate(t *rapid.T, root *yaml.Node, texts []string) {
	all := everyNode(root)
	n := rapid.SampledFrom(all).Draw(t, "node")
	switch rapid.IntRange(0, 4).Draw(t, "mutation") {
	case 0: // another text, plain or in quotes
		style := rapid.SampledFrom([]yaml.Style{0, 0, yaml.DoubleQuotedStyle}).Draw(t, "style")
		*n = yaml.Node{Kind: yaml.ScalarNode, Style: style, Value: rapid.SampledFrom(texts).Draw(t, "text")}
	case 1: // what stands elsewhere
		*n = *copied(rapid.SampledFrom(all).Draw(t, "other"))
	case 2: // less
		if len(n.Content) >= 2 {
			at := rapid.IntRange(0, len(n.Content)/2-1).Draw(t, "at") * 2
			n.Content = append(n.Content[:at:at], n.Content[at+2:]...)
		}
	case 3: // a list of one, or an element of a list
		if n.Kind == yaml.SequenceNode && len(n.Content) > 0 {
			*n = *n.Content[0]
		} else {
			*n = yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{copied(n)}}
		}
	case 4: // a further key
		if n.Kind == yaml.MappingNode {
			key := &yaml.Node{Kind: yaml.ScalarNode, Value: rapid.SampledFrom(someKeys).Draw(t, "key")}
			n.Content = append(n.Content, key, &yaml.Node{Kind: yaml.ScalarNode, Value: rapid.SampledFrom(texts).Draw(t, "value")})
		}
	}
}

// someKeys are all keys that a policy may have anywhere.
var someKeys = func() (names []string) {
	for f := range forms {
		names = append(names, f.names()...)
	}
	slices.Sort(names) // the same draws are the same policy in each run
	return names
}()

// TestSchemaRefusesNothingValid checks, of policies with some changes, that the decoder refuses
// whatever the schema refuses.
func TestSchemaRefusesNothingValid(t *testing.T) {
	s := compiledSchema(t)
	roots, texts := corpus(t)
	if len(roots) < 40 {
		t.Fatalf("%d policies to change, at least 40 are expected", len(roots))
	}
	rapid.Check(t, func(t *rapid.T) {
		for range 10 {
			root := copied(rapid.SampledFrom(roots).Draw(t, "policy"))
			for range rapid.IntRange(1, 3).Draw(t, "changes") {
				mutate(t, root, texts)
			}
			data, err := yaml.Marshal(root)
			if err != nil {
				continue // what cannot be written cannot be read
			}
			if readable, schema, decoder := judged(s, "policy.yaml", data); readable && decoder == nil && schema != nil {
				t.Fatalf("the schema refuses what is accepted: %v, in\n%s", schema, data)
			}
		}
	})
}
