// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"slices"
	"time"

	"narthex/internal/httphead"
)

// Request is a request rule: it acts on what a request says.
type Request struct {
	Pos    Pos
	Name   string
	Path   []string // patterns, as are the others; empty: not asked
	Host   []string // lower case
	Method []string
	SNI    []string // lower case
	ALPN   []string
	JA4    []string // lower case in its hashes, as fingerprints are
	Cookie []Pair   // all must match
	Header []Pair   // names in lower case, with hyphens for underscores; all must match
	Query  []Pair   // parameters of the query; all must match
	// Parameters is how many the query must have at least; 0: not asked.
	Parameters int
	Without    Without
	From       []Range       // whom the request is from, with FromLists; both empty: anybody
	FromLists  []int         // indexes into Policy.Lists, ascending
	To         []int         // indexes into Policy.Services, ascending
	ToAddrs    []Destination // beside To: where else it is to; both empty: anywhere
	Action     Action
	Rate       Limit // zero unless Action is ActionPolice, and where there are only Limits
	Burst      int   // tokens; 0 unless there is a rate, and where it sets itself
	Per        Per
	Limits     []Bound // every one must let it pass, and the rate
	When       When
	Over       Over
	Block      time.Duration // 0: none
	Class      int           // index into Policy.Classes, or -1
	Learn      time.Duration // 0: none
	Answer     *Answer       // what is said to who is rejected; nil: what the service says
	BurstSet   bool          // Burst was given; else it follows from Rate
}

// The fields of every policy. The headers, cookies and parameters that rules name follow from
// FieldNamed on: from FieldPairs on first those that a rule wants absent, of which each is a
// pair of fields, that of its values and that of its absence.
const (
	FieldHost = iota
	FieldPath
	FieldMethod
	FieldSNI
	FieldALPN
	FieldJA4
	FieldNamed
	FieldPairs = FieldNamed
)

// textField is a text that requests or TLS connections have, of which rules have patterns. What is particular to a
// field is said here: decoding, the schema, descriptions, differences and tables go by it. CONTRIBUTING.md has what
// else a new one takes.
type textField struct {
	key   key    // in policies
	what  string // what it is called in descriptions; the key if empty
	tls   bool   // it is seen in the ClientHello, else in HTTP
	newer bool   // decoder.newer
	many  bool   // one connection has several: that two rules have no text in common says nothing
	parse func(string) (string, error)
	// of is where a rule has its patterns.
	of func(*Request) *[]string
	// meant is where its meaning has them.
	meant func(*RequestMeaning) *[]string
}

// textFields are all of them.
var textFields = [FieldNamed]textField{
	FieldHost: {
		key:   key{name: "host", value: listOf(hostValue()), examples: []any{"*.example.com"}, doc: "Patterns of the Host header, without case."},
		parse: parseHost, of: func(q *Request) *[]string { return &q.Host }, meant: func(m *RequestMeaning) *[]string { return &m.Host },
	},
	FieldPath: {
		key: key{
			name: "path", value: listOf(pathValue()), examples: []any{"/search*", "*.php"},
			doc: "Patterns of paths, / or * first; compared after decoding and cleaning, without query and fragment.",
		},
		parse: parsePath, of: func(q *Request) *[]string { return &q.Path }, meant: func(m *RequestMeaning) *[]string { return &m.Path },
	},
	FieldMethod: {
		key:   key{name: "method", value: listOf(methodValue()), examples: []any{"POST"}, doc: "Patterns of methods, in capital letters."},
		parse: parseMethod, of: func(q *Request) *[]string { return &q.Method }, meant: func(m *RequestMeaning) *[]string { return &m.Method },
	},
	FieldSNI: {
		key:  key{name: "sni", value: listOf(hostValue()), examples: []any{"*.example.com"}, doc: "Patterns of the server name in the ClientHello, of tls services. Goes with none of the keys that are seen in HTTP."},
		what: "server name", tls: true,
		parse: parseHost, of: func(q *Request) *[]string { return &q.SNI }, meant: func(m *RequestMeaning) *[]string { return &m.SNI },
	},
	FieldALPN: {
		key:  key{name: "alpn", value: listOf(globValue()), examples: []any{"h2"}, doc: "Patterns, one of which matches a protocol that the client offers in its ClientHello, of tls services."},
		what: "application protocol", tls: true, many: true,
		parse: parseGlob, of: func(q *Request) *[]string { return &q.ALPN }, meant: func(m *RequestMeaning) *[]string { return &m.ALPN },
	},
	FieldJA4: {
		key:  key{name: "ja4", value: listOf(ja4Value()), examples: []any{"t13d1516h2_8daaf6152771_*"}, doc: "Patterns of the JA4 fingerprint of the ClientHello, of tls services: which TLS library a client has. Anybody can copy one."},
		what: "JA4 fingerprint", tls: true, newer: true,
		parse: parseJA4, of: func(q *Request) *[]string { return &q.JA4 }, meant: func(m *RequestMeaning) *[]string { return &m.JA4 },
	},
}

