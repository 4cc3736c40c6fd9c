// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"narthex/internal/policy"
	"narthex/test/twin"
)

// Each figure is from so many test runs of so many heads.
const (
	benchRuns   = 31
	benchRepeat = 16_384
)

// Of the benchmark's table in bpf/rules.bpf.c.
const (
	benchHeads = 4096
	benchSize  = 1024
)

// rulesPolicy returns a policy of those rules.
func rulesPolicy(rules ...policy.Request) *policy.Policy {
	p := &policy.Policy{
		File: "bench.yaml", Classes: []policy.Class{{Name: "all", Priority: 1}},
		Services: []policy.Service{{Name: "web", Protocol: policy.HTTP}},
	}
	for i, r := range rules {
		r.Name, r.Pos, r.Per, r.Class = fmt.Sprint("r", i), policy.Pos{Line: i + 1}, policy.PerRule, 0
		p.Requests = append(p.Requests, r)
	}
	return p
}

func paths(patterns ...string) *policy.Policy {
	var rules []policy.Request
	for _, p := range patterns {
		rules = append(rules, policy.Request{Path: []string{p}})
	}
	return rulesPolicy(rules...)
}

// way returns a path of that length, of segments of different lengths.
func way(r *rand.Rand, length int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-_"
	b := make([]byte, length)
	left := 0
	for i := range b {
		b[i] = letters[r.IntN(len(letters))]
		if left--; left < 0 && i < length-1 {
			b[i], left = '/', 3+r.IntN(12)
		}
	}
	return string(b)
}

var benchLengths = []int{11, 80, 160}

// manyPaths returns the patterns of so many rules, in turn whole, beginnings, ends and both, for
// paths of the benchmark's lengths, and for each length paths that they match.
func manyPaths(r *rand.Rand, rules int) (patterns []string, matching map[int][]string) {
	matching = map[int][]string{}
	seen := map[string]bool{}
	for len(patterns) < rules {
		i := len(patterns)
		length := benchLengths[i/4%len(benchLengths)]
		path := way(r, length)
		begin := 6 + r.IntN(length-6)
		end := min(begin+r.IntN(length-begin), length-1)
		p := []string{path, path[:begin] + "*", "*" + path[min(begin, length-5):], path[:min(begin, length-4)] + "*" + path[max(end, min(begin, length-4)):]}[i%4]
		if seen[p] {
			continue
		}
		seen[p] = true
		patterns = append(patterns, p)
		matching[length] = append(matching[length], path)
	}
	few := func(length int) bool { return len(matching[length]) < benchHeads }
	for i := 0; slices.ContainsFunc(benchLengths, few); i++ {
		length := benchLengths[i/4%len(benchLengths)]
		if p := patterns[i]; strings.Contains(p, "*") {
			path := strings.Replace(p, "*", way(r, length)[len(p)-1:], 1)
			matching[length] = append(matching[length], "/"+path[1:])
		}
	}
	return patterns, matching
}

// requestLine is a head of no more than that.
func requestLine(path string) string { return "GET " + path + " HTTP/1.1\r\n\r\n" }

// subject is what one figure is of: heads, which are as long as one another, under a policy.
type subject struct {
	name  string
	im    *ebpf.Map
	heads []string
}

// fill puts a subject's heads into the table.
func (k *kernel) fill(b *testing.B, s *subject) {
	b.Helper()
	keys, values := make([]uint32, benchHeads), make([][benchSize]byte, benchHeads)
	for i := range keys {
		keys[i] = uint32(i)
		copy(values[i][:], s.heads[i%len(s.heads)])
	}
	if _, err := k.BenchHeads.BatchUpdate(keys, values, nil); err != nil {
		b.Fatal(err)
	}
	k.use(b, s.im)
}

// once times a test run of benchRepeat heads and returns ns for one.
func (k *kernel) once(b *testing.B, p *ebpf.Program, s *subject) float64 {
	b.Helper()
	ret, d, err := p.Benchmark(twin.Frame([]byte(s.heads[0])), benchRepeat, nil)
	if err != nil || ret != 0 {
		b.Fatalf("returned %d: %v", int32(ret), err)
	}
	return float64(d) / float64(time.Nanosecond)
}

