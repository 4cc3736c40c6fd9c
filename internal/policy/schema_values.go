// SPDX-License-Identifier: Apache-2.0

package policy

import "fmt"

// Schemas of values. A policy's values are texts, whatever YAML takes them for: a name may be
// 2024, a number may be in quotes. Patterns are of the text's form; what they let through and
// Parse refuses (10.0.0.300) it says with better words.

// anyText are the types that YAML may take a text for.
var anyText = []string{"string", "number", "boolean"}

func number(n int) *int { return &n }

// oneOf is one of a few values.
func oneOf[T any](values []T) *schema {
	s := &schema{}
	for _, v := range values {
		s.Enum = append(s.Enum, v)
	}
	return s
}

// anyOf is a value of one of several forms. They have no descriptions, which editors would show in
// place of the key's.
func anyOf(schemas ...*schema) *schema { return &schema{AnyOf: schemas} }

// listOf is a value, or several in a list.
func listOf(s *schema) *schema {
	return anyOf(s, &schema{Type: "array", Items: s, MinItems: 1})
}

// distinctOf is listOf where no two values may be equal.
func distinctOf(s *schema) *schema {
	list := listOf(s)
	list.AnyOf[1].UniqueItems = true
	return list
}

// tableOf is a list of mappings at the top of a policy.
func tableOf(f *form, most int, filled bool) *schema {
	s := &schema{Type: []string{"array", "null"}, Items: object(f), MaxItems: most}
	if filled {
		s.Type, s.MinItems = "array", 1
	}
	return s
}

// pairsOf is a mapping of names of the given form to patterns.
func pairsOf(name string) *schema {
	return &schema{
		Type: "object", PropertyNames: &schema{Pattern: name, MaxLength: MaxLiteral}, MinProperties: 1,
		Additional: patternsValue(),
	}
}

// patternsValue is a pattern, or several in a list; in a mapping it may be compared without case.
func patternsValue() *schema {
	return listOf(anyOf(globValue(), object(&patternForm)))
}

// parameterForm is the name of a parameter of a query.
const parameterForm = "^[^&=]+$"

func parameterValue() *schema {
	return &schema{Type: anyText, Pattern: parameterForm, MaxLength: MaxLiteral, PatternError: "write the name of a parameter"}
}

// tokenValue is the name of a header or cookie.
func tokenValue() *schema {
	return &schema{Type: anyText, Pattern: tokenForm.String(), MaxLength: MaxLiteral, PatternError: "write a name without separators"}
}

// whole is a whole number between two bounds.
func whole(least, most int) *schema {
	return &schema{
		Type: []string{"integer", "string"}, Minimum: number(least), Maximum: number(most), Pattern: "^-?[0-9]+$",
		PatternError: "write a whole number",
	}
}

func boolValue() *schema {
	return &schema{Type: []string{"boolean", "string"}, Pattern: "^(true|false)$", PatternError: "write true or false"}
}

// nameValue is the name of a service, class or rule.
func nameValue() *schema {
	return &schema{
		Type: anyText, Pattern: nameForm.String(), MaxLength: MaxNameBytes,
		PatternError: "a name has letters, digits, - and _, a letter or digit first",
	}
}

func fileValue() *schema {
	return &schema{Type: anyText, Pattern: ".", PatternError: "write a file's name"}
}

func interfaceValue() *schema {
	return &schema{
		Type: anyText, Pattern: `^[^/: \t\r\n\v\f]+$`, MaxLength: maxInterfaceBytes, Not: oneOf([]string{"*", "any", "all", ".", ".."}),
		PatternError: "write the name of an interface",
	}
}

func listenValue() *schema {
	return &schema{
		Type: "string", Pattern: `^(\*|[0-9.]+|\[[*0-9A-Fa-f:.]+\]):[1-9][0-9]{0,4}$`,
		PatternError: "write an address and a port in quotes, as \"*:80\", \"192.0.2.1:80\" or \"[2001:db8::1]:80\"",
	}
}

func rangeValue() *schema {
	const address = "[0-9A-Fa-f:.]+"
	return &schema{
		Type: "string", Pattern: fmt.Sprintf("^%s(/[0-9]{1,3}|-%s)?$", address, address),
		PatternError: "write an address, a prefix or FIRST-LAST, as 10.0.0.0/8",
	}
}

// fromValue is addresses, or a list's.
func fromValue() *schema {
	s := rangeValue()
	s.Pattern = "^(@[^ ]*|" + s.Pattern[1:len(s.Pattern)-1] + ")$"
	s.PatternError = "write an address, a prefix, FIRST-LAST, as 10.0.0.0/8, or @NAME of a list"
	return s
}

// destinationValue is addresses, with ports or without.
func destinationValue() *schema {
	const address, ports = "[0-9A-Fa-f:.]+", "[0-9]{1,5}(-[0-9]{1,5})?"
	addresses := fmt.Sprintf("%s(/[0-9]{1,3}|-%s)?", address, address)
	return &schema{
		Type: "string", Pattern: fmt.Sprintf(`^(%s|(\*|%s|\[%s\]):%s)$`, addresses, addresses, addresses, ports),
		PatternError: "write a service, or addresses and a port, as \"192.0.2.0/24:8080\"",
	}
}

func portsValue() *schema {
	return &schema{
		Type: []string{"integer", "string"}, Minimum: number(0), Maximum: number(65_535), Pattern: "^[0-9]{1,5}(-[0-9]{1,5})?$",
		PatternError: "write a port or FIRST-LAST, as 1024-65535",
	}
}

func rateValue() *schema {
	return &schema{
		Type: "string", Pattern: "^[1-9][0-9]*/[smh]$",
		PatternError: "write a whole number per second, minute or hour, as 100/s, 15/m or 1000/h",
	}
}

func percentValue() *schema {
	return &schema{
		Type: "string", Pattern: "^([1-9][0-9]?|100)%$",
		PatternError: "write a whole number of percent, 1% to 100%",
	}
}

// durationValue is what time.ParseDuration reads.
func durationValue() *schema {
	return &schema{
		Type: "string", Pattern: `^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`,
		PatternError: "write a number with a unit, as 200ms, 5s or 1m30s",
	}
}

// globValue is any pattern: without control characters, and not blank.
func globValue() *schema {
	return &schema{
		Type: anyText, Pattern: `^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$`, MaxLength: maxPatternBytes,
		PatternError: "write a pattern without control characters",
	}
}

func pathValue() *schema {
	return &schema{
		Type: "string", Pattern: `^[/*][^\x00-\x1f\x7f?#]*$`, MaxLength: maxPatternBytes,
		PatternError: "a path begins with / or *, and has no query or fragment",
	}
}

func hostValue() *schema {
	return &schema{
		Type: anyText, Pattern: `^[^\x00-\x20\x7f/@?#]+$`, MaxLength: maxPatternBytes,
		PatternError: "write a host name or a pattern of such, as *.example.com",
	}
}

func ja4Value() *schema {
	return &schema{
		Type: "string", Pattern: `^[]A-Zabce-pr-z0-9_*[-][]A-Za-z0-9_*[-]*$`, MaxLength: maxPatternBytes,
		PatternError: "write a JA4 fingerprint of TLS or a pattern of such, as t13d1516h2_*",
	}
}

func methodValue() *schema {
	return &schema{
		Type: anyText, Pattern: methodForm.String(), MaxLength: maxPatternBytes,
		PatternError: "write a method in capital letters, as GET",
	}
}
