// SPDX-License-Identifier: Apache-2.0

package nginx

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"narthex/internal/importer/draft"
)

// key is what a zone counts by, as far as Narthex can.
type key struct {
	source    bool     // by the client's address; else all together, or:
	per       string   // by what the request says, as a policy has it
	perServer bool     // by the server that decides, too
	never     bool     // always empty: nothing is limited
	exempt    []ranged // addresses with an empty key, the narrowest first
	on        *condition
}

// ranged is a range of addresses and what geo says of it.
type ranged struct {
	from  string
	width int // bits that are fixed
	value string
}

// condition limits what is counted to requests that match, or to those that do not.
type condition struct {
	match  draft.Rule // one of from, host, path, method, header, cookie, query
	unless bool
}

// variable is what a map or geo block says of a variable.
type variable struct {
	draft.Origin
	source   string // what it is made from; of geo: $remote_addr
	geo      []ranged
	texts    map[string]string // in lower case: a map ignores case
	order    []string
	patterns []pattern
	fallback string
	trouble  error
}

type pattern struct {
	expr     string
	caseless bool
	value    string
}

var (
	lone    = regexp.MustCompile(`^\$(?:\{([A-Za-z0-9_]+)\}|([A-Za-z0-9_]+))$`)
	clients = []string{"binary_remote_addr", "remote_addr"}
)

var errTangled = errors.New("its maps are made from one another in more ways than Narthex follows")

// maxFollowed is how many maps are followed from one to the next.
const maxFollowed = 8

func (k key) same(other key) bool {
	return k.never == other.never && k.source == other.source && k.per == other.per && k.perServer == other.perServer && slices.Equal(k.exempt, other.exempt)
}

// variableOf returns the name of the one variable that a text is.
func variableOf(text string) (string, bool) {
	m := lone.FindStringSubmatch(text)
	if m == nil {
		return "", false
	}
	return m[1] + m[2], true
}

// key finds out what a zone's key means.
func (c *config) key(text string) (key, error) {
	if !strings.Contains(text, "$") {
		return key{never: text == ""}, nil
	}
	k := key{}
	rest := text
	for _, name := range clients {
		for _, form := range []string{"${" + name + "}", "$" + name} {
			if strings.Contains(rest, form) {
				k.source, rest = true, strings.Replace(rest, form, "", 1)
			}
		}
	}
	for _, form := range []string{"${server_name}", "$server_name"} {
		if strings.Contains(rest, form) {
			k.perServer, rest = true, strings.Replace(rest, form, "", 1)
		}
	}
	if !strings.Contains(rest, "$") {
		return k, nil
	}
	name, ok := variableOf(text)
	if !ok {
		return k, fmt.Errorf("it counts by %q, of several parts, and Narthex by one", text)
	}
	if v := c.variables[name]; v != nil {
		return c.byVariable(v)
	}
	return byValue(name)
}

// byValue makes a key of what requests say. One that does not say it has an empty key.
func byValue(name string) (key, error) {
	if name == "host" || name == "http_host" {
		return key{per: "host"}, nil
	}
	match, err := asked(name, []string{"*"})
	switch {
	case err != nil:
		return key{}, fmt.Errorf("it counts by $%s, which rules do not ask for", name)
	case len(match.Query) > 0:
		return key{per: "{query: " + draft.Quote(match.Query[0].Name) + "}", on: &condition{match: match}}, nil
	case len(match.Header) > 0:
		return key{per: "{header: " + draft.Quote(match.Header[0].Name) + "}", on: &condition{match: match}}, nil
	case len(match.Cookie) > 0:
		return key{per: "{cookie: " + draft.Quote(match.Cookie[0].Name) + "}", on: &condition{match: match}}, nil
	}
	return key{}, fmt.Errorf("it counts by $%s, and Narthex by the client's address, or by a header, a cookie, a parameter or the host", name)
}

// byVariable finds out what a key means that a map or geo block makes.
func (c *config) byVariable(v *variable) (key, error) {
	if c.followed++; c.followed > maxFollowed {
		return key{}, errTangled
	}
	defer func() { c.followed-- }()
	if v.trouble != nil {
		return key{}, v.trouble
	}
	if v.geo != nil {
		return c.byAddress(v.geo, v.fallback)
	}
	name, ok := variableOf(v.source)
	if !ok {
		return key{}, fmt.Errorf("its map is made from %q", v.source)
	}
	if of := c.variables[name]; of != nil && of.geo != nil && of.trouble == nil {
		through := make([]ranged, len(of.geo))
		for i, r := range of.geo {
			through[i] = ranged{r.from, r.width, v.look(r.value)}
		}
		return c.byAddress(through, v.look(of.fallback))
	}
	if of := c.variables[name]; of != nil && of.trouble != nil {
		return key{}, of.trouble
	}
	return c.byRequest(v, name)
}

// look returns what a map makes of a value.
func (v *variable) look(value string) string {
	if out, ok := v.texts[strings.ToLower(value)]; ok {
		return out
	}
	for _, p := range v.patterns {
		expr := p.expr
		if p.caseless {
			expr = "(?i)" + expr
		}
		if re, err := regexp.Compile(expr); err == nil && re.MatchString(value) {
			return p.value
		}
	}
	return v.fallback
}

