// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"narthex/internal/importer/draft"
)

// atom is one test of a condition. One of its parts is set.
type atom struct {
	match *draft.Rule // what a request says
	from  []string    // addresses of the client
	rate  *rate
	never bool
	err   error
	text  string
}

// rate is a comparison with a counter of a stick table.
type rate struct {
	counter string // http_req_rate, conn_rate, conn_cur
	table   string
	most    int // that is still in order
	track   string
}

// literal is an atom, or its opposite.
type literal struct {
	*atom
	not bool
}

// condition is an or of ands. Without terms it always holds.
type condition [][]literal

// condition reads what follows if or unless.
func (p *proxy) condition(words []string) (condition, error) {
	if len(words) == 0 {
		return nil, nil
	}
	if words[0] != "if" && words[0] != "unless" {
		return nil, fmt.Errorf("%q is not understood", strings.Join(words, " "))
	}
	terms := condition{nil}
	for i := 1; i < len(words); i++ {
		word, not := words[i], false
		for strings.HasPrefix(word, "!") {
			word, not = word[1:], !not
		}
		if word == "" && i+1 < len(words) {
			i++
			word = words[i]
		}
		var a *atom
		switch word {
		case "or", "||", "OR":
			terms = append(terms, nil)
			continue
		case "and", "AND":
			continue
		case "{":
			end := slices.Index(words[i:], "}")
			if end < 0 {
				return nil, errors.New(`"}" is missing`)
			}
			a = p.atom(words[i+1 : i+end])
			i += end
		default:
			named, err := p.named(word)
			if err != nil {
				return nil, err
			}
			if len(named) != 1 && (not || words[0] == "unless") {
				return nil, fmt.Errorf("the opposite of %q, which has several lines, is not carried over", word)
			}
			// An ACL with several lines holds if one of them does.
			var next condition
			for _, n := range named {
				next = append(next, append(slices.Clone(terms[len(terms)-1]), literal{n, not}))
			}
			terms = append(terms[:len(terms)-1], next...)
			if len(terms) > maxTerms {
				return nil, errors.New("it has too many cases")
			}
			continue
		}
		terms[len(terms)-1] = append(terms[len(terms)-1], literal{a, not})
	}
	if words[0] == "unless" {
		return opposite(terms)
	}
	return terms, nil
}

const maxTerms = 64

// opposite returns what holds where a condition does not.
func opposite(c condition) (condition, error) {
	if len(c) == 1 && len(c[0]) > 0 {
		var out condition
		for _, l := range c[0] {
			out = append(out, []literal{{l.atom, !l.not}})
		}
		return out, nil
	}
	var all []literal
	for _, term := range c {
		if len(term) != 1 {
			return nil, errors.New("the opposite of so many tests is not carried over")
		}
		all = append(all, literal{term[0].atom, !term[0].not})
	}
	return condition{all}, nil
}

// named returns the tests of an ACL.
func (p *proxy) named(name string) ([]*atom, error) {
	var out []*atom
	for _, l := range p.lines {
		if l.begins("acl", name) {
			out = append(out, p.atom(l.words[2:]))
		}
	}
	if out != nil {
		return out, nil
	}
	builtin := map[string][]string{
		"METH_GET": {"method", "GET", "HEAD"}, "METH_POST": {"method", "POST"}, "METH_HEAD": {"method", "HEAD"}, "METH_PUT": {"method", "PUT"},
		"METH_DELETE": {"method", "DELETE"}, "METH_OPTIONS": {"method", "OPTIONS"}, "METH_CONNECT": {"method", "CONNECT"}, "METH_TRACE": {"method", "TRACE"},
		"LOCALHOST": {"src", "127.0.0.1/8"},
	}
	switch words := builtin[name]; {
	case name == "TRUE":
		return []*atom{{match: &draft.Rule{}, text: name}}, nil
	case name == "FALSE":
		return []*atom{{never: true, text: name}}, nil
	case words != nil:
		return []*atom{p.atom(words)}, nil
	}
	return nil, fmt.Errorf("there is no acl %q that Narthex knows", name)
}

