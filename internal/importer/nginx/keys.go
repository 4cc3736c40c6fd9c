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
	source    bool     // by the client's address; else all together
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
	match  draft.Rule // one of host, path, method, header, cookie
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
	return k.never == other.never && k.source == other.source && k.perServer == other.perServer && slices.Equal(k.exempt, other.exempt)
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
		return k, fmt.Errorf("it counts by %q, and Narthex by the client's address or by rule", text)
	}
	v := c.variables[name]
	if v == nil {
		return k, fmt.Errorf("it counts by $%s, and Narthex by the client's address or by rule", name)
	}
	return c.byVariable(v)
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
		return k, errors.New("only some addresses are limited, and request rules do not ask for addresses")
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
	for _, text := range v.order {
		if strings.Contains(text, "*") {
			return key{}, fmt.Errorf("the value %q has a star, which stands for any text in a policy", text)
		}
		if !caseless && draft.HasLetters(text) {
			return key{}, fmt.Errorf("its map ignores the case of %q, and Narthex does not", text)
		}
		if name == "request_method" {
			text = strings.ToUpper(text)
		}
		if err := add(v.texts[strings.ToLower(text)], text); err != nil {
			return key{}, err
		}
	}
	for _, p := range v.patterns {
		globs, err := draft.Globs(p.expr, p.caseless, name == "host")
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
	limited.on = &condition{match, unless}
	return limited, err
}

// asked returns the part of a rule that asks for values of a variable.
func asked(name string, values []string) (draft.Rule, error) {
	header, isHeader := strings.CutPrefix(name, "http_")
	cookie, isCookie := strings.CutPrefix(name, "cookie_")
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
	case isCookie:
		return draft.Rule{Cookie: []draft.Pair{{Name: cookie, Values: values}}}, nil
	}
	return draft.Rule{}, fmt.Errorf("rules do not ask for $%s", name)
}
