// SPDX-License-Identifier: Apache-2.0

package nginx

import (
	"slices"
	"strings"

	"narthex/internal/importer/draft"
)

// virtual is a server for some of its names. nginx asks exact names first, then those that
// begin with a star, the longest first, those that end with one, regular expressions in
// order, and last the default server.
type virtual struct {
	*server
	hosts []string // patterns; empty: all others
	kind  nameKind
	width int // of the names, for those with a star
}

type nameKind uint8

const (
	nameExact nameKind = iota
	nameLeading
	nameTrailing
	nameExpression
	nameOther // the default server
)

// virtuals returns the servers that speak HTTP without TLS, in the order of Narthex's rules.
func (c *config) virtuals() []virtual {
	var out []virtual
	defaults := c.defaults()
	for _, s := range c.servers {
		open, other := false, false
		for _, l := range s.listens {
			open = open || !l.tls
			other = other || !l.tls && defaults[l.addr] == s
		}
		if !open {
			continue
		}
		names := c.names(s)
		if other {
			names = append(names, virtual{server: s, kind: nameOther})
		}
		out = append(out, names...)
	}
	out = simplified(out)
	slices.SortStableFunc(out, func(a, b virtual) int {
		if a.kind != b.kind {
			return int(a.kind) - int(b.kind)
		}
		return b.width - a.width
	})
	return out
}

// defaults returns the default server of each address: the one that says so, else the first.
func (c *config) defaults() map[string]*server {
	out := map[string]*server{}
	for _, said := range []bool{true, false} {
		for _, s := range c.servers {
			for _, l := range s.listens {
				if out[l.addr] == nil && (l.other || !said) {
					out[l.addr] = s
				}
			}
		}
	}
	return out
}

// simplified puts names of a server together that no other server's names come between, and
// drops those of the default server, if there is one, that no other server's names touch.
func simplified(all []virtual) []virtual {
	apart := func(s *server) bool {
		for _, a := range all {
			for _, b := range all {
				if a.server == s && b.server != s && a.kind != nameOther && b.kind != nameOther && overlap(a.hosts, b.hosts) {
					return false
				}
			}
		}
		return true
	}
	isDefault := map[*server]bool{}
	for _, v := range all {
		if v.kind == nameOther {
			isDefault[v.server] = true
		}
	}
	var out []virtual
	for _, v := range all {
		if v.kind == nameOther || !apart(v.server) {
			out = append(out, v)
			continue
		}
		if len(isDefault) == 1 && isDefault[v.server] {
			continue
		}
		i := slices.IndexFunc(out, func(o virtual) bool { return o.server == v.server && o.kind != nameOther })
		if i < 0 {
			out = append(out, v)
		} else {
			out[i].hosts = append(slices.Clone(out[i].hosts), v.hosts...)
			out[i].kind = nameExact
		}
	}
	return out
}

// names sorts a server's names by kind.
func (c *config) names(s *server) []virtual {
	var out []virtual
	add := func(kind nameKind, width int, hosts ...string) {
		i := slices.IndexFunc(out, func(v virtual) bool { return v.kind == kind && v.width == width })
		if i < 0 {
			out = append(out, virtual{server: s, kind: kind, width: width})
			i = len(out) - 1
		}
		for _, h := range hosts {
			if !slices.Contains(out[i].hosts, h) {
				out[i].hosts = append(out[i].hosts, h)
			}
		}
	}
	for _, name := range s.names {
		switch lower := strings.ToLower(name); {
		case name == "" || name == "_":
		case strings.HasPrefix(name, "~"):
			globs, err := draft.Globs(name[1:], true, true)
			if err != nil {
				if s.limited() {
					c.draft.Leave(s.Origin, "server_name "+name, err.Error(), "write the hosts that you mean")
				}
				continue
			}
			add(nameExpression, 0, globs...)
		case strings.Contains(name, "$"):
			c.draft.Leave(s.Origin, "server_name "+name, "the name of this host is not known here", "write it in the rules' host")
		case strings.HasPrefix(name, "."):
			add(nameExact, 0, lower[1:])
			add(nameLeading, len(name), "*"+lower)
		case strings.HasPrefix(name, "*"):
			add(nameLeading, len(name), lower)
		case strings.HasSuffix(name, ".*"):
			add(nameTrailing, len(name), lower)
		case strings.Contains(name, "*"):
			c.draft.Leave(s.Origin, "server_name "+name, "nginx takes a star at an end only", "")
		default:
			add(nameExact, 0, lower)
		}
	}
	return out
}

// limited reports whether any request to the server is.
func (s *server) limited() bool {
	return slices.ContainsFunc(s.entries, func(e entry) bool { return len(e.limits()) > 0 })
}

// overlap reports whether two lists of patterns may match the same text. It errs on the
// side of yes. An empty list matches all.
func overlap(a, b []string) bool {
	if len(a) == 0 || len(b) == 0 {
		return true
	}
	for _, p := range a {
		for _, q := range b {
			if together(p, q) {
				return true
			}
		}
	}
	return false
}

// together reports whether what two patterns begin and end with can be of one text.
func together(p, q string) bool {
	pBegin, pRest, pStar := strings.Cut(p, "*")
	qBegin, qRest, qStar := strings.Cut(q, "*")
	switch {
	case !pStar && !qStar:
		return p == q
	case !pStar && len(p) < len(qBegin), !qStar && len(q) < len(pBegin):
		return false
	case !strings.HasPrefix(pBegin, qBegin) && !strings.HasPrefix(qBegin, pBegin):
		return false
	}
	pEnd, qEnd := last(p, pRest, pStar), last(q, qRest, qStar)
	return strings.HasSuffix(pEnd, qEnd) || strings.HasSuffix(qEnd, pEnd)
}

// last returns what a pattern ends with.
func last(p, rest string, star bool) string {
	if !star {
		return p
	}
	return rest[strings.LastIndexByte(rest, '*')+1:]
}
