// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const diffBase = `version: 1
services:
  - {name: shop, listen: "*:80", concurrency: 8}
  - {name: blog, listen: "*:81", concurrency: unlimited}
classes: [{name: gold, priority: 1}, {name: silver, priority: 2, reserve: 10%}, {name: bronze, priority: 3}]
connections:
  - {name: a, from: 10.0.0.0/24, rate: 5/s, burst: 3}
  - {name: b, from: 10.0.1.0/24, rate: 5/s, per: source, class: silver}
  - {name: c, rate: 9/s, class: bronze}
requests:
  - {name: x, path: /x, action: drop}
  - {name: y, path: "/y*", class: gold}
  - {name: z, path: "*z", rate: 5/m}
`

func mustParse(t interface{ Fatal(...any) }, text string) *Policy {
	p, _, err := Parse("p.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDiff(t *testing.T) {
	tests := map[string]struct {
		replace []string // pairs of old and new texts
		want    []string
		kept    int
	}{
		"nothing but words": {[]string{"version: 1", "# the same\nversion: 1", "action: drop", "action:   drop", "burst: 3", "burst: 3, per: rule"}, nil, 4},
		"places": {
			[]string{"{name: x, path: /x, action: drop}", "{name: x, path: /x, from: 10.0.0.0/8, to: [shop, \"192.0.2.0/24:80\"], action: drop}"},
			[]string{"~ x: from: none -> 10.0.0.0/8", "~ x: to: none -> shop 192.0.2.0/24:80"}, 4,
		},
		"limits": {
			[]string{"concurrency: 8", "concurrency: 16, queue: {size: 10, max_wait: 1s}, reject: {reset: true}", "unlimited", "auto, mode: shadow"},
			[]string{
				"~ shop: concurrency: 8 -> 16; who waits is let in as far as there is room",
				"~ shop: queue.size: 4096 -> 10; who waits beyond that stays; who comes then is rejected, or takes the place of a lower class",
				"~ shop: queue.max_wait: 5s -> 1s; who has waited longer is rejected",
				"~ shop: reject: 503 with Retry-After 1 -> a reset",
				"~ blog: concurrency: unlimited -> auto; the limit sets itself",
				"~ blog: mode: enforce -> shadow; drops, holds and rejects nobody any more; who waits is let in",
			}, 4,
		},
		"services": {
			[]string{"name: shop", "name: store", "  - {name: blog, listen: \"*:81\", concurrency: unlimited}\n", "  - {name: wiki, listen: \"*:82\"}\n"},
			[]string{
				"~ shop is now called store; its counters and its waiting room begin anew; who waits is let in",
				"+ wiki: http on *:82, concurrency auto, mode enforce",
				"- blog; nothing of it is policed any more; who waits is let in",
			}, 4,
		},
		"a class is renamed": {
			[]string{"silver", "argent"},
			[]string{"~ silver is now called argent; who waits in the old one goes last, and clients that are learned in it are forgotten"}, 4,
		},
		"classes change places": {
			[]string{"gold, priority: 1", "gold, priority: 4", "{name: bronze, priority: 3}", "{name: bronze, priority: 3}, {name: tin, priority: 9}"},
			[]string{
				"~ gold: priority: 1 -> 4",
				"+ tin: priority 9, after gold",
				"~ order: gold, silver, bronze -> silver, bronze, gold, tin; silver goes before gold now, bronze goes before gold now",
				"~ default_class: bronze -> tin",
			}, 4,
		},
		"priorities without effect": {
			[]string{"bronze, priority: 3", "bronze, priority: 30"},
			[]string{"~ bronze: priority: 3 -> 30; the order stays the same, so this changes nothing"}, 4,
		},
		"rates": {
			[]string{"rate: 5/s, burst: 3", "rate: 6/s, burst: 4", "rate: 5/s, per: source", "rate: 6/s, per: source", "rate: 9/s, ", "", "rate: 5/m", "rate: 5/m, per: source"},
			[]string{
				"~ a: rate: 5/s -> 6/s; its bucket keeps its tokens, as many as fit",
				"~ a: burst: 3 -> 4",
				"~ b: rate: 5/s -> 6/s; the buckets of its sources start full",
				"~ c: action: police -> classify",
				"~ c: rate: 9/s -> none", "~ c: burst: 1 -> none", "~ c: per: rule -> none",
				"~ z: per: rule -> each IPv4 address and IPv6 /64; its buckets start full",
			}, 0,
		},
		"rules come, go, and change": {
			[]string{"  - {name: b,", "  - {name: new, from: 10.9.0.0/16, action: drop}\n  - {name: b2,", "  - {name: x, path: /x, action: drop}\n", "", "class: gold}", "class: bronze, learn: 5m}"},
			[]string{
				"+ new: from 10.9.0.0/16 to any service: drop; after a",
				"~ b is now called b2; its counters begin anew, its buckets start full",
				"~ y: class: gold -> bronze",
				"~ y: learn: none -> 5m",
				"- x",
			}, 3,
		},
		"moves": {
			[]string{
				"  - {name: a, from: 10.0.0.0/24, rate: 5/s, burst: 3}\n", "",
				"per: source, class: silver}\n", "per: source, class: silver}\n  - {name: a, from: 10.0.0.0/24, rate: 5/s, burst: 3}\n",
				"  - {name: x, path: /x, action: drop}\n", "",
				"rate: 5/m}\n", "rate: 5/m}\n  - {name: x, path: /x, action: drop}\n",
				"  - {name: y, path: \"/y*\", class: gold}\n", "", "- {name: x, path: /x, action: drop}\n", "- {name: x, path: /x, action: drop}\n  - {name: y, path: \"/y*\", class: gold}\n",
			},
			[]string{
				"~ b is moved; that changes nothing: no SYN matches it and a rule that it has passed",
				"~ z is moved; it decides before y now",
			}, 4,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			text := diffBase
			for i := 0; i < len(tt.replace); i += 2 {
				if !strings.Contains(text, tt.replace[i]) {
					t.Fatalf("there is no %q", tt.replace[i])
				}
				text = strings.ReplaceAll(text, tt.replace[i], tt.replace[i+1])
			}
			d := Diff(mustParse(t, diffBase), mustParse(t, text))
			var got []string
			for _, c := range d.Changes {
				got = append(got, c.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
			if d.Kept != tt.kept {
				t.Errorf("%d buckets keep their level, want %d", d.Kept, tt.kept)
			}
		})
	}
}

// Two patterns meet if a text matches both: checked against texts of few letters.
func TestGlobsMeet(t *testing.T) {
	var texts []string
	var grow func(s string, left int)
	grow = func(s string, left int) {
		texts = append(texts, s)
		if left > 0 {
			grow(s+"a", left-1)
			grow(s+"b", left-1)
		}
	}
	grow("", 8)
	rapid.Check(t, func(t *rapid.T) {
		glob := rapid.StringMatching(`[ab*]{0,4}`)
		p, q := glob.Draw(t, "p"), glob.Draw(t, "q")
		want := false
		for _, s := range texts {
			want = want || globMatches(p, s) && globMatches(q, s)
		}
		if got := globsMeet(p, q); got != want {
			t.Fatalf("%q and %q meet: %v, want %v", p, q, got, want)
		}
	})
}

// What stays in order is as much as can be, and everything if nothing is moved.
func TestInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		was := rapid.SliceOfNDistinct(rapid.IntRange(0, 20), 0, 8, rapid.ID[int]).Draw(t, "was")
		still := inOrder(was)
		best, n, last := 0, 0, -1
		for i := range was {
			if still[i] {
				if was[i] <= last {
					t.Fatalf("%v is not in order: %v", was, still)
				}
				n, last = n+1, was[i]
			}
		}
		for set := range 1 << len(was) {
			k, last := 0, -1
			for i := range was {
				if set>>i&1 == 0 {
					continue
				}
				if was[i] <= last {
					k = -len(was)
				}
				k, last = k+1, was[i]
			}
			best = max(best, k)
		}
		if n != best {
			t.Fatalf("%v: %d stay, can be %d", was, n, best)
		}
	})
}
