// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"narthex/internal/api"
	"narthex/internal/datapath"
)

// mostRules is how many rules fit a screen.
const mostRules = 20

func printStatus(w io.Writer, s api.Status, all bool) error {
	var b strings.Builder
	printHead(&b, s)
	if s.PID != 0 {
		printServices(&b, s.Services)
		printRooms(&b, s)
		printPools(&b, s.Pools)
		printRules(&b, "RULE", s.Rules, all)
		printRules(&b, "REQUEST RULE", requestRules(s.Requests), all)
		printReasons(&b, s)
		printOverrides(&b, s.Overrides)
	}
	for _, note := range s.Notes {
		fmt.Fprintf(&b, "note: %s\n", note)
	}
	for _, warning := range s.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", warning)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func printHead(b *strings.Builder, s api.Status) {
	state := "enforcing"
	if !s.Enforcing {
		state = "not enforcing"
	}
	fmt.Fprintf(b, "instance %s: %s", s.Instance, state)
	if s.PID == 0 {
		b.WriteString("\n")
		return
	}
	fmt.Fprintf(b, ", process %d since %s, narthex %s\n", s.PID, s.Started.Local().Format(time.DateTime), s.Version)
	fmt.Fprintf(b, "policy %s (%s) since %s\n", s.Policy.File, shortHash(s.Policy.Hash), s.Policy.Loaded.Local().Format(time.DateTime))
	printChange(b, s, time.Now())
	fmt.Fprintf(b, "sources %d of %d, maps %.1f MiB\n", s.Sources.Used, s.Sources.Size, float64(s.MapBytes)/(1<<20))
	if len(s.Missing) > 0 {
		fmt.Fprintf(b, "the kernel lacks %s\n", datapath.MissingText(s.Missing))
	}
	if len(s.Capabilities) > 0 {
		fmt.Fprintf(b, "capabilities %s\n", strings.Join(s.Capabilities, " "))
	}
}

func printServices(b *strings.Builder, services []api.ServiceStatus) {
	t := newTable("SERVICE", "LISTEN", "MODE", "INTERFACES", ">PASSED", ">DROPPED", ">WOULD DROP")
	for _, s := range services {
		row := append([]string{s.Name, strings.Join(s.Listen, " "), s.Mode, interfacesText(s.Interfaces)}, countCells(s.Counts)...)
		t.add(row...)
	}
	b.WriteString("\n")
	t.print(b)
	for _, s := range services {
		if !s.Listening {
			fmt.Fprintf(b, "note: no server listens on %s of service %s\n", strings.Join(s.Silent, " or "), s.Name)
		}
		for _, on := range s.Interfaces {
			if on.Reason != "" {
				fmt.Fprintf(b, "note: %s on %s: %s\n", on.Mode, on.Name, on.Reason)
			}
		}
	}
}

func interfacesText(list []api.InterfaceStatus) string {
	if len(list) == 0 {
		return "none"
	}
	var out []string
	for _, on := range list {
		out = append(out, fmt.Sprintf("%s (%s)", on.Name, on.Mode))
	}
	return strings.Join(out, " ")
}

func countCells(c api.Counts) []string {
	return []string{
		strconv.FormatUint(c.Passed, 10), strconv.FormatUint(c.Dropped, 10), strconv.FormatUint(c.WouldDrop, 10),
	}
}

// requestRules returns request rules as they are shown among others.
func requestRules(rules []api.RequestRuleStatus) []api.RuleStatus {
	var list []api.RuleStatus
	for _, r := range rules {
		list = append(list, r.RuleStatus)
	}
	return list
}