// shownFields are the text fields in the order in which policies have them, and in which they are described.
var shownFields = [FieldNamed]int{FieldPath, FieldHost, FieldMethod, FieldSNI, FieldALPN, FieldJA4}

// texts returns the rule's patterns of a field.
func (q *Request) texts(field int) []string { return *textFields[field].of(q) }

// textKeys are the keys of request rules that have patterns of a text.
func textKeys() (keys []key) {
	for _, field := range shownFields {
		k := textFields[field].key
		k.defText = "any"
		keys = append(keys, k)
	}
	return keys
}

// textFieldOf returns the field that a key is of, or -1.
func textFieldOf(name string) int {
	return slices.IndexFunc(textFields[:], func(f textField) bool { return f.key.name == name })
}

// keysSeenIn returns the keys of text fields of TLS, or of HTTP.
func keysSeenIn(tls bool) (keys []string) {
	for _, field := range shownFields {
		if f := &textFields[field]; f.tls == tls {
			keys = append(keys, f.key.name)
		}
	}
	return keys
}

// asksText reports whether a rule asks for a text that is seen in TLS, or in HTTP.
func (q *Request) asksText(tls bool) bool {
	return slices.ContainsFunc(textFields[:], func(f textField) bool { return f.tls == tls && len(*f.of(q)) > 0 })
}

// RequestView is what rules see of a request, or of a TLS connection, after it has been
// decoded and cleaned as the data path does it.
type RequestView struct {
	Texts            [FieldNamed][]string // by field; none of what it does not have. What is HTTP has a method
	Headers, Cookies []NameValue          // names of headers in lower case, with hyphens for underscores
	Query            []NameValue          // parameters
	Parameters       int                  // pieces of the query that are not empty
	From             netip.Addr           // the client; invalid: not known
	Lists            uint64               // bits of the lists that the client is in
	To               netip.AddrPort       // where the connection is to; invalid: not known
	// Cut says that the head goes on: a header or cookie that is not there may follow.
	Cut bool

	onlyAbsent *Without // of an example: what is absent; of what else there is nothing nobody knows
	placed     *placed  // of an example, in place of From and To
}

// ViewOf returns what rules see of a head.
func ViewOf(head *httphead.Request) *RequestView {
	v := &RequestView{
		Headers: nameValues(head.Headers), Cookies: nameValues(head.Cookies),
		Query: nameValues(head.Query.Parameters), Parameters: len(head.Query.Parameters),
	}
	v.Texts[FieldMethod] = []string{head.Method}
	v.Say(FieldPath, head.Path)
	v.Say(FieldHost, head.Host)
	return v
}

func nameValues(fields []httphead.Field) (out []NameValue) {
	for _, f := range fields {
		out = append(out, NameValue(f))
	}
	return out
}

// ViewOfHello returns what rules see of a ClientHello: the server name and the fingerprint, each "" for none, and the
// protocols that it offers.
func ViewOfHello(name string, protocols []string, print string) *RequestView {
	v := &RequestView{}
	v.Say(FieldSNI, name)
	v.Texts[FieldALPN] = protocols
	v.Say(FieldJA4, print)
	return v
}

// Say adds a text that the request has of a field, unless it is empty.
func (q *RequestView) Say(field int, text string) {
	if text != "" {
		q.Texts[field] = append(q.Texts[field], text)
	}
}

// Text returns what the request has of a field, the first text; "" for nothing.
func (q *RequestView) Text(field int) string {
	if len(q.Texts[field]) == 0 {
		return ""
	}
	return q.Texts[field][0]
}

// isHTTP reports whether it is a request, and no TLS connection.
func (q *RequestView) isHTTP() bool { return len(q.Texts[FieldMethod]) > 0 }

// NameValue is a header, a cookie or a parameter of a request.
type NameValue struct {
	Name, Value string
}
