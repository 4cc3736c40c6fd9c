// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// drawGlob draws patterns of few letters, so that they nest, overlap and share words. Their
// stars are drawn like letters.
func drawGlob(t *rapid.T) string {
	if rapid.IntRange(0, 9).Draw(t, "form") == 0 {
		return rapid.SampledFrom([]string{"*", "**", "/", "/a", "/a*a", "/a*", "*a", "*/*", "/*a*a*a", "*a*b*a*b*", "*ab*", "*b*ab", "/ab*ba"}).Draw(t, "pattern")
	}
	g := drawText(t, "ab/**", 7) + rapid.SampledFrom([]string{"", "a", "*"}).Draw(t, "end")
	class := rapid.SampledFrom([]string{"", "", "", "[ab]", "[a-cA]", "[/*]", `\[`}).Draw(t, "class")
	return strings.Replace(g, "b", cmp.Or(class, "b"), 2)
}

func drawText(t *rapid.T, letters string, most int) string {
	var b strings.Builder
	for range rapid.IntRange(0, most).Draw(t, "length") {
		b.WriteByte(letters[rapid.IntRange(0, len(letters)-1).Draw(t, "letter")])
	}
	return b.String()
}

func drawGlobs(t *rapid.T) []string {
	var out []string
	for range rapid.IntRange(1, 3).Draw(t, "patterns") {
		if g := drawGlob(t); g != "" {
			out = append(out, g)
		}
	}
	return out
}

// drawRequests draws a policy of request rules.
func drawRequests(t *rapid.T) *Policy {
	p := &Policy{File: "drawn.yaml", Classes: []Class{{Name: implicitClass, Priority: 1}}, Services: placeServices, Lists: make([]ListFile, 3)}
	often := rapid.IntRange(1, 6).Draw(t, "fields are rare")
	for i := range rapid.IntRange(1, 12).Draw(t, "rules") {
		r := Request{Name: fmt.Sprint("r", i), Pos: Pos{i + 1, 1}, Per: PerRule, Class: 0}
		for field := range textFields {
			if rapid.IntRange(0, often).Draw(t, "asks") == 0 {
				*textFields[field].of(&r) = drawGlobs(t)
			}
		}
		for kind, to := range []*[]Pair{&r.Header, &r.Cookie, &r.Query} {
			for _, name := range []string{"x", "y"} {
				switch rapid.IntRange(0, often+4).Draw(t, "asks") {
				case 0:
					if values := drawGlobs(t); values != nil {
						*to = append(*to, Pair{Name: name, Values: values})
					}
				case 1:
					if values := drawGlobs(t); values != nil {
						*to = append(*to, Pair{Name: name, Values: drawGlobs(t), Folded: values})
					}
				case 2:
					*r.Without.list(kind) = append(*r.Without.list(kind), name)
				}
			}
		}
		if rapid.IntRange(0, often+2).Draw(t, "asks") == 0 {
			r.Parameters = rapid.IntRange(1, 5).Draw(t, "parameters")
		}
		drawPlaces(t, &r, often)
		p.Requests = append(p.Requests, r)
	}
	return p
}

// drawValue draws a text: any, or what one of the policy's patterns matches.
func drawValue(t *rapid.T, p *Policy) string {
	if rapid.IntRange(0, 2).Draw(t, "any") == 0 {
		return drawText(t, "ab/", 9)
	}
	var all []string
	for i := range p.Requests {
		r := &p.Requests[i]
		for field := range textFields {
			all = append(all, r.texts(field)...)
		}
		for _, pair := range slices.Concat(r.Header, r.Cookie, r.Query) {
			all = append(append(all, pair.Values...), pair.Folded...)
		}
	}
	if len(all) == 0 {
		return ""
	}
	glob := rapid.SampledFrom(all).Draw(t, "like")
	var b strings.Builder
	for i, part := range rapid.SampledFrom(expand(glob)).Draw(t, "text") {
		if i > 0 {
			b.WriteString(drawText(t, "ab/", 3))
		}
		b.WriteString(part)
	}
	if rapid.IntRange(0, 5).Draw(t, "case") == 0 {
		return strings.ToUpper(b.String())
	}
	return b.String()
}

