// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"regexp"
	"strings"
)

var (
	blanks = regexp.MustCompile(`\s+`)
	// number is one with its unit, a time of day, or a dash where there is none yet.
	number = regexp.MustCompile(`\d[\d.,:]*(?:(?:ns|us|µs|ms|s|m|h|k|M|G|KB|MB|KiB|MiB|%)\b)*`)
)

// busy is what an event's limit says of a service that is overloaded, which a slow machine's is sooner.
var busy = regexp.MustCompile(`, overload\b`)

// Matches reports whether output is what a page shows. With numbers any number will do.
func Matches(shown []string, output string, numbers bool) bool {
	var pattern strings.Builder
	pattern.WriteString(`\A`)
	for line := range strings.SplitSeq(strings.TrimSpace(strings.Join(shown, "\n")), "\n") {
		line = strings.TrimSpace(line)
		if line == "..." {
			pattern.WriteString(`(?:[^\n]*\n)*?`)
			continue
		}
		if numbers {
			line = busy.ReplaceAllString(line, "")
		}
		pattern.WriteString(linePattern(line, numbers) + `\n`)
	}
	pattern.WriteString(`\z`)
	if output = normal(output); numbers {
		output = busy.ReplaceAllString(output, "")
	}
	return regexp.MustCompile(pattern.String()).MatchString(output)
}

// Begins reports whether output begins with what a page shows.
func Begins(shown []string, output string, numbers bool) bool {
	return Matches(append(shown[:len(shown):len(shown)], "..."), output, numbers)
}

func linePattern(line string, numbers bool) string {
	line = blanks.ReplaceAllString(line, " ")
	if !numbers {
		return strings.ReplaceAll(regexp.QuoteMeta(line), `\.\.\.`, `[^\n]*`)
	}
	var b strings.Builder
	for line != "" {
		at := number.FindStringIndex(line)
		if at == nil {
			at = []int{len(line), len(line)}
		}
		b.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line[:at[0]]), `\.\.\.`, `[^\n]*`))
		if at[1] > at[0] {
			b.WriteString(`(?:` + number.String() + `|-)`)
		}
		line = line[at[1]:]
	}
	return b.String()
}

// normal is output as it is compared: blanks as one, and without what is so in a scene alone.
func normal(output string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(strings.TrimSpace(WithoutMount(output)), "\n") {
		b.WriteString(blanks.ReplaceAllString(strings.TrimSpace(line), " ") + "\n")
	}
	return b.String()
}

// WithoutMount takes out what is said of the bpffs that the scene has for itself.
func WithoutMount(output string) string {
	var b strings.Builder
	for line := range strings.Lines(output) {
		if !strings.Contains(line, "is mounted for this process alone") {
			b.WriteString(line)
		}
	}
	return b.String()
}
