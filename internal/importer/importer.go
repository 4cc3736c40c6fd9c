// SPDX-License-Identifier: Apache-2.0

// Package importer makes policies of what people have: the limits in configurations of
// nginx, HAProxy, nftables and iptables. What it cannot carry over it lists.
package importer

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"narthex/internal/importer/draft"
	"narthex/internal/importer/haproxy"
	"narthex/internal/importer/nftables"
	"narthex/internal/importer/nginx"
	"narthex/internal/policy"
)

// Kind is whose configuration it is.
type Kind string

// The kinds.
const (
	Nginx    Kind = "nginx"
	HAProxy  Kind = "haproxy"
	NFTables Kind = "nftables"
	IPTables Kind = "iptables"
)

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{Nginx, HAProxy, NFTables, IPTables} }

// Options say how to import.
type Options struct {
	Kind   Kind        // empty: guessed from the text
	Files  draft.Files // that the configuration includes
	Listen []string    // where the server listens, if the configuration does not say it
	Env    func(string) (string, bool)
	Made   string // the command, for the policy's first line
}

// Result is a policy and what is not in it.
type Result struct {
	Kind   Kind
	Policy []byte       // compiles
	Left   []draft.Left // by place
}

// ErrUnknown says that it cannot be told whose configuration a text is.
var ErrUnknown = errors.New("this is not known as a configuration of nginx, HAProxy, nftables or iptables")

// Import makes a policy. The error is ErrUnknown, draft.ErrNoService, a *draft.SyntaxError,
// or about a listen of the options. With ErrNoService the result has what was left out.
func Import(name string, text []byte, o Options) (*Result, error) {
	if o.Kind == "" {
		if o.Kind = Guess(text); o.Kind == "" {
			return nil, ErrUnknown
		}
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	d, err := read(name, text, o)
	if err != nil {
		return nil, err
	}
	if len(d.Services) == 0 && len(o.Listen) > 0 {
		s := &draft.Service{Origin: draft.Origin{File: name, Line: 1}, Name: "server", Listen: o.Listen, Protocol: policy.TCP}
		d.Services = append(d.Services, s)
	}
	p, err := d.Policy(
		fmt.Sprintf("Made of %s by `%s`.", name, o.Made),
		"All services are in shadow mode: Narthex decides and counts, and changes nothing. When `narthex status` shows what you expect, take \"mode: shadow\" out.",
	)
	return &Result{o.Kind, p, d.Left}, err
}

func read(name string, text []byte, o Options) (*draft.Draft, error) {
	switch o.Kind {
	case Nginx:
		return nginx.Import(name, text, o.Files)
	case HAProxy:
		return haproxy.Import(name, text, o.Files, o.Env)
	case IPTables:
		return nftables.ImportIPTables(name, text)
	}
	if isJSON(text) {
		return nftables.ImportJSON(name, text)
	}
	return nftables.ImportNFT(name, text, o.Files)
}

func isJSON(text []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) }

var (
	iptablesLine = regexp.MustCompile(`(?m)^(\*(filter|mangle|raw|nat|security)\s*$|(\[\d+:\d+\] )?(ip6?tables )?-[AI] [A-Za-z])`)
	nftLine      = regexp.MustCompile(`(?m)^\s*((add |create )?(table|chain|rule)\s+(ip|ip6|inet|arp|bridge|netdev)\s|table\s+\S+\s*\{|flush ruleset)`)
	haproxyLine  = regexp.MustCompile(`(?m)^\s*(global|defaults|frontend|backend|listen)(\s+[^;{]*)?$`)
	nginxLine    = regexp.MustCompile(`(?m)^\s*((http|events|server|stream|upstream|location|map|geo)\b[^;\n]*\{\s*(#.*)?$|(limit_req|limit_conn|limit_req_zone|limit_conn_zone|include|worker_processes|user|listen|server_name)\s[^{\n]*;)`)
)

// Guess says whose configuration a text is, or nothing if it is none that is known.
func Guess(text []byte) Kind {
	switch {
	case isJSON(text) && bytes.Contains(text, []byte(`"nftables"`)):
		return NFTables
	case iptablesLine.Match(text):
		return IPTables
	case nftLine.Match(text):
		return NFTables
	case nginxLine.Match(text):
		return Nginx
	case haproxyLine.Match(text):
		return HAProxy
	}
	return ""
}

// ParseKind reads a kind's name.
func ParseKind(s string) (Kind, error) {
	if k := Kind(strings.ToLower(s)); slices.Contains(Kinds(), k) {
		return k, nil
	}
	return "", fmt.Errorf("%q is not known: write nginx, haproxy, nftables or iptables", s)
}
