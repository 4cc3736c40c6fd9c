// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"narthex/internal/daemon/api"
)

func TestManyRulesShowTheBusiest(t *testing.T) {
	rules := make([]api.RuleStatus, 10_000)
	for i := range rules {
		rules[i] = api.RuleStatus{Name: fmt.Sprintf("r%d", i), Action: "drop"}
	}
	touch := func(i int, passed, dropped uint64) {
		rules[i].Matched, rules[i].Passed, rules[i].Dropped = passed+dropped, passed, dropped
	}
	touch(7, 5, 0)
	touch(5000, 0, 90)
	touch(9999, 1, 90)
	want := `
RULE   DOES  PER  CLASS  PASSED  DROPPED  WOULD DROP
r9999  drop  -    -           1       90           0
r5000  drop  -    -           0       90           0
r7     drop  -    -           5        0           0
and 9997 more (use --json or --all)
`
	var b strings.Builder
	printRules(&b, rules, false)
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	for i := range 30 {
		touch(i, 1, 0)
	}
	b.Reset()
	printRules(&b, rules, false)
	if got := strings.Count(b.String(), "\n"); got != 1+1+mostRules+1 {
		t.Errorf("%d lines, want a head, %d rules and how many more", got, mostRules)
	}
	b.Reset()
	printRules(&b, rules, true)
	if got := strings.Count(b.String(), "\n"); got != 1+1+len(rules) {
		t.Errorf("--all: %d lines, want all %d rules", got, len(rules))
	}
}

func TestRulesShowWhatIsSet(t *testing.T) {
	rules := []api.RuleStatus{
		{Name: "a", Action: "police", Rate: "5/s", Burst: 2, Per: "rule", Class: "gold", Overridden: true},
		{Name: "long-name", Action: "pass"},
	}
	want := `
RULE       DOES               PER   CLASS  PASSED  DROPPED  WOULD DROP
a          5/s burst 2 (set)  rule  gold        0        0           0
long-name  pass               -     -           0        0           0
`
	var b strings.Builder
	printRules(&b, rules, false)
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}
