// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"narthex/internal/policy"
	"narthex/test/docs/blocks"
)

// checkYAML checks a block as its words say.
func checkYAML(t *testing.T, b *blocks.Block) error {
	text := b.Text()
	switch {
	case b.Has("kind"):
		return isYAML(text)
	case b.Has("fragment"):
		var err error
		if text, err = completed(text); err != nil {
			return err
		}
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	if err := accepted(file, b.Has("warns")); err != nil {
		return fmt.Errorf("%w; the policy is\n%s", err, text)
	}
	return nil
}

// accepted says what is wrong with a policy, or what is warned of.
func accepted(file string, warns bool) error {
	_, _, warnings, err := policy.Read(file)
	if err == nil && len(warnings) > 0 && !warns {
		err = fmt.Errorf("%s (warning)", warnings[0])
	}
	return err
}

// TestExamples checks the policies that are installed to start from.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(repository, "examples/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		if err := accepted(file, false); err != nil {
			t.Error(err)
		}
	}
}

// lacking is what a fragment of a policy is completed with.
var lacking = []struct{ key, text string }{
	{"version", "version: 1\n"},
	{"services", "services: [{name: web, listen: \"*:80\"}]\n"},
	{"classes", "classes: [{name: gold, priority: 1}, {name: silver, priority: 2}, {name: bronze, priority: 3}]\n"},
}

func completed(text string) (string, error) {
	var keys map[string]yaml.Node
	if err := yaml.Unmarshal([]byte(text), &keys); err != nil {
		return "", err
	}
	for _, l := range lacking {
		if _, there := keys[l.key]; !there {
			text = l.text + text
		}
	}
	return text, nil
}

func isYAML(text string) error {
	d := yaml.NewDecoder(strings.NewReader(text))
	for {
		var any yaml.Node
		if err := d.Decode(&any); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func checkJSON(b *blocks.Block) error {
	if !json.Valid([]byte(b.Text())) {
		return errors.New("this is no JSON")
	}
	return nil
}
