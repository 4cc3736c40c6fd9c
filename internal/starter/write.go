// SPDX-License-Identifier: Apache-2.0

package starter

import (
	"fmt"
	"slices"
	"strings"
)

// Options say for whom a policy is written.
type Options struct {
	File   string // its name, for the commands in it
	Schema string // path of the JSON Schema; empty: it is not installed
	NetNS  string // network namespace that it is for; empty: that of the commands
}

// run is the command that puts the policy in force.
func (o Options) run() string {
	if o.NetNS == "" {
		return "narthex run --policy " + quoted(o.File)
	}
	return fmt.Sprintf("narthex run --policy %s --netns %s", quoted(o.File), quoted(o.NetNS))
}

// NextSteps are the commands that follow, each with what it is for.
func (o Options) NextSteps() [][2]string {
	return [][2]string{
		{"narthex check " + quoted(o.File), "what it means"},
		{"sudo " + o.run(), "decide and count, and change nothing"},
		{"sudo narthex status", "what would have been"},
		{"sudo narthex reload " + quoted(o.File), "when the figures are right and \"mode: shadow\" is removed"},
	}
}

// quoted returns a word as a shell takes it for one.
func quoted(word string) string {
	plain := func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || strings.ContainsRune("-_./:@%+", r)
	}
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Text returns the policy.
func (p *Plan) Text(o Options) string {
	var b strings.Builder
	p.writeHead(&b, o)
	b.WriteString("version: 1\n\nservices:\n")
	for i := range p.Services {
		if i > 0 {
			b.WriteString("\n")
		}
		p.Services[i].write(&b)
	}
	p.writeLeftOut(&b)
	b.WriteString(examples)
	return b.String()
}

func (p *Plan) writeHead(b *strings.Builder, o Options) {
	if o.Schema != "" {
		fmt.Fprintf(b, "# yaml-language-server: $schema=%s\n", printable(o.Schema))
	} else {
		b.WriteString("# For completion in editors: `narthex schema >policy.schema.json`, and as the first line here\n" +
			"# \"yaml-language-server: $schema=policy.schema.json\" in a comment of its own.\n")
	}
	b.WriteString("#\n# A policy to start from, by what listens on this machine; no server was asked anything. All services\n" +
		"# are in shadow mode: everything is decided and counted, nothing is dropped or held.\n#\n")
	steps, width := o.NextSteps(), 0
	for _, s := range steps {
		width = max(width, len(s[0]))
	}
	for _, s := range steps {
		fmt.Fprintf(b, "#   %-*s  %s\n", width, printable(s[0]), s[1])
	}
	for _, note := range p.Notes {
		b.WriteString("#\n")
		writeComment(b, "", strings.ToUpper(note[:1])+note[1:]+".")
	}
	b.WriteString("\n")
}

// Summary is the service in a line.
func (s *Service) Summary() string {
	text := fmt.Sprintf("%s: %s on %s", s.Name, s.Protocol, strings.Join(s.Listen, ", "))
	if s.Program != "" {
		text += ", by " + s.Program
	}
	return text
}

func (s *Service) write(b *strings.Builder) {
	if s.Program != "" && s.PID != 0 {
		writeComment(b, "  ", s.Program+", reached "+scope(s.Listen[0])+".")
	}
	for _, r := range s.Remarks {
		writeComment(b, "  ", r)
	}
	fmt.Fprintf(b, "  - name: %s\n    listen: %s\n", word(s.Name), list(s.Listen))
	if len(s.Interfaces) > 0 {
		fmt.Fprintf(b, "    interfaces: %s\n", list(s.Interfaces))
	}
	fmt.Fprintf(b, "    protocol: %s\n", s.Protocol)
	if s.Protocol == "http" {
		b.WriteString("    concurrency: auto    # requests in service at once; Narthex finds how many the server does best\n")
	}
	if len(s.Trusts) > 0 {
		fmt.Fprintf(b, "    trusted_proxies: %s\n", list(s.Trusts))
	}
	b.WriteString("    mode: shadow\n")
}

// line is the service on one line.
func (s *Service) line() string {
	text := fmt.Sprintf("{name: %s, listen: %s", word(s.Name), list(s.Listen))
	if len(s.Interfaces) > 0 {
		text += ", interfaces: " + list(s.Interfaces)
	}
	return text + ", protocol: " + s.Protocol + ", mode: shadow}"
}

func (p *Plan) writeLeftOut(b *strings.Builder) {
	if len(p.LeftOut) == 0 {
		return
	}
	b.WriteString("\n  # Left out:\n")
	at, by := 0, 0
	for _, l := range p.LeftOut {
		at, by = max(at, len(l.Listen)), max(by, len(l.Program))
	}
	for _, l := range p.LeftOut {
		program := ""
		if by > 0 {
			program = fmt.Sprintf("%-*s  ", by, l.Program)
		}
		fmt.Fprintf(b, "  #   %-*s  %s%s\n", at, l.Listen, program, l.Why)
	}
	if !slices.ContainsFunc(p.LeftOut, func(l LeftOut) bool { return l.service != nil }) {
		return
	}
	b.WriteString("  # Remove the \"#\" before what is a web server to protect, and correct its protocol:\n")
	for _, l := range p.LeftOut {
		if l.service != nil {
			fmt.Fprintf(b, "  #- %s\n", l.service.line())
		}
	}
}

// word writes a name, in quotes if YAML takes it for something else.
func word(name string) string {
	if strings.EqualFold(name, "null") {
		return fmt.Sprintf("%q", name)
	}
	return name
}

// list writes texts in quotes, as a list if they are several.
func list(texts []string) string {
	quotes := make([]string, len(texts))
	for i, t := range texts {
		quotes[i] = fmt.Sprintf("%q", t)
	}
	if len(quotes) == 1 {
		return quotes[0]
	}
	return "[" + strings.Join(quotes, ", ") + "]"
}

// writeComment writes a comment in lines of readable length.
func writeComment(b *strings.Builder, margin, text string) {
	const most = 100
	line := margin + "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > most && line != margin+"#" {
			b.WriteString(line + "\n")
			line = margin + "#"
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}

// examples are what one adds next. Without the "#" of the lines that are no sentences it is
// valid as it is.
const examples = `
# Who goes first when requests have to wait. Remove the "#" of what you need, here and below.
#classes:
#  - {name: gold, priority: 1}
#  - {name: bronze, priority: 2, reserve: 10%}    # at least a tenth of the places while it waits

# Rules on connections, by who opens them. The first that matches decides.
#connections:
#  - {name: monitoring, from: 192.0.2.10, action: pass}
#  - {name: everyone, rate: 20/s, burst: 40, per: source}

# Rules on requests, by what they say: paths, hosts, methods, cookies, headers; in TLS the server name.
#requests:
#  - {name: health, path: /healthz, action: pass}
#  - {name: login, path: /login, method: POST, rate: 10/m, burst: 5, per: source}
#  - {name: members, cookie: {session: "*"}, class: gold}
`
