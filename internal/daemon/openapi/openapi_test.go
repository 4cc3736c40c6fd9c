// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"encoding/json"
	"testing"
)

// The description is as Endpoints and their types are, but for what comments say.
func TestDescriptionIsCurrent(t *testing.T) {
	plain := func(text []byte) string {
		var v any
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}
		schemas := v.(map[string]any)["components"].(map[string]any)["schemas"].(map[string]any)
		for _, s := range schemas {
			withoutWords(s)
		}
		out, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	text, err := Generate(nil)
	if err != nil {
		t.Fatal(err)
	}
	if plain(text) != plain(Description) {
		t.Error("openapi.json is not what Endpoints say: run go generate ./internal/daemon/openapi/genapi")
	}
	for _, e := range Endpoints {
		if AccessTo(e.Method, e.Path) != e.Access || e.What == "" || e.Access == AccessNone {
			t.Errorf("%s %s: %+v", e.Method, e.Path, e)
		}
	}
}

// withoutWords takes the descriptions out of a schema.
func withoutWords(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, text := v["description"].(string); text {
			delete(v, "description")
		}
		for _, below := range v {
			withoutWords(below)
		}
	case []any:
		for _, below := range v {
			withoutWords(below)
		}
	}
}
