// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"time"

	"narthex/internal/api"
	"narthex/internal/trial"
)

// printPairs shows what differs, the most frequent first, with examples.
func printPairs(b *strings.Builder, r api.ShadowReport) {
	if len(r.Pairs) == 0 {
		return
	}
	b.WriteString("\nNOW -> WOULD BE\n")
	shown := r.Pairs[:min(len(r.Pairs), mostPairs)]
	for _, p := range shown {
		of := p.Of + "s"
		if p.Count == 1 {
			of = p.Of
		}
		fmt.Fprintf(b, "%d %s to %s: %s -> %s\n", p.Count, of, p.Service, outcomeText(p.Live), outcomeText(p.Candidate))
		for _, e := range p.Examples {
			fmt.Fprintf(b, "    %s\n", strings.TrimSpace(e.Time.Local().Format(time.TimeOnly)+"  "+e.Client+"  "+e.Request))
		}
	}
	if left := len(r.Pairs) - len(shown); left > 0 {
		fmt.Fprintf(b, "and %d more kinds of differences (use --json)\n", left)
	}
}

// outcomeText is an outcome in words: reject (rule login), pass in class gold.
func outcomeText(o trial.Outcome) string {
	text := string(o.Verdict) + withAnswer(o.Answer)
	if o.Class != "" {
		text += " in class " + o.Class
	}
	var why []string
	if o.Rule != "" {
		why = append(why, "rule "+o.Rule)
	}
	if o.Reason != "" {
		why = append(why, o.Reason)
	}
	if len(why) > 0 {
		text += " (" + strings.Join(why, ", ") + ")"
	}
	return text
}

func printTrialRules(b *strings.Builder, r api.ShadowReport) {
	t := newTable("RULE", "OF", ">MATCHED", ">DROPPED", ">REJECTED", ">DEMOTED", "KERNEL")
	shown, left := 0, 0
	for _, rule := range r.Rules {
		if rule.Live == (trial.Counts{}) && rule.Candidate == (trial.Counts{}) {
			continue
		}
		if shown++; shown > mostRules {
			left++
			continue
		}
		live, would := rule.Live, rule.Candidate
		t.add(rule.Name, rule.Kind+"s", arrow(live.Matched, would.Matched), arrow(live.Dropped, would.Dropped),
			arrow(live.Rejected, would.Rejected), arrow(live.Demoted, would.Demoted),
			fmt.Sprintf("%d matched, %d turned away", rule.Kernel.Matched, rule.Kernel.Dropped+rule.Kernel.Rejected))
	}
	if shown == 0 {
		return
	}
	b.WriteString("\n")
	t.print(b)
	if left > 0 {
		fmt.Fprintf(b, "and %d more (use --json)\n", left)
	}
}

func printTrialClasses(b *strings.Builder, r api.ShadowReport) {
	t := newTable("SERVICE", "CLASS", ">ARRIVE")
	some := false
	for _, c := range r.Classes {
		if c.Live+c.Candidate > 0 {
			t.add(c.Service, c.Name, arrow(c.Live, c.Candidate))
			some = true
		}
	}
	if some {
		b.WriteString("\n")
		t.print(b)
	}
}

// arrow shows a number now and as it would be, once if it is the same.
func arrow(now, would uint64) string {
	if now == would {
		return fmt.Sprint(now)
	}
	return fmt.Sprintf("%d -> %d", now, would)
}