// byAddress makes a key of what addresses lead to.
func (c *config) byAddress(by []ranged, fallback string) (key, error) {
	k, err := c.key(fallback)
	if err != nil {
		return k, err
	}
	if k.never {
		return c.byFew(by)
	}
	if len(k.exempt) > 0 || k.on != nil {
		return k, errTangled
	}
	for _, r := range by {
		if r.value != "" && r.value != fallback {
			return k, errors.New("different addresses are counted in different ways")
		}
	}
	k.exempt = slices.Clone(by)
	slices.SortStableFunc(k.exempt, func(a, b ranged) int { return b.width - a.width })
	return k, nil
}

// byFew makes a key of addresses that alone are limited.
func (c *config) byFew(by []ranged) (key, error) {
	var from []string
	for _, r := range by {
		if r.value == "" || r.value != by[0].value {
			return key{}, errors.New("different addresses are counted in different ways")
		}
		from = append(from, r.from)
	}
	if len(from) == 0 {
		return key{never: true}, nil
	}
	k, err := c.key(by[0].value)
	if err == nil && (k.on != nil || len(k.exempt) > 0) {
		err = errTangled
	}
	k.on = &condition{match: draft.Rule{From: from}}
	return k, err
}

// byRequest makes a key of a map from something that a request says.
func (c *config) byRequest(v *variable, name string) (key, error) {
	limited, err := c.key(v.fallback)
	if err != nil {
		return limited, err
	}
	if limited.on != nil {
		return limited, errTangled
	}
	unless := !limited.never
	var values []string
	var counted *key
	add := func(value string, texts ...string) error {
		k, err := c.key(value)
		switch {
		case err != nil:
			return err
		case k.on != nil:
			return errTangled
		case k.same(limited) && len(v.patterns) > 0:
			return errors.New("its map has both limited and unlimited patterns")
		case k.same(limited):
			return nil // as the default
		case unless && !k.never, !unless && counted != nil && !counted.same(k):
			return errors.New("different requests are counted in different ways")
		}
		counted = &k
		values = append(values, texts...)
		return nil
	}
	caseless := name == "host" || name == "request_method"
	named := strings.HasPrefix(name, "http_") || strings.HasPrefix(name, "cookie_") || strings.HasPrefix(name, "arg_")
	fold := named && !slices.ContainsFunc(v.patterns, func(p pattern) bool { return !p.caseless && draft.HasLetters(p.expr) })
	for _, text := range v.order {
		if strings.Contains(text, "*") {
			return key{}, fmt.Errorf("the value %q has a star, which stands for any text in a policy", text)
		}
		said := text
		switch {
		case name == "request_method":
			said = strings.ToUpper(text)
		case !caseless && !fold:
			if said, err = draft.AnyCase(text); err != nil {
				return key{}, fmt.Errorf("its map, of %q: %w", text, err)
			}
		}
		if err := add(v.texts[strings.ToLower(text)], said); err != nil {
			return key{}, err
		}
	}
	for _, p := range v.patterns {
		globs, err := draft.Globs(p.expr, p.caseless, name == "host" || fold)
		if err != nil {
			return key{}, fmt.Errorf("the expression %q of its map: %w", p.expr, err)
		}
		if err := add(p.value, globs...); err != nil {
			return key{}, err
		}
	}
	if len(values) == 0 {
		return limited, nil
	}
	if !unless {
		limited = *counted
	}
	match, err := asked(name, values)
	for _, pairs := range [][]draft.Pair{match.Header, match.Cookie, match.Query} {
		for i := range pairs {
			pairs[i].IgnoreCase = fold && slices.ContainsFunc(values, draft.HasLetters)
		}
	}
	limited.on = &condition{match, unless}
	return limited, err
}

// asked returns the part of a rule that asks for values of a variable.
func asked(name string, values []string) (draft.Rule, error) {
	header, isHeader := strings.CutPrefix(name, "http_")
	cookie, isCookie := strings.CutPrefix(name, "cookie_")
	query, isQuery := strings.CutPrefix(name, "arg_")
	switch {
	case slices.Contains(values, ""):
		return draft.Rule{}, fmt.Errorf("an empty $%s is not told from none", name)
	case name == "host":
		return draft.Rule{Host: values}, nil
	case name == "request_method":
		return draft.Rule{Method: values}, nil
	case name == "uri":
		return draft.Rule{Path: values}, nil
	case name == "http_host" || name == "http_cookie":
	case isHeader:
		return draft.Rule{Header: []draft.Pair{{Name: strings.ReplaceAll(header, "_", "-"), Values: values}}}, nil
	case isQuery:
		return draft.Rule{Query: []draft.Pair{{Name: query, Values: values}}}, nil
	case isCookie:
		return draft.Rule{Cookie: []draft.Pair{{Name: cookie, Values: values}}}, nil
	}
	return draft.Rule{}, fmt.Errorf("rules do not ask for $%s", name)
}