// compare reports what reading costs for each subject, in turns: medians, quartiles, and how the
// last compares with the first.
func (k *kernel) compare(b *testing.B, subjects ...*subject) {
	b.Helper()
	figures := make([][]float64, len(subjects))
	for range benchRuns {
		for i, s := range subjects {
			k.fill(b, s)
			k.once(b, k.BenchRead, s) // warms caches
			figures[i] = append(figures[i], k.once(b, k.BenchRead, s)-k.once(b, k.BenchNothing, s))
			k.checkMatched(b, s)
		}
	}
	var ratios []float64
	for i := range figures[0] {
		ratios = append(ratios, figures[len(figures)-1][i]/figures[0][i])
	}
	for i, s := range subjects {
		slices.Sort(figures[i])
		q := func(n int) float64 { return figures[i][benchRuns*n/4] }
		b.ReportMetric(q(2), "ns/"+s.name)
		b.Logf("%s: %.0f ns, quartiles %.0f to %.0f, least %.0f", s.name, q(2), q(1), q(3), q(0))
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(0, "ns/op")
}

// checkMatched fails unless the last head that was read matched a rule.
func (k *kernel) checkMatched(b *testing.B, s *subject) {
	b.Helper()
	var rule, complex, refused uint32
	for from, to := range map[*ebpf.Variable]*uint32{k.Rule: &rule, k.Complex: &complex, k.Refused: &refused} {
		if err := from.Get(to); err != nil {
			b.Fatal(err)
		}
	}
	if int32(rule) == noRule || complex != 0 || refused != 0 {
		b.Fatalf("%s: rule %d, complex %d, refused %d", s.name, int32(rule), complex, refused)
	}
}

// BenchmarkPath reads request lines under one rule and under 10,000, by 4,096 different paths.
func BenchmarkPath(b *testing.B) {
	k := loadKernel(b)
	r := rand.New(rand.NewPCG(1, 2))
	patterns, matching := manyPaths(r, 10_000)
	start := time.Now()
	tables, _, err := policy.CompileRequests(paths(patterns...), 1)
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("tables of %d bytes, compiled in %v", tables.Bytes(), time.Since(start))
	many := upload(b, compiled(b, paths(patterns...)))
	for _, length := range benchLengths {
		b.Run(fmt.Sprint(length), func(b *testing.B) {
			subject := func(name string, im *ebpf.Map, paths []string) *subject {
				s := &subject{name: name, im: im}
				for _, p := range paths {
					s.heads = append(s.heads, requestLine(p))
				}
				return s
			}
			list := matching[length]
			r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			whole := way(r, length)
			same := make([]string, benchHeads)
			for i := range same {
				same[i] = way(r, length)
				same[i] = whole[:4] + same[i][4:length-2] + whole[length-2:]
			}
			k.compare(b,
				subject("one-exact", upload(b, compiled(b, paths(whole))), []string{whole}),
				subject("one-both", upload(b, compiled(b, paths(whole[:4]+"*"+whole[length-2:]))), same),
				subject("many", many, list[:min(len(list), benchHeads)]),
			)
		})
	}
}

// hundredRules returns a hundred rules on so many headers and as many cookies, all of which a
// browser may send.
func hundredRules(names int) *policy.Policy {
	headers := []string{"user-agent", "accept-language", "referer", "sec-fetch-site", "x-plan"}
	cookies := []string{"session", "theme", "consent", "tier", "basket"}
	for i := len(headers); i < names; i++ {
		headers, cookies = append(headers, fmt.Sprint("x-header-", i)), append(cookies, fmt.Sprint("cookie", i))
	}
	var rules []policy.Request
	for i := range 50 {
		rules = append(rules,
			policy.Request{Header: []policy.Pair{{Name: headers[i%names], Values: []string{fmt.Sprintf("value-%d*", i), fmt.Sprintf("*bot-%d*", i)}}}},
			policy.Request{Cookie: []policy.Pair{{Name: cookies[i%names], Values: []string{fmt.Sprintf("%d-*", i), fmt.Sprintf("*-%d", i)}}}})
	}
	return rulesPolicy(append(rules, policy.Request{Cookie: []policy.Pair{{Name: "session", Values: []string{"*"}}}})...)
}

// browserHead returns a browser's head of 700 bytes.
func browserHead(r *rand.Rand) string {
	const length = 700
	b := "GET /shop/item?id=4711 HTTP/1.1\r\nHost: www.example.org\r\n"
	for _, h := range []int{0, 2, 3, 4, 5, 8, 9, 10, 12} {
		b += browserHeaders[h] + "\r\n"
	}
	b += "Cookie: session=" + way(r, 33)[1:] + "; theme=dark; consent=1; basket="
	const end = "\r\n\r\n"
	return b + way(r, length-len(b)-len(end)) + end
}

// BenchmarkBrowser reads a browser's head under a hundred rules on cookies and headers.
func BenchmarkBrowser(b *testing.B) {
	k := loadKernel(b)
	r := rand.New(rand.NewPCG(1, 2))
	var heads []string
	for range benchHeads {
		heads = append(heads, browserHead(r))
	}
	for _, names := range []int{5, 50} {
		b.Run(fmt.Sprint(names, " names"), func(b *testing.B) {
			k.compare(b,
				&subject{"path-alone", upload(b, compiled(b, paths("/shop/item"))), heads},
				&subject{"hundred", upload(b, compiled(b, hundredRules(names))), heads},
			)
		})
	}
}

// BenchmarkShape is the cost of each shape of pattern, among 10,000.
func BenchmarkShape(b *testing.B) {
	k := loadKernel(b)
	r := rand.New(rand.NewPCG(1, 2))
	patterns, _ := manyPaths(r, 10_000)
	many := upload(b, compiled(b, paths(patterns...)))
	const length = 80
	for i, name := range []string{"exact", "prefix", "suffix", "both"} {
		b.Run(name, func(b *testing.B) {
			s := &subject{name: name, im: many}
			for n := i; n < len(patterns); n += 4 {
				if p := patterns[n]; n/4%len(benchLengths) == 1 {
					path := strings.Replace(p, "*", strings.Repeat("x", length-len(p)+1), 1)
					s.heads = append(s.heads, requestLine("/"+path[1:]))
				}
			}
			k.compare(b, s)
		})
	}
}

// queryRules returns a hundred rules on parameters of a query and on what is absent, and one that matches.
func queryRules() *policy.Policy {
	names := []string{"f.author", "page", "sort", "order", "token"}
	absent := []string{"referer", "sec-fetch-mode", "x-plan", "accept-language"}
	var rules []policy.Request
	for i := range 100 {
		rules = append(rules, policy.Request{
			Query:   []policy.Pair{{Name: names[i%5], Values: []string{fmt.Sprintf("value-%d*", i)}}},
			Without: policy.Without{Header: []string{absent[i%4]}, Cookie: []string{"session"}},
		})
	}
	return rulesPolicy(append(rules, policy.Request{Path: []string{"/search"}, Parameters: 6, Without: policy.Without{Query: []string{"token"}}})...)
}

// BenchmarkQuery reads a browser's head whose query has ten parameters, under one rule on its path and under a
// hundred on queries and absence.
func BenchmarkQuery(b *testing.B) {
	k := loadKernel(b)
	r := rand.New(rand.NewPCG(1, 2))
	var heads []string
	for range benchHeads {
		var query []string
		for i, name := range []string{"query", "f.author", "page", "sort", "order", "rpp", "f.subject", "scope", "etal", "filtertype"} {
			query = append(query, fmt.Sprintf("%s=%s%d", name, way(r, 9)[1:], i))
		}
		heads = append(heads, strings.Replace(browserHead(r), "/shop/item?id=4711", "/search?"+strings.Join(query, "&"), 1))
	}
	k.compare(b,
		&subject{"path-alone", upload(b, compiled(b, paths("/search"))), heads},
		&subject{"hundred-names", upload(b, compiled(b, hundredRules(5))), heads},
		&subject{"queries", upload(b, compiled(b, queryRules())), heads},
	)
}
