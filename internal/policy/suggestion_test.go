// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// suggestion matches an error with what to write in place of a value.
var suggestion = regexp.MustCompile(`(?m)^error: (\S+) (\w+): .*; (?:did you mean|write) (.*)$`)

// inQuotes matches a value that is suggested in quotes; shortened ones are left out.
var inQuotes = regexp.MustCompile(`"([^"…]+)"`)

// likeDuration, likeAddress and likeNumber match values that are suggested without quotes.
var (
	likeDuration = regexp.MustCompile(`\b\d[0-9a-z]*\b`)
	likeAddress  = regexp.MustCompile(`(?:^|[ [])(\d[0-9a-fA-F:./-]*[0-9a-fA-F:])`)
	likeNumber   = regexp.MustCompile(`\b(\d[\d-]*)\b`)
	likeRate     = regexp.MustCompile(`\b(\d[0-9.]*/[a-z]+)\b`)
	likeMark     = regexp.MustCompile(`\b(0x[0-9a-f]+|\d+)\b`)
	likeShare    = regexp.MustCompile(`\b(\d+%)`)
)

// TestSuggestionsAreValid parses each value that an error in a golden file says to write.
func TestSuggestionsAreValid(t *testing.T) {
	parses := func(parse func(string) error, forms ...*regexp.Regexp) func(*testing.T, string, string) int {
		return func(t *testing.T, line, advice string) (n int) {
			for _, form := range forms {
				for _, m := range form.FindAllStringSubmatch(advice, -1) {
					n++
					if err := parse(m[len(m)-1]); err != nil {
						t.Errorf("%s\nsuggests a value that is refused: %v", line, err)
					}
				}
			}
			return n
		}
	}
	duration := func(least, most, step time.Duration) func(*testing.T, string, string) int {
		return parses(discard(parseDuration(least, most, step)), likeDuration)
	}
	checks := map[string]func(*testing.T, string, string) int{
		"rate":            parses(discard(parseRate), likeRate),
		"burst":           parses(discard(parseBurst), likeNumber),
		"socket_mark":     parses(discard(parseMark), likeMark),
		"priority":        parses(discard(parseInt(1, 65_535)), likeNumber),
		"reserve":         parses(discard(parsePercent), likeShare),
		"from":            parses(parsesFrom, likeAddress, inQuotes),
		"trusted_proxies": parses(discard(parseRange), likeAddress, inQuotes),
		"from_port":       parses(discard(parsePorts), likeNumber),
		"listen":          parses(discard(parseListen), inQuotes),
		"path":            parses(discard(parsePath), inQuotes),
		"host":            parses(discard(parseHost), inQuotes),
		"name":            parses(discard(parseName), inQuotes),
		"block":           duration(time.Second, 24*time.Hour, time.Millisecond),
		"learn":           duration(time.Second, 30*24*time.Hour, time.Second),
		"retry_after":     duration(0, 24*time.Hour, time.Second),
		"max_wait":        duration(time.Millisecond, maxWaitBound, time.Millisecond),
		"max_service":     duration(time.Second, time.Hour, time.Millisecond),
		"stall":           duration(200*time.Millisecond, 10*time.Minute, time.Millisecond),
	}
	files, err := filepath.Glob("testdata/*.golden")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range suggestion.FindAllStringSubmatch(string(text), -1) {
			if check := checks[m[2]]; check != nil && !strings.Contains(m[0], "not an IP address") {
				n += check(t, m[0], m[3])
			}
		}
	}
	if n < 80 {
		t.Errorf("%d suggestions found, at least 80 are expected", n)
	}
}

func discard[T any](parse func(string) (T, error)) func(string) error {
	return func(s string) error {
		_, err := parse(s)
		return err
	}
}

// parsesFrom parses addresses, or the name of a list.
func parsesFrom(s string) error {
	if name, ok := strings.CutPrefix(s, "@"); ok {
		_, err := parseName(name)
		return err
	}
	_, err := parseRange(s)
	return err
}