// flags of a test.
type flags struct {
	caseless bool
	method   string // -m
}

// atom reads one test: a fetch and what it is compared with.
func (p *proxy) atom(words []string) *atom {
	a := &atom{text: strings.Join(words, " ")}
	if len(words) == 0 {
		a.err = errors.New("a test is empty")
		return a
	}
	f, values, err := p.values(words[1:])
	if err != nil {
		a.err = err
		return a
	}
	read, small := asRead(words[0])
	f.caseless = f.caseless || small
	fetch, arg := fetchOf(read)
	switch {
	case fetch == "src" && f.method == "":
		a.from, a.err = addresses(values)
	case fetch == "always_true":
		a.match = &draft.Rule{}
	case fetch == "always_false":
		a.never = true
	case strings.HasSuffix(fetch, "_rate"), strings.HasSuffix(fetch, "_conn_cur"):
		a.rate, a.err = compared(fetch, arg, values)
	default:
		a.match, a.err = said(fetch, arg, f, values)
	}
	return a
}

// asRead leaves out the converters that do what Narthex does: it compares a host without its port and case, and a path
// after decoding it. It reports whether the rest is compared in small letters.
func asRead(text string) (fetch string, small bool) {
	fetch, converters, _ := strings.Cut(text, ",")
	host := strings.HasSuffix(strings.ToLower(fetch), "hdr(host)")
	for one := range strings.SplitSeq(converters, ",") {
		switch {
		case host && (one == "host_only" || one == "lower"):
		case one == "lower":
			small = true
		case one == "url_dec" && strings.HasPrefix(fetch, "path"):
		default:
			return text, false
		}
	}
	return fetch, small
}

// fetchOf parts name(argument). Converters are not known.
func fetchOf(text string) (name, arg string) {
	name, rest, ok := strings.Cut(text, "(")
	if !ok {
		return text, ""
	}
	arg, after, closed := strings.Cut(rest, ")")
	if !closed || after != "" {
		return text, ""
	}
	return strings.TrimSpace(name), arg
}

// values reads flags and the values after them.
func (p *proxy) values(words []string) (f flags, values []string, err error) {
	for i := 0; i < len(words); i++ {
		switch w := words[i]; w {
		case "-i":
			f.caseless = true
		case "-n":
		case "-m", "-f", "-M", "-u":
			if i++; i >= len(words) {
				return f, nil, fmt.Errorf("%s has no value", w)
			}
			if w == "-m" {
				f.method = words[i]
			}
			if w == "-M" || w == "-u" {
				return f, nil, fmt.Errorf("%s is not carried over", w)
			}
			if w == "-f" {
				list, err := p.read(words[i])
				if err != nil {
					return f, nil, err
				}
				values = append(values, list...)
			}
		case "--":
			return f, append(values, words[i+1:]...), nil
		default:
			return f, append(values, words[i:]...), nil
		}
	}
	return f, values, nil
}

// read returns the lines of a file of values.
func (p *proxy) read(name string) ([]string, error) {
	found, err := p.files.Glob(name)
	if err != nil || len(found) != 1 {
		return nil, fmt.Errorf("the file %q is not read", name)
	}
	text, err := p.files.Read(found[0])
	if err != nil {
		return nil, fmt.Errorf("the file %q cannot be read; copy it there, or say with --root where the files are", name)
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			out = append(out, line)
		}
	}
	return out, nil
}

func addresses(values []string) ([]string, error) {
	var out []string
	seen := map[string]bool{}
	for _, v := range values {
		p, err := netip.ParsePrefix(v)
		if a, errAddr := netip.ParseAddr(v); errAddr == nil && a.Zone() == "" {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("%q is not an address", v)
		}
		text := p.Masked().String()
		if p.IsSingleIP() {
			text = p.Addr().String()
		}
		if !seen[text] {
			seen[text] = true
			out = append(out, text)
		}
	}
	if out == nil {
		return nil, errors.New("there are no addresses")
	}
	return out, nil
}
