// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"
)

// Load reads, parses and checks the policy file at path.
func Load(path string) (*Policy, []Warning, error) {
	data, err := ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	return Parse(path, data)
}

// ReadFile reads the policy file at path, not beyond what a policy may have. It waits for a pipe.
func ReadFile(path string) ([]byte, error) { return readWith(os.Open, path) }

// ReadRegular is ReadFile for who must not wait: what is no regular file is an error.
func ReadRegular(path string) ([]byte, error) { return readWith(openRegular, path) }

func readWith(open func(string) (*os.File, error), path string) ([]byte, error) {
	f, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("read policy %q: %w", path, PathCause(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read policy %q: %w", path, PathCause(err))
	}
	return data, nil
}

// openRegular opens a regular file, or a folder, for reading that says best what is wrong with it.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		err = errors.New("it is no regular file: write the policy to one, and name that")
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// PathCause drops operation and path from an error that will name them anyway.
func PathCause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// Read is Load followed by Compile: the policy, its tables and the warnings of both.
func Read(path string) (*Policy, *Tables, []Warning, error) {
	p, warnings, err := Load(path)
	if err != nil {
		return nil, nil, warnings, err
	}
	t, more, err := Compile(p)
	return p, t, MergeWarnings(warnings, more), err
}

// Parse reads and checks a policy. The file's name is used in errors only. The error is
// of type Errors.
func Parse(file string, data []byte) (*Policy, []Warning, error) {
	d := &decoder{diagnostics: diagnostics{file: file}}
	root := document(&d.diagnostics, data)
	if root == nil {
		return nil, nil, d.err()
	}
	raw := d.policy(root)
	sum := sha256.Sum256(append(data[:len(data):len(data)], d.pages...))
	p := &Policy{File: file, Hash: hex.EncodeToString(sum[:])}
	d.resolve(p, raw)
	if err := d.err(); err != nil {
		return nil, d.warned(), err
	}
	return p, d.warned(), nil
}

// reference is a name that stands for something defined elsewhere in the file.
type reference struct {
	pos  Pos
	name string
}

// raw is a policy whose names are not yet resolved: services and classes may come after
// the rules that name them.
type raw struct {
	services     []Service
	classes      []Class
	classList    Pos // of the key classes, zero if it is not there
	defaultClass reference
	connections  []rawConnection
	requests     []rawRequest
	answers      []NamedAnswer
	lists        []ListFile
	pools        []Pool
}

func (d *decoder) policy(root *yaml.Node) *raw {
	r := &raw{}
	seen := d.mapping(root, &policyForm, func(key string, n *yaml.Node) {
		switch key {
		case "version":
			d.version(n)
		case "services":
			r.services = each(d, n, key, MaxServices, d.service)
		case "classes":
			r.classes = each(d, n, key, MaxClasses, d.class)
		case "default_class":
			scalar(d, n, key, &r.defaultClass, ref(n))
		case "connections":
			r.connections = each(d, n, key, MaxRules, d.connection)
		case "requests":
			r.requests = each(d, n, key, MaxRules, d.request)
		case "lists":
			r.lists = d.lists(n)
		case "answers":
			r.answers = d.answers(n)
		case "pools":
			r.pools = each(d, n, key, MaxServices, d.pool)
		}
	})
	if seen == nil {
		return r
	}
	if seen["version"] == nil {
		d.errorAt(root, `"version" is missing; begin the file with "version: 1"`)
	}
	if seen["services"] == nil {
		d.errorAt(root, `"services" is missing; name the servers to protect: services: [{name: web, listen: "*:80"}]`)
	}
	if n := seen["classes"]; n != nil {
		r.classList = position(n)
	}
	return r
}

func (d *decoder) version(n *yaml.Node) {
	if s, ok := d.text(n, "version"); ok && s != "1" {
		d.errorAt(n, "version %s is not known; this Narthex reads version 1", quote(s))
	}
}

// each decodes the entries of a top-level list, refusing more than most. A list of
// services must not be empty; nothing else is of use then.
func each[T any](d *decoder, n *yaml.Node, what string, most int, decode func(*yaml.Node) T) []T {
	nodes := d.table(n, what)
	if what == "services" && len(nodes) == 0 && (n.Kind == yaml.SequenceNode || n.Tag == "!!null") {
		d.errorAt(n, `"services" is empty; name a server to protect: - {name: web, listen: "*:80"}`)
	}
	if len(nodes) > most {
		d.errorAt(nodes[most], "%d %s; there can be at most %d", len(nodes), what, most)
		nodes = nodes[:most]
	}
	out := make([]T, len(nodes))
	for i, e := range nodes {
		out[i] = decode(e)
	}
	return out
}

// ref makes a parser of names that keeps where the name is.
func ref(n *yaml.Node) func(string) (reference, error) {
	return func(s string) (reference, error) { return reference{position(n), s}, nil }
}

// refs decodes a list of names.
func (d *decoder) refs(n *yaml.Node, what string) []reference {
	var out []reference
	for _, e := range d.list(n, what) {
		var r reference
		scalar(d, e, what, &r, ref(e))
		if r.name != "" {
			out = append(out, r)
		}
	}
	return out
}

// differing returns the names of a list once each and reports those that are there twice.
func (d *decoder) differing(what string, refs []reference) []reference {
	once := onlyOnce[string](d, what, len(refs))
	return slices.DeleteFunc(refs, func(r reference) bool { return !once(r.name, r.pos) })
}
