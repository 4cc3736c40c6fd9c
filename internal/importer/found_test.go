// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"narthex/internal/importer/draft"
)

var configs = flag.String("configs", "testdata/found", "folder of configurations in which TestNoLimitIsLost looks for limits")

// limiting are lines with a limit, by kind, as somebody finds them who knows nothing of the importer.
var limiting = map[Kind]*regexp.Regexp{
	Nginx: regexp.MustCompile(`^\s*limit_(req|conn)\s`),
	HAProxy: regexp.MustCompile(`^\s*((http|tcp)-request|use_backend)\s.*\b(_rate|_cur|_cnt|gpc\d|conn|queue)(\(\w+\))? g[te] |` +
		`^\s*(http|tcp)-request .*_(rate|cur|cnt)(_?\(\w+\))? g[te] |^\s*server .* maxconn |^\s*rate-limit `),
	NFTables: regexp.MustCompile(`^[^#]*(\blimit (rate|name)|\bct count)\b`),
	IPTables: regexp.MustCompile(`^-A \S+ .*-m (limit|hashlimit|connlimit|recent .*--hitcount)\b`),
}

// aside are lines that limit no TCP connections to this host: other protocols, the log, and what is forwarded.
var aside = regexp.MustCompile(`-j LOG|-p (udp|icmp)|-A FORWARD|\b(udp|icmp|icmpv6) (dport|type)\b`)

// concurrency is the limit of a server, which is its service's; a policy does not say of which line.
var concurrency = regexp.MustCompile(`^\s*server .* maxconn `)

// zoneOf returns the line of the zone that a limit of nginx names; 0: none.
func zoneOf(text, line string) int {
	name := regexp.MustCompile(`limit_req .*zone=(\w+)|limit_conn (\w+)`).FindStringSubmatch(line)
	if name == nil {
		return 0
	}
	zone := regexp.MustCompile(`limit_(req|conn)_zone .*zone=` + name[1] + name[2] + `:`)
	return 1 + slices.IndexFunc(strings.Split(text, "\n"), zone.MatchString)
}

// TestNoLimitIsLost looks for the limits in configurations as people write them: each is in the policy, which names the
// line, or is listed. With -configs it looks in those of a folder.
func TestNoLimitIsLost(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(*configs, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no configurations in %s: %v", *configs, err)
	}
	found := map[Kind]int{}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			text := content(t, path)
			kind := Guess([]byte(text))
			if kind == "" {
				t.Fatal("nobody knows whose configuration it is")
			}
			result, err := Import("file", []byte(text), Options{Kind: kind, Files: draft.Files{Base: filepath.Dir(path), None: true}, Env: unset})
			if err != nil && !errors.Is(err, draft.ErrNoService) {
				t.Fatal(err)
			}
			if err == nil {
				if err := wrong(result.Policy); err != nil {
					t.Error(err)
				}
			}
			accounted := func(line int) bool {
				made := regexp.MustCompile(fmt.Sprintf(`file:%d\b`, line))
				return made.Match(result.Policy) || slices.ContainsFunc(result.Left, func(l draft.Left) bool { return l.Line == line })
			}
			limits := 0
			for i, line := range strings.Split(text, "\n") {
				if !limiting[kind].MatchString(line) || aside.MatchString(line) {
					continue
				}
				limits++
				if kept := concurrency.MatchString(line) && strings.Contains(string(result.Policy), "concurrency: "); !kept && !accounted(i+1) && !accounted(zoneOf(text, line)) {
					t.Errorf("line %d is lost: %s", i+1, strings.TrimSpace(line))
				}
			}
			found[kind] += limits
			if limits == 0 {
				t.Error("there is no limit in it")
			}
		})
	}
	t.Logf("%d configurations; limits: %v", len(files), found)
}
