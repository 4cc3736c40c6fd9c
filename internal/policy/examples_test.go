// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestExamples checks that each example can be run as it is.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) < 7 {
		t.Fatalf("%d examples, error %v; there are at least 7", len(files), err)
	}
	for _, file := range files {
		_, _, warnings, err := Read(file)
		if err != nil {
			t.Errorf("read: %v", err)
			continue
		}
		for _, w := range warnings {
			t.Errorf("warning: %s", w)
		}
	}
}

// yamlBlock is a whole policy in a page, not a part of one.
var yamlBlock = regexp.MustCompile("(?ms)^```yaml(?: file=\\S+| warns)*\n(.*?)^```")

// TestReference checks that each policy in the reference is valid, and that it names
// every key and every default.
func TestReference(t *testing.T) {
	text, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := yamlBlock.FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 4 {
		t.Fatalf("%d policies in the reference, at least 4 are expected", len(blocks))
	}
	for _, b := range blocks {
		p, _, err := Parse("docs/policy.md", []byte(b[1]))
		if err == nil {
			_, _, err = Compile(p)
		}
		if err != nil {
			t.Errorf("%v, in\n%s", err, b[1])
		}
	}
	for _, key := range referenceKeys(t) {
		if !strings.Contains(string(text), "| `"+key+"` |") {
			t.Errorf("the reference has no row for %q", key)
		}
	}
}

// referenceKeys returns every key that a policy may have, from what the decoder says when
// it meets an unknown one.
func referenceKeys(t *testing.T) []string {
	t.Helper()
	const unknown = `
version: 1
xxxxxxxx: 1
services: [{xxxxxxxx: 1, queue: {xxxxxxxx: 1}, reject: {xxxxxxxx: 1}}]
classes: [{xxxxxxxx: 1}]
connections: [{xxxxxxxx: 1, per: {xxxxxxxx: 1}}]
requests: [{xxxxxxxx: 1}]
`
	_, _, err := Parse("keys.yaml", []byte(unknown))
	if err == nil {
		t.Fatal("unknown keys are accepted")
	}
	var keys []string
	lists := regexp.MustCompile(`the keys are (.*)`).FindAllStringSubmatch(err.Error(), -1)
	if len(lists) != 8 {
		t.Fatalf("%d lists of keys in %v, want 8", len(lists), err)
	}
	for _, l := range lists {
		keys = append(keys, strings.Split(l[1], ", ")...)
	}
	return keys
}
