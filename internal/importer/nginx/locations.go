// SPDX-License-Identifier: Apache-2.0

package nginx

import (
	"fmt"
	"slices"
	"strings"

	"narthex/internal/importer/draft"
)

// entry says what holds for some paths. The first one that matches a request decides.
type entry struct {
	draft.Origin
	text  string
	paths []string // patterns; empty: all
	level
}

// place is a location as nginx chooses among them.
type place struct {
	entry
	prefix string // empty for regular expressions
	exact  bool
	first  bool    // ^~: no regular expression is asked
	before []place // expressions within it, which are asked all the same
}

// locations returns what a server's locations say, in the order in which Narthex is to ask.
// nginx takes an exact match, else the longest prefix if it has ^~, else the first regular
// expression that matches, else the longest prefix.
func (c *config) locations(at draft.Origin, block []*directive, outer level) []entry {
	var prefixes, expressions []place
	c.collect(block, outer, "", &prefixes, &expressions)
	slices.SortStableFunc(prefixes, func(a, b place) int {
		switch {
		case a.exact != b.exact && a.exact:
			return -1
		case a.exact != b.exact:
			return 1
		}
		return len(b.prefix) - len(a.prefix)
	})
	var early, late []place
	for _, p := range prefixes {
		// A longer prefix without ^~ below one with it is asked before it.
		below := slices.ContainsFunc(prefixes, func(q place) bool {
			return q.first && !q.exact && strings.HasPrefix(p.prefix, q.prefix)
		})
		if len(expressions) > 0 && below && !p.first && !p.exact {
			c.draft.Leave(p.Origin, p.text, "nginx asks regular expressions before it, but not before the location with ^~ around it", "Narthex asks it first; look at the order of the rules")
		}
		if p.exact || p.first || below {
			early = append(early, p)
		} else {
			late = append(late, p)
		}
	}
	var out []entry
	for _, p := range slices.Concat(early, expressions, late) {
		for _, inner := range p.before {
			out = append(out, inner.entry)
		}
		out = append(out, p.entry)
		if p.paths == nil {
			return out // nothing is left for what follows
		}
	}
	return append(out, entry{Origin: at, text: "server", level: outer})
}

// collect reads locations and those within them.
func (c *config) collect(block []*directive, outer level, within string, prefixes, expressions *[]place) {
	for _, d := range block {
		if d.name != "location" || !d.opens || len(d.args) == 0 {
			continue
		}
		p := place{entry: entry{Origin: d.Origin, text: d.text(), level: c.level(d.block, outer)}}
		operator, text := modifier(d.args)
		var inner, innerExpr []place
		if operator == "~" || operator == "~*" {
			c.expression(&p, operator, text, within, expressions)
			c.withinExpression(d.block)
			continue
		}
		if strings.HasPrefix(text, "@") {
			continue // for redirects within nginx
		}
		p.prefix, p.exact, p.first = text, operator == "=", operator == "^~"
		c.collect(d.block, p.level, text, &inner, &innerExpr)
		*prefixes = append(*prefixes, inner...)
		if p.first {
			p.before = innerExpr
			c.besideExpressions(inner, innerExpr)
		} else { // those within a location are asked before those around it
			*expressions = append(innerExpr, *expressions...)
		}
		if glob, ok := c.prefix(p); ok {
			p.paths = glob
			*prefixes = append(*prefixes, p)
		}
	}
}

// withinExpression lists the limits of locations within one by a regular expression.
func (c *config) withinExpression(block []*directive) {
	for _, d := range block {
		if d.name == "location" && limited(d.block) {
			c.draft.Leave(d.Origin, d.text(), "its limits are not carried over: it is within a location by a regular expression", "write rules with the patterns that you mean")
		}
	}
}

// besideExpressions lists the locations within one with ^~ that nginx asks after the
// expressions beside them.
func (c *config) besideExpressions(inner, expressions []place) {
	for _, p := range inner {
		if len(expressions) > 0 && !p.exact && !p.first {
			c.draft.Leave(p.Origin, p.text, "nginx asks the regular expressions beside it before it", "Narthex asks it first; look at the order of the rules")
		}
	}
}

// modifier parts a location's arguments: nginx takes =/x for = /x.
func modifier(args []string) (operator, text string) {
	if len(args) > 1 {
		return args[0], args[1]
	}
	for _, m := range []string{"=", "^~", "~*", "~"} {
		if rest, ok := strings.CutPrefix(args[0], m); ok {
			return m, rest
		}
	}
	return "", args[0]
}

// prefix makes a pattern of a location's text.
func (c *config) prefix(p place) ([]string, bool) {
	switch {
	case strings.Contains(p.prefix, "*"):
		c.draft.Leave(p.Origin, p.text, "a star stands for any text in Narthex", "")
	case !strings.HasPrefix(p.prefix, "/"):
		c.draft.Leave(p.Origin, p.text, "a path begins with /", "")
	case p.exact:
		return []string{p.prefix}, true
	case p.prefix == "/":
		return nil, true
	default:
		return []string{p.prefix + "*"}, true
	}
	return nil, false
}

func (c *config) expression(p *place, operator, text, within string, expressions *[]place) {
	globs, err := draft.Globs(text, operator == "~*", false)
	for i, g := range globs {
		// Within a location it is asked for paths that begin as the location says.
		rest, open := strings.CutPrefix(g, "*")
		switch {
		case within == "" || within == "/" || strings.HasPrefix(g, within):
		case open && !strings.Contains(within, "*"):
			globs[i] = within + "*" + rest
		default:
			err = fmt.Errorf("it is within location %s", within)
		}
	}
	if err != nil {
		why := "its limits are not carried over: " + err.Error()
		if len(p.limits()) == 0 {
			why = "that it has no limit is not carried over: " + err.Error()
		}
		c.draft.Leave(p.Origin, p.text, why, "write rules with the patterns that you mean; rules that follow decide for these paths now")
		return
	}
	p.paths = globs
	if slices.Contains(globs, "*") {
		p.paths = nil
	}
	*expressions = append(*expressions, *p)
}