// placeServices listen on all addresses, on some of them, and on another port.
var placeServices = []Service{
	{Name: "web", Listen: []Listen{{Port: 80}}},
	{Name: "one", Listen: []Listen{{bases[0], 80}, {bases[6], 80}, {bases[4], 80}}},
	{Name: "other", Listen: []Listen{{Port: 8080}}},
}

// drawPlaces draws whom a rule is for, and to where.
func drawPlaces(t *rapid.T, r *Request, often int) {
	if rapid.IntRange(0, often).Draw(t, "asks whom") == 0 {
		r.From = rapid.SliceOfN(rapid.Custom(drawRange), 1, 3).Draw(t, "from")
	}
	if rapid.IntRange(0, often).Draw(t, "asks for lists") == 0 {
		r.FromLists = rapid.SampledFrom([][]int{{0}, {1}, {0, 1}, {1, 2}}).Draw(t, "lists")
	}
	if rapid.IntRange(0, often).Draw(t, "asks where") > 0 {
		return
	}
	r.To = rapid.SliceOfNDistinct(rapid.IntRange(0, len(placeServices)-1), 0, 2, rapid.ID).Draw(t, "services")
	for range rapid.IntRange(0, 2).Draw(t, "destinations") {
		d := Destination{Addrs: drawRange(t)}
		if rapid.Bool().Draw(t, "with ports") {
			d.Ports = PortRange{80, rapid.SampledFrom([]uint16{80, 8080}).Draw(t, "last port")}
		}
		r.ToAddrs = append(r.ToAddrs, d)
	}
}

// drawAddr draws an address near those that rules name.
func drawAddr(t *rapid.T) netip.Addr {
	a := rapid.SampledFrom(bases).Draw(t, "address")
	if next := a.Next(); next.IsValid() && rapid.Bool().Draw(t, "next") {
		return next
	}
	return a
}

func drawView(t *rapid.T, p *Policy) *RequestView {
	q := &RequestView{Lists: rapid.Uint64Range(0, 7).Draw(t, "in lists"), From: drawAddr(t), To: netip.AddrPortFrom(drawAddr(t), rapid.SampledFrom([]uint16{80, 81, 8080}).Draw(t, "port"))}
	for field := range textFields {
		n := min(rapid.IntRange(0, 4).Draw(t, "has"), 1)
		if textFields[field].many {
			n = rapid.IntRange(0, 2).Draw(t, "several")
		}
		for range n {
			q.Texts[field] = append(q.Texts[field], drawValue(t, p))
		}
	}
	for _, to := range []*[]NameValue{&q.Headers, &q.Cookies, &q.Query} {
		for range rapid.IntRange(0, 3).Draw(t, "pairs") {
			*to = append(*to, NameValue{rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "name"), drawValue(t, p)})
		}
	}
	q.Parameters = len(q.Query) + rapid.IntRange(0, 3).Draw(t, "parameters")
	q.Cut = rapid.IntRange(0, 7).Draw(t, "cut") == 0
	return possible(q)
}

// possible makes a view one that there can be: what is HTTP has a method, and a path but for CONNECT.
func possible(q *RequestView) *RequestView {
	http := len(q.Headers)+len(q.Cookies)+len(q.Query)+q.Parameters > 0
	for field := range textFields {
		http = http || !textFields[field].tls && len(q.Texts[field]) > 0
	}
	if !http {
		return q
	}
	path, method := q.Texts[FieldPath], q.Texts[FieldMethod]
	if len(path) > 0 && path[0] != "*" || len(q.Query)+q.Parameters > 0 {
		path = []string{"/" + strings.TrimPrefix(q.Text(FieldPath), "/")}
	}
	switch {
	case len(path) == 0:
		method = []string{"CONNECT"}
	case path[0] == "*":
		method = []string{"OPTIONS"}
	case len(method) == 0:
		method = []string{""}
	}
	q.Texts[FieldPath], q.Texts[FieldMethod] = path, method
	return q
}

// list returns the names of one kind.
func (w *Without) list(kind int) *[]string { return []*[]string{&w.Header, &w.Cookie, &w.Query}[kind] }