func printRules(b *strings.Builder, title string, rules []api.RuleStatus, all bool) {
	if len(rules) == 0 {
		return
	}
	shown := rules
	if !all && len(rules) > mostRules {
		shown = busiest(rules)
	}
	heads := []string{title, "DOES", "PER", "CLASS", ">PASSED", ">DROPPED", ">WOULD DROP"}
	demotes := slices.ContainsFunc(shown, func(r api.RuleStatus) bool { return r.Demoted > 0 })
	if demotes {
		heads = append(heads, ">DEMOTED")
	}
	t := newTable(heads...)
	for _, r := range shown {
		row := append([]string{r.Name, doesText(r), dash(r.Per), dash(r.Class)}, countCells(r.Counts)...)
		if demotes {
			row = append(row, strconv.FormatUint(r.Demoted, 10))
		}
		t.add(row...)
		for i, l := range r.Limits {
			t.add(fmt.Sprintf("  limit %d", i+1), limitText(l.Rate, l.Burst, l.AtOnce), l.Per, "-", "-", strconv.FormatUint(l.Refused, 10), "-")
		}
	}
	b.WriteString("\n")
	t.print(b)
	if left := len(rules) - len(shown); left > 0 {
		fmt.Fprintf(b, "and %d more (use --json or --all)\n", left)
	}
}

// busiest returns the rules that have matched, those that dropped most first.
func busiest(rules []api.RuleStatus) []api.RuleStatus {
	matched := slices.DeleteFunc(slices.Clone(rules), func(r api.RuleStatus) bool { return r.Matched == 0 })
	slices.SortStableFunc(matched, func(a, b api.RuleStatus) int {
		return cmp.Or(cmp.Compare(b.Dropped+b.WouldDrop, a.Dropped+a.WouldDrop), cmp.Compare(b.Matched, a.Matched))
	})
	return matched[:min(len(matched), mostRules)]
}

func doesText(r api.RuleStatus) string {
	if r.When != "" {
		always := r
		always.When = ""
		return doesText(always) + " in " + r.When
	}
	if r.Rate == "" && len(r.Limits) > 0 {
		return numberOfLimits(len(r.Limits)) + overriddenText(r)
	}
	if r.Rate == "" {
		return r.Action
	}
	text := rateText(r.Rate, r.Burst)
	if r.RateNow > 0 {
		text += fmt.Sprintf(", now %.3g/s", r.RateNow)
	}
	return text + overriddenText(r)
}

// overriddenText says of a rule that an override is in force.
func overriddenText(r api.RuleStatus) string {
	if r.Overridden {
		return " (set)"
	}
	return ""
}

// numberOfLimits says how many limits a rule has.
func numberOfLimits(n int) string {
	if n == 1 {
		return "1 limit"
	}
	return fmt.Sprintf("%d limits", n)
}

// rateText says how much a rule lets pass. The burst of a rate that sets itself follows it.
func rateText(rate string, burst uint32) string {
	if burst == 0 {
		return rate
	}
	return fmt.Sprintf("%s burst %d", rate, burst)
}

// limitText says what one of the limits of a rule is.
func limitText(rate string, burst, atOnce uint32) string {
	if atOnce > 0 {
		return fmt.Sprintf("%d at once", atOnce)
	}
	return rateText(rate, burst)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func printReasons(b *strings.Builder, s api.Status) {
	packets := newTable("WITHOUT A RULE", ">PASSED", ">DROPPED", ">WOULD DROP")
	segments := newTable("HOLDING REQUESTS TAKES", ">SEGMENTS")
	for _, reason := range slices.Sorted(maps.Keys(s.Reasons)) {
		counts := s.Reasons[reason]
		if datapath.IsUsual(reason) {
			segments.add(reason, strconv.FormatUint(counts.Matched(), 10))
			continue
		}
		packets.add(append([]string{reason}, countCells(api.Counts{Counts: counts})...)...)
	}
	for _, t := range []*table{packets, segments} {
		if len(t.rows) > 1 {
			b.WriteString("\n")
			t.print(b)
		}
	}
}

func printOverrides(b *strings.Builder, overrides []api.Override) {
	for _, o := range overrides {
		until := "the next reload"
		if o.Until != nil {
			until = o.Until.Local().Format(time.TimeOnly)
		}
		fmt.Fprintf(b, "note: %s is set to %s until %s\n", o.Path, o.Value, until)
	}
}
