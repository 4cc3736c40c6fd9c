// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// run executes the commands of a block.
func (p *page) run(b *block) error {
	list, err := commands(b)
	if err != nil {
		return err
	}
	for i, c := range list {
		last := i == len(list)-1
		if err := p.command(b, c, last); err != nil {
			return fmt.Errorf("%s: %w", c.text, err)
		}
	}
	return nil
}

// daemonCommand is a command that serves until it is stopped.
var daemonCommand = regexp.MustCompile(`^(?:sudo +)?(?:\S*/)?narthex +run\b`)

func (p *page) command(b *block, c command, last bool) error {
	t := p.on().terminal(b.words["terminal"], b.words["on"])
	switch {
	case c.text == interrupt:
		return p.interrupt(t)
	case daemonCommand.MatchString(c.text) && !strings.Contains(c.text, "--help") && !b.has("fails") && !b.has("exit"):
		return p.daemon(t, b, c)
	case last && (b.has("background") || b.has("endless")):
		return p.goOn(t, b, c)
	}
	var output string
	var code int
	var err error
	once := func() bool {
		output, code, err = t.run(c.text)
		return err != nil || len(c.shown) == 0 || matches(c.shown, output, b.has("numbers"))
	}
	if last && b.has("retry") {
		within(patience, once)
	} else {
		once()
	}
	if err != nil {
		return fmt.Errorf("%w; it has printed:\n%s", err, output)
	}
	if err := expectCode(b, last, code); err != nil {
		return fmt.Errorf("%w; it has printed:\n%s", err, output)
	}
	p.expectOutput(b, c, output)
	return nil
}

// expectOutput compares what was printed with what is shown, or writes it there. A page goes on after a
// difference.
func (p *page) expectOutput(b *block, c command, output string) {
	if len(c.shown) == 0 || matches(c.shown, output, b.has("numbers")) {
		return
	}
	if *record && b.lang == "console" {
		p.recorded = append(p.recorded, recording{from: b.line + c.line, lines: len(c.shown), text: strings.TrimRight(withoutMount(output), "\n")})
		return
	}
	p.t.Errorf("%s:%d: %s: the page shows\n%s\nit has printed\n%s", p.name, b.line, c.text, strings.Join(c.shown, "\n"), output)
}

// expectCode compares an exit code with what the block says of its last command.
func expectCode(b *block, last bool, code int) error {
	want, named := b.words["exit"]
	switch {
	case last && named && strconv.Itoa(code) != want:
		return fmt.Errorf("exit code %d, not %s", code, want)
	case last && b.has("fails") && code == 0:
		return errors.New("it does not fail")
	case !(last && (named || b.has("fails"))) && code != 0:
		return fmt.Errorf("exit code %d", code)
	}
	return nil
}

// goOn starts a command that does not end by itself and waits until it has printed what is shown.
func (p *page) goOn(t *terminal, b *block, c command) error {
	job, err := t.background(c.text)
	if err != nil {
		return err
	}
	shown := func() bool {
		if len(c.shown) == 0 { // no more to wait for than a sign of life
			return job.printed() != "" || b.has("background")
		}
		return begins(c.shown, job.printed(), b.has("numbers"))
	}
	within(patience, func() bool { return shown() || job.ended() })
	if !shown() {
		return fmt.Errorf("the page shows\n%s\nafter %v it has printed\n%s", strings.Join(c.shown, "\n"), patience, job.printed())
	}
	if b.has("endless") {
		return p.on().interrupt(job)
	}
	t.foreground = job
	return nil
}

// daemon starts a daemon and waits until it enforces.
func (p *page) daemon(t *terminal, b *block, c command) error {
	job, err := t.background(c.text)
	if err != nil {
		return err
	}
	t.foreground = job
	status := repository + "/bin/narthex status" + strings.Join(instanceFlag.FindAllString(c.text, -1), "")
	probe := p.on().terminal("probe", "server")
	up := within(commandPatience, func() bool {
		_, code, err := probe.run(status)
		return err != nil || code == 0 && strings.Contains(job.printed(), "in force") || job.ended()
	})
	if !up || job.ended() {
		return fmt.Errorf("it does not enforce; it has printed:\n%s", job.printed())
	}
	p.expectOutput(b, c, job.printed())
	return nil
}

var instanceFlag = regexp.MustCompile(` --(?:instance|socket)[ =]\S+`)

// interrupt is Ctrl-C in a terminal.
func (p *page) interrupt(t *terminal) error {
	if t.foreground == nil {
		return errors.New("nothing goes on in this terminal")
	}
	job := t.foreground
	t.foreground = nil
	return p.on().interrupt(job)
}
