// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// metaSchema is the version of JSON Schema that the YAML support of editors understands.
const metaSchema = "http://json-schema.org/draft-07/schema#"

// schema is a JSON Schema, as far as it is needed here.
type schema struct {
	Meta          string              `json:"$schema,omitempty"`
	Title         string              `json:"title,omitempty"`
	Description   string              `json:"description,omitempty"`
	Type          any                 `json:"type,omitempty"` // a word or several
	Enum          []any               `json:"enum,omitempty"`
	Pattern       string              `json:"pattern,omitempty"`             // of strings alone, as are lengths; without what Go and JavaScript read differently
	PatternError  string              `json:"patternErrorMessage,omitempty"` // what editors say in place of the pattern
	MaxLength     int                 `json:"maxLength,omitempty"`
	Minimum       *int                `json:"minimum,omitempty"` // of numbers alone
	Maximum       *int                `json:"maximum,omitempty"`
	AnyOf         []*schema           `json:"anyOf,omitempty"`
	Not           *schema             `json:"not,omitempty"`
	Items         *schema             `json:"items,omitempty"`
	MinItems      int                 `json:"minItems,omitempty"`
	MaxItems      int                 `json:"maxItems,omitempty"`
	UniqueItems   bool                `json:"uniqueItems,omitempty"`
	Required      []string            `json:"required,omitempty"`
	Properties    properties          `json:"properties,omitempty"`
	PropertyNames *schema             `json:"propertyNames,omitempty"`
	MinProperties int                 `json:"minProperties,omitempty"`
	Additional    any                 `json:"additionalProperties,omitempty"` // false or a schema
	Dependencies  map[string][]string `json:"dependencies,omitempty"`
	Default       any                 `json:"default,omitempty"`
	Examples      []any               `json:"examples,omitempty"`
}

// properties are the keys of a mapping, in the order of the reference.
type properties []schemaKey

type schemaKey struct {
	name   string
	schema *schema
}

// MarshalJSON writes them as a JSON object in their order.
func (p properties) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, one := range p {
		if i > 0 {
			b.WriteByte(',')
		}
		text, err := marshal(one.schema)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%q:%s", one.name, text)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// marshal is json.Marshal, but that it leaves & and < as they are.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false)
	err := out.Encode(v)
	return b.Bytes(), err
}

// Schema returns the JSON Schema of a policy, for editors. It refuses nothing that Parse
// accepts, and knows nothing of what depends on several values.
func Schema() ([]byte, error) {
	root := object(&policyForm)
	root.Meta, root.Title = metaSchema, "Narthex policy"
	text, err := marshal(root)
	if err != nil {
		return nil, fmt.Errorf("write the schema of a policy: %w", err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return nil, fmt.Errorf("write the schema of a policy: %w", err)
	}
	return b.Bytes(), nil
}

// object is the schema of a form.
func object(f *form) *schema {
	s := &schema{Description: f.doc, Type: "object", Additional: false, Dependencies: f.beside}
	if f.filled {
		s.MinProperties = 1
	}
	for i := range f.keys {
		k := &f.keys[i]
		if k.required {
			s.Required = append(s.Required, k.name)
		}
		s.Properties = append(s.Properties, schemaKey{k.name, k.schema()})
	}
	for _, name := range f.oneOf {
		s.AnyOf = append(s.AnyOf, &schema{Required: []string{name}})
	}
	return s
}

// schema is that of the key's value, with what an editor shows of it.
func (k *key) schema() *schema {
	s := *k.value
	s.Description, s.Default, s.Examples = k.doc, k.def, k.examples
	switch {
	case k.required:
		s.Description += " Required."
	case k.defText != "":
		s.Description += fmt.Sprintf(" Default: %s.", k.defText)
	case k.def != nil:
		s.Description += fmt.Sprintf(" Default: %v.", k.def)
	}
	s.Description = strings.TrimSpace(s.Description)
	return &s
}
