// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxconn adds up what the servers may have at once, and says whether all have a limit.
func (p *proxy) maxconn() (sum int, all bool) {
	inherited := 0
	if d := p.first("default-server"); d != nil {
		inherited = option(d.words, "maxconn")
	}
	all = true
	for _, l := range p.lines {
		if (l.words[0] != "server" && l.words[0] != "server-template") || slices.Contains(l.words, "backup") || slices.Contains(l.words, "disabled") {
			continue
		}
		n := option(l.words, "maxconn")
		if n == 0 {
			n = inherited
		}
		all = all && n > 0
		if l.words[0] == "server-template" && len(l.words) > 2 {
			_, last, isRange := strings.Cut(l.words[2], "-")
			if !isRange {
				last = l.words[2]
			}
			times, _ := strconv.Atoi(last)
			n *= max(min(times, 10_000), 1)
		}
		sum += min(n, 1_000_000)
	}
	return min(sum, 1_000_000), all
}

// option returns the number after a word, or 0.
func option(words []string, name string) int {
	if i := slices.Index(words, name); i >= 0 && i+1 < len(words) {
		n, _ := strconv.Atoi(words[i+1])
		return max(n, 0)
	}
	return 0
}

func (c *config) leaveMaxconn(b *proxy, why string) {
	for _, l := range b.lines {
		if (l.words[0] == "server" || l.words[0] == "default-server") && option(l.words, "maxconn") > 0 {
			c.draft.Leave(l.Origin, l.text(), why, "write the service's concurrency yourself, or leave it to find itself")
		}
	}
}

// duration reads a time of HAProxy; without a unit it is in milliseconds.
func duration(text string) (time.Duration, error) {
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyz")
	unit, ok := map[string]time.Duration{"": time.Millisecond, "us": time.Microsecond, "ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}[text[len(digits):]]
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || !ok || n <= 0 || n > int64(time.Duration(1<<62)/unit) {
		return 0, fmt.Errorf("%q is not a time that is understood", text)
	}
	return time.Duration(n) * unit, nil
}
