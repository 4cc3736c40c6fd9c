// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// object is a JSON object whose keys are written in order of their names.
type object = map[string]any

// Generate returns the OpenAPI description of Endpoints. comments has what the source says of types (as
// api.Status) and of their fields (as api.Status.Started).
func Generate(comments map[string]string) ([]byte, error) {
	g := &generator{comments: comments, schemas: object{}}
	paths := object{}
	for i := range Endpoints {
		e := &Endpoints[i]
		methods, _ := paths[e.Path].(object)
		if methods == nil {
			methods = object{}
			paths[e.Path] = methods
		}
		methods[strings.ToLower(e.Method)] = g.operation(e)
	}
	text, err := json.MarshalIndent(object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Narthex control socket", "version": Version,
			"description": "JSON over HTTP on the Unix socket /run/narthex/INSTANCE.sock. Keys are only ever added; what takes one away is another version.",
			"license":     object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
		},
		"servers":    []any{object{"url": "http://narthex", "description": "The host is any; the connection is to the socket."}},
		"paths":      paths,
		"components": object{"schemas": g.schemas},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("describe the API: %w", err)
	}
	return append(text, '\n'), nil
}

// generator collects the schemas that others refer to.
type generator struct {
	comments map[string]string
	schemas  object
}

func (g *generator) operation(e *Endpoint) object {
	o := object{
		"summary": e.What, "x-narthex-access": e.Access.String(),
		"responses": object{"200": g.answer(e), "default": object{
			"description": "It could not be done; 422: as asked, it cannot be; 403: this user may not.",
			"content":     object{"application/json": object{"schema": object{"type": "object", "properties": object{"error": object{"type": "string"}, "usage": object{"type": "boolean"}}, "required": []string{"error"}}}},
		}},
	}
	var query []any
	for _, p := range e.Query {
		query = append(query, object{"name": p.Name, "in": "query", "description": p.What, "schema": object{"type": "string"}})
	}
	if query != nil {
		o["parameters"] = query
	}
	if e.Request != nil {
		o["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": g.schema(reflect.TypeOf(e.Request))}}}
	}
	return o
}

func (g *generator) answer(e *Endpoint) object {
	kind, what := "application/json", "Done."
	if e.Stream {
		kind, what = "application/x-ndjson", "One such value on each line, until the client leaves or the daemon ends."
	}
	schema := object{"type": "object"}
	if e.Answer != nil {
		schema = g.schema(reflect.TypeOf(e.Answer))
	}
	return object{"description": what, "content": object{kind: object{"schema": schema}}}
}

var timeType = reflect.TypeFor[time.Time]()

// schema is that of a type, by a reference if it is a struct with a name.
func (g *generator) schema(t reflect.Type) object {
	switch t.Kind() {
	case reflect.Pointer:
		return g.schema(t.Elem())
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Slice, reflect.Array:
		return object{"type": "array", "items": g.schema(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": g.schema(t.Elem())}
	case reflect.Struct:
		return g.structure(t)
	case reflect.Interface:
		return object{}
	}
	if t == reflect.TypeFor[time.Duration]() {
		return object{"type": "integer", "description": "Nanoseconds."}
	}
	return object{"type": "integer"}
}

func (g *generator) structure(t reflect.Type) object {
	if t == timeType {
		return object{"type": "string", "format": "date-time"}
	}
	if t.Implements(reflect.TypeFor[fmt.Stringer]()) && t.NumField() > 0 && !t.Field(0).IsExported() {
		return object{"type": "string"} // it is written as a text
	}
	if t.Name() == "" {
		return g.fields(t)
	}
	name := t.String()
	if g.schemas[name] == nil {
		g.schemas[name] = object{} // lest one that has itself within never ends
		g.schemas[name] = g.fields(t)
	}
	return object{"$ref": "#/components/schemas/" + name}
}

func (g *generator) fields(t reflect.Type) object {
	properties, required := object{}, []string{}
	g.addFields(t, properties, &required)
	o := object{"type": "object", "properties": properties}
	if len(required) > 0 {
		o["required"] = required
	}
	if text := g.comments[t.String()]; text != "" {
		o["description"] = text
	}
	return o
}

// addFields adds what is in a struct, and in structs that are embedded.
func (g *generator) addFields(t reflect.Type, properties object, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == "-" || !f.IsExported() {
			continue
		}
		if f.Anonymous && tag == "" {
			if f.Type.Kind() == reflect.Pointer { // all of it may be absent
				g.addFields(f.Type.Elem(), properties, &[]string{})
			} else {
				g.addFields(f.Type, properties, required)
			}
			continue
		}
		if tag == "" {
			tag = f.Name
		}
		schema := g.schema(f.Type)
		if text := g.comments[t.String()+"."+f.Name]; text != "" {
			schema["description"] = text // in 3.1 it may stand beside a reference
		}
		properties[tag] = schema
		if !strings.Contains(options, "omitempty") {
			*required = append(*required, tag)
		}
	}
}
