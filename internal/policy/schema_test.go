// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// compiledSchema is the schema as a validator reads it.
func compiledSchema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	text, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("policy.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("policy.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asEditorsSee turns a node into what the schema is applied to: keys are texts, and scalars
// are what YAML takes them for.
func asEditorsSee(n *yaml.Node) any {
	switch n.Kind {
	case yaml.DocumentNode:
		return asEditorsSee(n.Content[0])
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			m[n.Content[i].Value] = asEditorsSee(n.Content[i+1])
		}
		return m
	case yaml.SequenceNode:
		l := make([]any, len(n.Content))
		for i, e := range n.Content {
			l[i] = asEditorsSee(e)
		}
		return l
	}
	var v any
	switch n.Tag {
	case "!!int", "!!bool", "!!null", "!!float":
		if strings.Contains(strings.ToLower(n.Value), ".inf") || strings.Contains(strings.ToLower(n.Value), ".nan") || n.Decode(&v) != nil {
			return n.Value
		}
		return v
	}
	return n.Value
}

// judged is what the schema and the decoder say of a policy. readable is false of what
// is no YAML document.
func judged(s *jsonschema.Schema, file string, data []byte) (readable bool, schema, decoder error) {
	_, _, decoder = Parse(file, data)
	var ignored diagnostics
	root := document(&ignored, data)
	if root == nil {
		return false, nil, decoder
	}
	return true, s.Validate(asEditorsSee(root)), decoder
}

// beyondSchema are the policies of testdata that are refused for what several values have to do
// with each other, and for what no editor's reader of YAML lets through.
var beyondSchema = []string{
	"brackets-wrong", "dangling-without-classes", "dangling", "default-class-implicit-empty", "default-class-not-implicit", "duplicate-key",
	"listen-twice", "names-twice", "requests-stars", "service-protocols", "xdp-conflict-default-last", "xdp-conflicts",
}

// TestSchemaOfGoldens checks that the schema accepts all policies that the decoder accepts, and
// refuses those whose fault is one of form.
func TestSchemaOfGoldens(t *testing.T) {
	s := compiledSchema(t)
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	examples, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(examples) < 7 {
		t.Fatalf("%d examples, error %v", len(examples), err)
	}
	var beyond []string
	for _, file := range append(files, examples...) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		readable, schema, decoder := judged(s, file, data)
		switch {
		case decoder == nil && schema != nil:
			t.Errorf("%s: the schema refuses what is accepted: %v", file, schema)
		case readable && decoder != nil && schema == nil:
			beyond = append(beyond, strings.TrimSuffix(filepath.Base(file), ".yaml"))
		}
	}
	if !slices.Equal(beyond, beyondSchema) {
		t.Errorf("the schema accepts these of the policies that are refused:\n%q\nwant:\n%q", beyond, beyondSchema)
	}
}

// TestSchemaOfReference checks that the schema accepts the policies in the reference.
func TestSchemaOfReference(t *testing.T) {
	s := compiledSchema(t)
	text, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range yamlBlock.FindAllStringSubmatch(string(text), -1) {
		if _, schema, decoder := judged(s, "policy.yaml", []byte(b[1])); decoder == nil && schema != nil {
			t.Errorf("%v, in\n%s", schema, b[1])
		}
	}
}

// TestSchemaFile checks that the file in the repository is what Schema returns.
func TestSchemaFile(t *testing.T) {
	want, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/policy.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/policy.schema.json is not what the keys say: run go generate ./internal/policy/genschema")
	}
}

// forms are all forms, each with a policy around a mapping of it.
var forms = map[*form]string{
	&policyForm:      "{%s}",
	&serviceForm:     "{version: 1, services: [{%s}]}",
	&concurrencyForm: "{version: 1, services: [{concurrency: {%s}}]}",
	&queueForm:       "{version: 1, services: [{queue: {%s}}]}",
	&rejectForm:      "{version: 1, services: [{reject: {%s}}]}",
	&classForm:       "{version: 1, classes: [{%s}]}",
	&connectionForm:  "{version: 1, connections: [{%s}]}",
	&requestForm:     "{version: 1, requests: [{%s}]}",
	&perForm:         "{version: 1, requests: [{per: {%s}}]}",
	&fairForm:        "{version: 1, classes: [{fair: {%s}}]}",
}

// TestEveryKeyIsDecoded checks that no key of a form is accepted and ignored, and that each
// says what it means.
func TestEveryKeyIsDecoded(t *testing.T) {
	if n := strings.Count(fmt.Sprint(slices.Collect(maps.Values(forms))), "%s"); n != 10 {
		t.Fatalf("%d forms", n)
	}
	for f, around := range forms {
		for _, k := range f.keys {
			head, _, _ := strings.Cut(around, "%s")
			_, _, err := Parse("p.yaml", fmt.Appendf(nil, around, k.name+": [[[x]]]"))
			value := fmt.Sprintf("p.yaml:1:%d: ", len(head)+len(k.name)+3)
			inside := fmt.Sprintf("p.yaml:1:%d: ", len(head)+len(k.name)+4)
			if err == nil || !strings.Contains(err.Error(), value) && !strings.Contains(err.Error(), inside) {
				t.Errorf("%s: key %s is not decoded: %v", f.what, k.name, err)
			}
			if len(k.doc) < 10 || !strings.HasSuffix(k.doc, ".") {
				t.Errorf("%s: key %s says %q of itself", f.what, k.name, k.doc)
			}
		}
	}
}

// TestDefaultsAreDefaults checks that writing a default means the same as leaving it out.
func TestDefaultsAreDefaults(t *testing.T) {
	const service = `{version: 1, services: [{name: a, listen: "*:80"%s}], requests: [{name: r, rate: 10/s%s}], connections: [{name: c, rate: 10/s%s}]}`
	places := map[*form]func(string) string{
		&serviceForm:    func(s string) string { return fmt.Sprintf(service, ", "+s, "", "") },
		&queueForm:      func(s string) string { return fmt.Sprintf(service, ", queue: {"+s+"}", "", "") },
		&rejectForm:     func(s string) string { return fmt.Sprintf(service, ", reject: {"+s+"}", "", "") },
		&requestForm:    func(s string) string { return fmt.Sprintf(service, "", ", "+s, "") },
		&connectionForm: func(s string) string { return fmt.Sprintf(service, "", "", ", "+s) },
	}
	means := func(text string) string {
		p, _, err := Parse("p.yaml", []byte(text))
		if err != nil {
			t.Fatalf("%v, in %s", err, text)
		}
		tables, _, err := Compile(p)
		if err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		if err := Describe(&said, p, tables); err != nil {
			t.Fatal(err)
		}
		return said.String()
	}
	without, n := means(fmt.Sprintf(service, "", "", "")), 0
	for f, place := range places {
		for _, k := range f.keys {
			if k.def == nil {
				continue
			}
			n++
			if with := means(place(fmt.Sprintf("%s: %v", k.name, k.def))); with != without {
				t.Errorf("%s: %s: %v means\n%s\nand without it\n%s", f.what, k.name, k.def, with, without)
			}
		}
	}
	if n < 13 {
		t.Errorf("%d defaults, at least 13 are expected", n)
	}
}
