// SPDX-License-Identifier: Apache-2.0

package draft

import (
	"errors"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
)

const (
	maxGlobs = 64
	begin    = '\x02' // stands for ^
	end      = '\x03' // stands for $
)

var errNoGlob = errors.New("it is not exactly a pattern of fixed texts and stars")

// Globs returns the patterns that together match exactly what the regular expression
// matches anywhere in a text. Letters of both cases match it alike if it is caseless, and the
// patterns if globsCaseless; where these do not, they have classes of two letters.
func Globs(expr string, caseless, globsCaseless bool) ([]string, error) {
	if strings.ContainsAny(expr, "\x02\x03\n") {
		return nil, errNoGlob
	}
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, errNoGlob
	}
	texts, err := expand(re)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, t := range texts {
		glob, err := anchored(t)
		if err != nil {
			return nil, err
		}
		if caseless && !globsCaseless {
			if glob, err = AnyCase(glob); err != nil {
				return nil, err
			}
		}
		if !slices.Contains(out, glob) {
			out = append(out, glob)
		}
	}
	return out, nil
}

// HasLetters reports whether case matters in a text.
func HasLetters(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return unicode.ToLower(r) != r || unicode.ToUpper(r) != r }) >= 0
}

// AnyCase returns a pattern that matches what a caseless one does, with a class for each letter.
func AnyCase(glob string) (string, error) {
	var out strings.Builder
	for _, r := range glob {
		lower, upper := unicode.ToLower(r), unicode.ToUpper(r)
		switch {
		case lower == upper:
			out.WriteRune(r)
		case r > unicode.MaxASCII:
			return "", errors.New("it ignores the case of letters that are not ASCII")
		default:
			out.WriteString("[" + string(upper) + string(lower) + "]")
		}
	}
	return out.String(), nil
}

// anchored makes a pattern of a text that may begin with ^ and end with $.
func anchored(t string) (string, error) {
	t, atBegin := strings.CutPrefix(t, string(begin))
	t, atEnd := strings.CutSuffix(t, string(end))
	if strings.ContainsAny(t, string([]rune{begin, end})) {
		return "", errNoGlob
	}
	if !atBegin {
		t = "*" + t
	}
	if !atEnd {
		t += "*"
	}
	for strings.Contains(t, "**") {
		t = strings.ReplaceAll(t, "**", "*")
	}
	return t, nil
}

// expand returns all texts that an expression stands for, with stars, begins and ends.
func expand(re *syntax.Regexp) ([]string, error) {
	switch re.Op {
	case syntax.OpEmptyMatch:
		return []string{""}, nil
	case syntax.OpBeginText, syntax.OpBeginLine:
		return []string{string(begin)}, nil
	case syntax.OpEndText, syntax.OpEndLine:
		return []string{string(end)}, nil
	case syntax.OpLiteral:
		return literal(re)
	case syntax.OpCharClass:
		return class(re)
	case syntax.OpCapture:
		return expand(re.Sub[0])
	case syntax.OpStar:
		if op := re.Sub[0].Op; op == syntax.OpAnyChar || op == syntax.OpAnyCharNotNL {
			return []string{"*"}, nil
		}
	case syntax.OpQuest:
		texts, err := expand(re.Sub[0])
		return append([]string{""}, texts...), err
	case syntax.OpConcat:
		return concat(re.Sub)
	case syntax.OpAlternate:
		var out []string
		for _, sub := range re.Sub {
			texts, err := expand(sub)
			if err != nil {
				return nil, err
			}
			out = append(out, texts...)
		}
		return bounded(out)
	}
	return nil, errNoGlob
}

func bounded(texts []string) ([]string, error) {
	if len(texts) > maxGlobs {
		return nil, errors.New("it stands for too many patterns")
	}
	return texts, nil
}

func literal(re *syntax.Regexp) ([]string, error) {
	s := string(re.Rune)
	if strings.ContainsAny(s, `*[\`) || re.Flags&syntax.FoldCase != 0 && HasLetters(s) {
		return nil, errNoGlob
	}
	return []string{s}, nil
}

func class(re *syntax.Regexp) ([]string, error) {
	var out []string
	for i := 0; i+1 < len(re.Rune); i += 2 {
		for r := re.Rune[i]; r <= re.Rune[i+1]; r++ {
			if strings.ContainsRune(`*[\`, r) || len(out) > maxGlobs {
				return nil, errNoGlob
			}
			out = append(out, string(r))
		}
	}
	return bounded(out)
}

func concat(subs []*syntax.Regexp) ([]string, error) {
	out := []string{""}
	for _, sub := range subs {
		texts, err := expand(sub)
		if err != nil {
			return nil, err
		}
		var next []string
		for _, a := range out {
			for _, b := range texts {
				next = append(next, a+b)
			}
		}
		if out, err = bounded(next); err != nil {
			return nil, err
		}
	}
	return out, nil
}
