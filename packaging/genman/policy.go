// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// schema is as much of the policy's JSON Schema as a manual page says.
type schema struct {
	Description string            `json:"description"`
	Properties  properties        `json:"properties"`
	Items       *schema           `json:"items"`
	Additional  json.RawMessage   `json:"additionalProperties"`
	AnyOf       []json.RawMessage `json:"anyOf"`
}

// properties keeps the order of the schema, which is that of the documentation.
type properties []property

type property struct {
	name string
	schema
}

// UnmarshalJSON reads an object without losing its order.
func (p *properties) UnmarshalJSON(text []byte) error {
	keys := json.NewDecoder(strings.NewReader(string(text)))
	if _, err := keys.Token(); err != nil {
		return err
	}
	for keys.More() {
		name, err := keys.Token()
		if err != nil {
			return err
		}
		one := property{name: name.(string)}
		if err := keys.Decode(&one.schema); err != nil {
			return fmt.Errorf("%v: %w", name, err)
		}
		*p = append(*p, one)
	}
	return nil
}

// policyPage is the manual page of the policy file, in Markdown, made of its schema.
func policyPage(text []byte) (string, error) {
	var s schema
	if err := json.Unmarshal(text, &s); err != nil {
		return "", fmt.Errorf("read the schema of policies: %w", err)
	}
	var b strings.Builder
	b.WriteString("# NAME\n\nnarthex-policy - the policy file of narthex(8)\n\n# DESCRIPTION\n\n" +
		"A policy is a file in YAML with the keys below. `narthex check FILE` says what one means, or what is wrong with it, with its line; " +
		"`narthex init` writes one for this machine; `narthex reload` puts it in force. All of it with examples is in /usr/share/doc/narthex/docs/policy.md.\n\n")
	for _, p := range s.Properties {
		fmt.Fprintf(&b, "# %s\n\n%s\n\n", strings.ToUpper(p.name), p.Description)
		p.list(&b, "")
	}
	b.WriteString("# EXAMPLE\n\n```\nversion: 1\nservices: [{name: web, listen: \"*:80\"}]\nclasses: [{name: gold, priority: 1}, {name: bronze, priority: 2, reserve: 10%}]\n" +
		"requests:\n  - {name: search, path: \"/search*\", rate: 10/s, per: source}\n  - {name: members, cookie: {session: \"*\"}, class: gold}\n```\n\n" +
		"# SEE ALSO\n\nnarthex(8), narthex-check(1), narthex-init(1)\n")
	return b.String(), nil
}

// list writes the keys of what a schema describes, those of the parts below theirs.
func (s *schema) list(b *strings.Builder, before string) {
	for _, p := range s.keys() {
		name := before + p.name
		fmt.Fprintf(b, "**%s**\n:   %s\n\n", name, strings.ReplaceAll(p.Description, "\n", " "))
		p.list(b, name+".")
	}
}

// keys are those of an object, of what a list holds, or of what has any name.
func (s *schema) keys() properties {
	all := slices.Clone(s.Properties)
	if s.Items != nil {
		all = append(all, s.Items.keys()...)
	}
	var named schema
	if len(s.Additional) > 0 && s.Additional[0] == '{' && json.Unmarshal(s.Additional, &named) == nil {
		all = append(all, named.keys()...)
	}
	for _, text := range s.AnyOf {
		var one schema
		if json.Unmarshal(text, &one) == nil {
			all = append(all, one.keys()...)
		}
	}
	return all
}