// TestRequestTables compares the tables with what rule by rule is found.
func TestRequestTables(t *testing.T) { rapid.Check(t, checkRequestTables) }

func checkRequestTables(t *rapid.T) {
	p := drawRequests(t)
	tables, warnings, err := CompileRequests(p, rapid.Uint64().Draw(t, "seed"))
	if err != nil {
		t.Skip("refused: ", err)
	}
	for range 8 {
		checkMatch(t, p, tables, warnings, drawView(t, p))
	}
}

// checkMatch compares the tables with the rules one by one, and with what was said of them.
func checkMatch(t rapid.TB, p *Policy, tables *RequestTables, warnings []Warning, q *RequestView) {
	t.Helper()
	got, want := tables.Match(q), p.MatchRequest(q)
	if got != want {
		t.Fatalf("%+v: the tables say rule %d, one by one it is %d, of\n%+v", q, got, want, p.Requests)
	}
	if got >= 0 && slices.ContainsFunc(warnings, func(w Warning) bool { return w.Line == p.Requests[got].Pos.Line }) {
		t.Fatalf("%+v matches rule %d, of which is said %v", q, got, warnings)
	}
}

// FuzzRequestTables does so with rules and a request in the words of view: a rule a line, in
// which a word that comes again adds to a list.
func FuzzRequestTables(f *testing.F) {
	f.Add("/a*a\n/a*\n*b\n", "GET /a host:h", uint64(1))
	f.Add("/a* /ab* host:x host:*y\nGET P* cookie:s=* header:x=*a*b*c*\n*", "POST /abc host:xy cookie:s= header:x=abc header:x=1", uint64(2))
	f.Add("/*ab*ba*ab /*ba* GET\nsni:*.a alpn:h2\nalpn:*", "sni:x.a alpn:h3 alpn:h2 /abba", uint64(0))
	f.Add("/a query:x=[a-c]* header:without=x\nquery:without=y cookie:without=s GET\nquery:x=\\[*\n/a*", "GET /a query:x=b header:y= query:x=[", uint64(5))
	f.Add("/a*b*c host:a\n/*b*c host:*\n*b*bc*c*\n**c**\n/*a*a*a", "/abcbcc host:a", uint64(3))
	f.Fuzz(func(t *testing.T, rules, request string, seed uint64) {
		p := requestPolicy(rulesOf(rules)...)
		tables, warnings, err := CompileRequests(p, seed)
		if err != nil || tables == nil {
			return
		}
		checkMatch(t, p, tables, warnings, possible(view(strings.Fields(request)...)))
		for i := range p.Requests {
			checkMatch(t, p, tables, nil, newExample(&p.Requests[i]).view())
		}
	})
}

// rulesOf reads rules in the words of view.
func rulesOf(text string) []Request {
	var out []Request
	for _, line := range strings.SplitN(text, "\n", 20) {
		v, r := view(), Request{}
		for _, w := range strings.Fields(line) {
			one := view(w)
			v.Headers, v.Cookies, v.Query = append(v.Headers, one.Headers...), append(v.Cookies, one.Cookies...), append(v.Query, one.Query...)
			if kind, name, ok := strings.Cut(w, ":without="); ok && name != "" {
				if at := slices.Index(pairKinds, kind); at >= 0 {
					*r.Without.list(at) = append(*r.Without.list(at), name)
				}
			}
			for field := range textFields {
				to := textFields[field].of(&r)
				*to = append(*to, one.Texts[field]...)
			}
		}
		r.Header, r.Cookie, r.Query = lists(v.Headers), lists(v.Cookies), lists(v.Query)
		out = append(out, r)
	}
	return out
}

// lists gathers the values of each name, as far as a policy can have them.
func lists(values []NameValue) []Pair {
	var out []Pair
	for _, v := range values {
		if v.Name != "" && v.Value != "" && !slices.ContainsFunc(out, func(p Pair) bool { return p.Name == v.Name }) {
			out = append(out, Pair{Name: v.Name, Values: slices.DeleteFunc(named(values, v.Name), func(s string) bool { return s == "" })})
		}
	}
	return out
}
